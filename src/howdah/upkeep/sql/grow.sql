-- grow: make sure there are partitions ahead; does nothing while another node is at it.
-- out: partitions made

select {schema}.grow()
