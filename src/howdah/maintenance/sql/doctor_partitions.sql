-- doctor_partitions: room ahead for new jobs, and what lies outside the partitions.
-- in:  $1 rows of the default partition to count at most int
-- out: ahead (whole partitions not begun), unowned (counted rows in the default partition)

select
    (select count(*)
     from pg_inherits i
     join pg_class c on c.oid = i.inhrelid
     where i.inhparent = {'schema.job'}::regclass
       and substring(c.relname from '^job_(\d+)_\d+$')::int8 > (select last_value from {schema}.job_id)) as ahead,
    (select count(*) from (select 1 from {schema}.job_default limit $1) rows) as unowned
