-- append: add events to one stream.
-- in:  $1 stream, $2 events json text, $3 expect int8 or null, $4 correlation, $5 causation, $6 trace
-- out: version, position

select version, position from {schema}.append($1, $2::text::json, $3::int8, $4, $5, $6)
