-- close: leave nothing behind in somebody else's database.

drop schema if exists {shop}, {schema} cascade
