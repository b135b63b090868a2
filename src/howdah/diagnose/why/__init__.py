"""`howdah why`: explains why a job does not run, a consumer does not advance, or a table's row is not claimed."""
