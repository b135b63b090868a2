-- doctor_gate: whether every insert into the log passes the gate, and positions are drawn one by one.
-- out: gate (on, partial: not for session_replication_role = replica, disabled or missing), cache

select coalesce((
        select case t.tgenabled when 'A' then 'on' when 'O' then 'partial' else 'disabled' end
        from pg_trigger t
        where t.tgrelid = {'schema.event'}::regclass and t.tgfoid = {'schema.gate'}::regproc
          and t.tgtype & 7 = 6  -- for each statement, before, insert
        limit 1), 'missing') as gate,
    (select s.seqcache from pg_sequence s where s.seqrelid = {'schema.event_position_seq'}::regclass) as cache
