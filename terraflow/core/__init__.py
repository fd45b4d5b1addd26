"""The words everything else is said in: pure, without I/O, clock or framework."""
