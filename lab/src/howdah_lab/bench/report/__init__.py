"""Benchmark reports: terminal table, Markdown page, charts, targets."""
