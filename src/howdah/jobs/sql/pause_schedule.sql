-- pause_schedule: stop a schedule, or let it go on; what it missed meanwhile is not made up for.
-- in:  $1 name text, $2 paused boolean
-- out: the name, if there is such a schedule
--
-- The trigger keep_schedule notes the moment of a resume; slots before it are left out.

update {schema}.schedule
set paused = $2
where name = $1
returning name
