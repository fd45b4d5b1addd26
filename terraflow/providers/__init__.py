"""The model vendors, each behind the same port, each with one table of failures."""
