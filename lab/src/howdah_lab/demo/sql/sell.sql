-- sell: one more of an item.
-- in:  $1 item text, $2 cents int8

insert into {shop}.sales as s (item, sold, cents) values ($1, 1, $2)
on conflict (item) do update set sold = s.sold + 1, cents = s.cents + excluded.cents
