-- make_tables: what transactional handlers write to, and a plain table to compare an enqueue with.
-- No unique key on effects: a job done twice must be found, not prevented.

create table {schema}.bench_effect (job bigint not null);
create table {schema}.bench_plain (id bigint generated always as identity primary key, args json not null)
