-- forget: delete a consumer no live node has, with its checkpoint and what it parked.
-- in:  $1 consumer, $2 seconds after which a silent node is dead float8
-- out: name

delete from {schema}.consumer c
where c.name = $1 and not exists (
    select from {schema}.node a
    where a.state <> 'offline' and a.beat_at > clock_timestamp() - $2::float8 * interval '1 second'
      and a.consumers::jsonb ? c.name)
returning c.name
