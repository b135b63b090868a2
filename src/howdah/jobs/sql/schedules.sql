-- schedules: the recurring jobs, the next one first, with the state of the last one.
-- out: name, kind, cron, zone, next_at, last_at, last_job, last_state, paused

select s.name, s.kind, s.cron, s.zone, s.next_at, s.last_at, s.last_job, j.state as last_state, s.paused
from {schema}.schedule s
left join lateral (select v.state from {schema}.jobs v where v.id = s.last_job) j on true
order by s.paused, s.next_at, s.name
