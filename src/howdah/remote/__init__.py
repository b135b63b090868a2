"""Workers without a database: a node, its stores and the HTTP client of the control plane."""
