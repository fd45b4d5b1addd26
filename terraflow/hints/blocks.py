"""Token ids to chained block keys."""
