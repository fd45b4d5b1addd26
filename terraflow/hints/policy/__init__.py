"""What operators say of hints: cache policies, tenants, prompt templates and topologies."""
