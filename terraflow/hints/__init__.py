"""Route hints: which replica of a fleet already holds a prompt's prefix.

1. A hint is advice. Every answer is valid with an empty list, and whatever fails here costs a cache miss, never a
   request.
2. A lookup has no side effect but a metric and the LFU credit of what it delivered.
3. Metadata only: hashes, counts and times. No token and no text of a prompt is kept.
4. What decides (`index`, `rank`, `lookup`, `disagg`, `render`, `feed/machine`) is pure and is told the time.

Read `words`, then `lookup`, then `service`. The contract is `inferencecache.v1alpha1` (wire/inferencecache.proto).
"""
