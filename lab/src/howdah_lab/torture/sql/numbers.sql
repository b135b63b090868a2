-- numbers: the tokens and positions that were given out last.
-- out: token, position

select t.last_value as token, p.last_value as position from {schema}.token t, {schema}.event_position_seq p
