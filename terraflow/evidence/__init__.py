"""What was decided, so that a stranger can check it: records, Merkle log, checkpoints, export, verification."""
