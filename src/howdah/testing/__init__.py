"""For the tests of your own application: a database per test, and running what is queued."""
