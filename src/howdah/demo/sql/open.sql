-- open: the shop's own table, and the read models made of the log.

create schema if not exists {shop};
create table {shop}.orders (
    id       bigint generated always as identity primary key,
    address  text not null,
    charged  int not null default 0,
    shipped  int not null default 0
);
create table {shop}.order_view (id bigint primary key, state text not null, version bigint not null, events bigint not null);
create table {shop}.sales (item text primary key, sold bigint not null, cents bigint not null);
create table {shop}.visits (shelf bigint primary key, seconds bigint not null)
