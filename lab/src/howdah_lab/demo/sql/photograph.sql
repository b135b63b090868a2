-- photograph: insert photos: rows whose state makes them work to do.
-- in:  $1 pixels of each int[]

insert into {shop}.photos (pixels) select unnest($1::int[])
