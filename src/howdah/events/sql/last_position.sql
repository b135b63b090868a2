-- last_position: the last position this session allocated; run in the transaction of a bulk append.
-- out: position

select currval({'schema.event_position_seq'}) as position
