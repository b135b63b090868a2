"""Explains why work does not run (``why``), and examines the database and the nodes (``doctor``)."""
