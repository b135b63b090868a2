-- schedules: the recurring jobs, the next one first, with the state of the last one.
-- out: name, kind, cron, zone, next_at, last_at, last_job, last_state, paused, error

select s.name, s.kind, s.cron, s.zone, n.next_at, s.last_at, s.last_job, j.state as last_state, s.paused, s.error
from {schema}.schedule s
cross join lateral (
    select case when s.declaration is null then '9999-12-29 00:00+00' else greatest(s.slot_at, s.not_before) end as next_at) n
left join lateral (select v.state from {schema}.jobs v where v.id = s.last_job) j on true
order by s.paused, n.next_at, s.name
