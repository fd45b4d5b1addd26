"""What the plane costs, measured: micro-benches of its parts and `make bench`, the whole of it end to end."""
