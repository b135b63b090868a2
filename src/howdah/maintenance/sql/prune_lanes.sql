-- prune_lanes: delete the names of queues that are not used any more, from lane.
-- in:  $1 queues that may stay int, $2 most names per call int, $3 version of this node text
-- out: queues deleted
--
-- A queue is in use while a job waits, is scheduled or runs in it, for a day after one has finished, and while it has
-- settings, such as a pause. With few queues all names stay.
--
-- An enqueue that is open meanwhile may have seen the pair of queue and priority, and adds none. Nodes therefore do not
-- depend on lane: each adds what is missing when it looks at everything (queues.sql). Nodes of another release may not, so
-- nothing is deleted while there are any.

with recursive known as (
    (select l.queue, 1 as n from {schema}.lane l order by l.queue limit 1)
    union all
    select x.queue, k.n + 1
    from known k
    cross join lateral (select l.queue from {schema}.lane l where l.queue > k.queue order by l.queue limit 1) x
    where k.n <= $1::int
),
running as (
    select j.queue
    from {schema}.lease
    cross join lateral unnest(lease.los, lease.his) run(lo, hi)
    cross join lateral (
        select b.queue from {schema}.job b where b.id >= run.lo and b.id < run.hi order by b.id limit 1
    ) j
),
idle as (
    select l.queue from {schema}.lane l
    except
    select t.queue from {schema}.tally t where t.at > now() - interval '1 day'
    except
    select c.name from {schema}.queue c
    except
    select r.queue from running r
),
unused as materialized (
    select i.queue
    from idle i
    where (select count(*) from known) > $1
      and not exists (select from {schema}.node n where n.state <> 'offline' and n.version <> $3::text offset 0)
      and not exists (select from {schema}.ready r where r.queue = i.queue offset 0)
      and not exists (select from {schema}.later l where l.queue = i.queue offset 0)
    limit $2::int
),
deleted as (
    delete from {schema}.lane l where l.queue = any(array(select u.queue from unused u)) returning l.queue
)
select count(distinct queue) from deleted
