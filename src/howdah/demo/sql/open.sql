-- open: the shop's own table.

create schema if not exists {shop};
create table {shop}.orders (
    id       bigint generated always as identity primary key,
    address  text not null,
    charged  int not null default 0,
    shipped  int not null default 0
)
