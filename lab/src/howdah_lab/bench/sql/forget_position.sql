-- forget_position: a loop written by hand starts over.

delete from {schema}.bench_position
