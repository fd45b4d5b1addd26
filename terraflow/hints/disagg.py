"""The prefill and the decode replica of a disaggregated model."""
