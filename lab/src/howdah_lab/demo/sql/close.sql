-- close: drop everything the demo created.

drop schema if exists {shop}, {schema} cascade
