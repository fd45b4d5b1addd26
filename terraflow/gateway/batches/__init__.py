"""Batches: many requests that run behind everything else, each governed as if it had come alone."""
