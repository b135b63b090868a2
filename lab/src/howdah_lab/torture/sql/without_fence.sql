-- without_fence: accept an outcome without checking the lease.

create or replace function {schema}.ack_in_transaction(
    p_node int, p_token bigint, p_id bigint, p_attempt int, p_took bigint, p_result json default null)
returns void language sql as $$
    insert into {schema}.done (id, attempt, state, node, took_us, result)
    values (p_id, p_attempt, 'd', p_node, p_took, p_result) on conflict do nothing
$$;
create or replace function {schema}.ack_keyless(
    p_node int, p_token bigint, p_id bigint, p_attempt int, p_took bigint, p_result json default null)
returns void language sql as $$
    insert into {schema}.done (id, attempt, state, node, took_us, result)
    values (p_id, p_attempt, 'd', p_node, p_took, p_result) on conflict do nothing
$$
