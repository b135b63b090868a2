-- forget: delete a consumer that no live node declares, with its checkpoint and parked events.
-- in:  $1 consumer, $2 seconds after which a silent node is dead float8
-- out: name

delete from {schema}.consumer c
where c.name = $1 and not exists (
    select from {schema}.node a
    where a.state <> 'offline' and a.beat_at > clock_timestamp() - $2::float8 * interval '1 second'
      and a.consumers::jsonb ? c.name)
returning c.name
