-- photograph: somebody sends photos. To the shop they are rows, and their state says that there is work to do.
-- in:  $1 pixels of each int[]

insert into {shop}.photos (pixels) select unnest($1::int[])
