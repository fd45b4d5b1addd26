"""What the providers promise."""
