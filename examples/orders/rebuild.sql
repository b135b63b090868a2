-- The read model of the next release: it has the items of an order, and whether the customer was notified.

create table orders_2 (
    id       text primary key,
    customer text not null,
    state    text not null,
    cents    bigint not null,
    items    text[] not null,
    told     boolean not null,
    version  bigint not null
);
