"""Measuring and testing Howdah itself: benchmarks, fault injection, and the demo."""
