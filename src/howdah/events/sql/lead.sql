-- lead: become the leader, or stay it. No row: another node leads.
-- in:  $1 node int, $2 seconds the lease lasts float8, $3 seconds after which a silent node is dead float8
-- out: term: when it began to lead. Later than every term before, although the clock may have gone back

update {schema}.leader l
set node = $1, expires_at = clock_timestamp() + $2::float8 * interval '1 second',
    since = case when l.node = $1 then l.since else greatest(clock_timestamp(), l.since + interval '1 microsecond') end
where l.node = $1 or l.node is null or l.expires_at < clock_timestamp()
   or not exists (
    select from {schema}.node n
    where n.id = l.node and n.state <> 'offline' and n.beat_at > clock_timestamp() - $3::float8 * interval '1 second')
returning since as term
