-- order: insert an order.
-- in:  $1 address text
-- out: id

insert into {shop}.orders (address) values ($1) returning id
