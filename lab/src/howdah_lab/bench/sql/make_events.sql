-- make_events: a twin of the log that nothing stands before, and what consumers keep: a read model, a position.

create table {schema}.bench_event (like {schema}.event including all);
create table {schema}.bench_model (
    user_id bigint primary key,
    email   text not null,
    times   int not null
);
create table {schema}.bench_position (one boolean primary key, position bigint not null)
