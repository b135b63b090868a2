"""Running other programs: each in a process group of its own, which is killed when the process that started it dies."""
