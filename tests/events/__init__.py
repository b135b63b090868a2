"""A package, so that its files may be called like those of other rooms."""
