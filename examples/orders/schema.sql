-- what the application has beside the log: a read model, which can be made anew from the log at any time

create table orders_1 (
    id       text primary key,
    customer text not null,
    state    text not null,
    cents    bigint not null default 0
);

-- what the rest of the application reads; a switch points it to another table
create view orders as
select id, customer, state, cents
from orders_1;

create table outbox (
    id        bigint generated always as identity primary key,
    recipient text not null,
    words     text not null
);
