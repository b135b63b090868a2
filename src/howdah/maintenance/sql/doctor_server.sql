-- doctor_server: what kind of server answers.
-- out: number, version, standby, at (its clock), pid

select current_setting('server_version_num')::int as number, current_setting('server_version') as version,
    pg_is_in_recovery() as standby, clock_timestamp() as at, pg_backend_pid() as pid
