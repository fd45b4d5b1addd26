"""An engine to test against: an OpenAI-compatible server with a prefix cache, a cost model and KV events of its own.

Honest: what it hits is what its own cache holds. Nothing here knows of hints.
"""
