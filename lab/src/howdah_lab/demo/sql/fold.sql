-- fold: do the read models say what the log says, up to where their consumers are? And the log what the orders say?
-- out: events; behind: those order_view has not seen; halted: consumers that failed; receipts: orders shipped as far as
--      their consumer saw; astray: rows of read models that are not the fold of the log; unsaid: orders the log tells
--      otherwise

with seen as (
    select k.consumer, e.stream_id, e.version, e.type, e.data
    from {schema}.checkpoint k
    join {schema}.consumer c on c.name = k.consumer
    join {schema}.event e on e.position <= k.position
     and {schema}.partition_of(e.stream_type, e.stream_id, c.partitions) = k.part
    where (c.stream_types is null or e.stream_type = any(c.stream_types))
      and (c.types is null or e.type = any(c.types))
),
orders as (
    select s.stream_id::int8 as id, count(*) as events, max(s.version) as version,
        (array_agg(s.type order by s.version desc))[1] as state
    from seen s
    where s.consumer = 'order_view'
    group by s.stream_id
),
sold as (
    select s.data ->> 'item' as item, count(*) as sold, sum((s.data ->> 'cents')::int8)::int8 as cents
    from seen s
    where s.consumer = 'sales'
    group by s.data ->> 'item'
),
looks as (
    select s.stream_id::int8 as shelf, sum((s.data ->> 'seconds')::int8)::int8 as seconds
    from seen s
    where s.consumer = 'visits'
    group by s.stream_id
),
expected as (
    select e.stream_id::int8 as id, count(*) filter (where e.type = 'OrderPlaced') as placed,
        count(*) filter (where e.type = 'OrderCharged') as charged,
        count(*) filter (where e.type = 'OrderShipped') as shipped
    from {schema}.event e
    where e.stream_type = 'Order'
    group by e.stream_id
)
select
    (select count(*) from {schema}.event) as events,
    (select count(*) from {schema}.event where stream_type = 'Order')
        - (select count(*) from seen where consumer = 'order_view') as behind,
    (select count(*) from {schema}.checkpoint where halted or failures > 0) as halted,
    (select count(*) from seen where consumer = 'receipts') as receipts,
    (select count(*) from orders f full join {shop}.order_view v using (id)
        where (f.events, f.version, f.state) is distinct from (v.events, v.version, v.state))
        + (select count(*) from sold f full join {shop}.sales v using (item)
            where (f.sold, f.cents) is distinct from (v.sold, v.cents))
        + (select count(*) from looks f full join {shop}.visits v using (shelf)
            where f.seconds is distinct from v.seconds) as astray,
    (select count(*) from {shop}.orders o full join expected e using (id)
        where (1, o.charged, o.shipped) is distinct from (e.placed, e.charged, e.shipped)) as unsaid
