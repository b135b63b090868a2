"""One round of the library `eventsourcing`, as a program of its own. Imports nothing: the library may not be there."""
