"""What replicas hold, to scores and their order."""
