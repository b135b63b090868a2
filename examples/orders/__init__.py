"""The worked example of events: orders as what happened to them."""
