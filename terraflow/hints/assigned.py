"""What was routed and is still in flight."""
