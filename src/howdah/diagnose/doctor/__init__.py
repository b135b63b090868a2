"""`howdah doctor`: checks of the server, the tables, the event log and the nodes."""
