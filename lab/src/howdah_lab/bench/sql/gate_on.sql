-- gate_on: appends are guarded, as they are by default.

alter table {schema}.event enable trigger gate
