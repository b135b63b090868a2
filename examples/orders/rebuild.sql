-- the read model of the next release: it knows the items of an order, and whether the customer was told

create table orders_2 (
    id       text primary key,
    customer text not null,
    state    text not null,
    cents    bigint not null,
    items    text[] not null,
    told     boolean not null,
    version  bigint not null
);
