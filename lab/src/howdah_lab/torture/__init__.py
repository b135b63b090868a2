"""Fault-injection test: real processes under real faults, and a checker that compares a ledger with the tables."""
