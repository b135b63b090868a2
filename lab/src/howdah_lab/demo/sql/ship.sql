-- ship: an order leaves the house.
-- in:  $1 id int8

update {shop}.orders set shipped = shipped + 1 where id = $1
