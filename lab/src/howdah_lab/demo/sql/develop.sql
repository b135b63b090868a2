-- develop: a photo is made.
-- in:  $1 id int8
--
-- Counts, so that doing it twice shows.

update {shop}.photos set developed = developed + 1 where id = $1
