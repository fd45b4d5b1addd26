"""The state of one engine stream, as a table."""
