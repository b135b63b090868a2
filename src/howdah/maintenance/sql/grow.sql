-- grow: make sure there are partitions ahead; does nothing while another node does it.
-- out: partitions made

select {schema}.grow()
