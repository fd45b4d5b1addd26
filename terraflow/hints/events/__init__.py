"""What engines say of their caches, from bytes to typed events: vLLM's and SGLang's wire."""
