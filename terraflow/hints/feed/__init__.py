"""What engines say of their caches, brought into the index."""
