"""One lookup, from its query to its answer."""
