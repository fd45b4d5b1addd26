"""What was agreed: contracts, capabilities, the signed bundle, the exclusion table and the plan."""
