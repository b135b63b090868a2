"""Tables: any table of the user's own becomes a work queue."""
