"""The short forms of the proofs in `trust/` that need the whole plane, and the faults that they must catch."""
