-- without_key: two live jobs may have one key.

alter table {schema}.job_key drop constraint job_key_pkey, add constraint job_key_pkey primary key (key, id)
