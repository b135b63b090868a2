-- The read model, which can be rebuilt from the log at any time.

create table orders_1 (
    id       text primary key,
    customer text not null,
    state    text not null,
    cents    bigint not null default 0
);

-- The rest of the application reads this view; a switch replaces it to use another table.
create view orders as
select id, customer, state, cents
from orders_1;

create table outbox (
    id        bigint generated always as identity primary key,
    recipient text not null,
    words     text not null
);
