-- 0013: the fleet: claims over HTTP are numbered.

-- The number of the newest claim that a worker without a database made of each store, by the name of the store. A claim
-- that waited in the socket of a frozen control plane and comes after a newer one is recognised by its number.
alter table {schema}.node
    add column claims jsonb not null default '{}';
