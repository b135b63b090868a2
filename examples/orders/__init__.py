"""Example of the event log: event-sourced orders."""
