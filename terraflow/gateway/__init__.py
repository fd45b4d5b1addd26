"""One governed request, from its first byte to its record."""
