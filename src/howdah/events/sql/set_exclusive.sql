-- set_exclusive: serialise appends, or allow concurrent ones.
-- in:  $1 whether bool

select setval({'schema.log_exclusive'}::regclass, case when $1::bool then 1 else 0 end)
