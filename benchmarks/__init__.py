"""Howdah and its rivals side by side, on one server. Start it by scripts/bench; README.md says what is measured."""
