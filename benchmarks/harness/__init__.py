"""The side that holds the clock: environments, drivers, databases, scenarios, and the report."""
