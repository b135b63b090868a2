-- view_order: what an event leaves of an order.
-- in:  $1 id int8, $2 type of the event text, $3 version int8
--
-- Counts without asking whether it has seen the event before, so that doing one twice shows.

insert into {shop}.order_view as v (id, state, version, events) values ($1, $2, $3, 1)
on conflict (id) do update set state = excluded.state, version = excluded.version, events = v.events + 1
