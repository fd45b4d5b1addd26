"""Which replica holds which block: bounded, pure, and told the time."""
