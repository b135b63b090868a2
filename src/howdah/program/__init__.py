"""Running other programs: each in a process group of its own, which ends with whoever started it."""
