-- settle_history: what autovacuum would have done by now.

vacuum (analyze) {schema}.job, {schema}.done, {schema}.attempt, {schema}.ready, {schema}.later, {schema}.lease, {schema}.tally,
    {schema}.event, {schema}.audit, {schema}.bench_row, {schema}.node
