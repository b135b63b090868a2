-- without_flush: a commit is acknowledged before it is written anywhere.

do $$ begin execute format('alter database %I set synchronous_commit = off', current_database()); end $$
