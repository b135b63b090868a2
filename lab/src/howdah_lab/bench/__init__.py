"""Benchmark: throughput and latency of Howdah on this machine and PostgreSQL, with default settings."""
