"""Running jobs, whoever stores them."""
