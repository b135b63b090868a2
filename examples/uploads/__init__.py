"""Example of a table as a queue: uploads that are converted to symbols."""
