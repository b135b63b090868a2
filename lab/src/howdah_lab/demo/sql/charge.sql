-- charge: an order is paid.
-- in:  $1 id int8

update {shop}.orders set charged = charged + 1 where id = $1
