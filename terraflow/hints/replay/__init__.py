"""A recorded trace through simulated caches, under several ways of choosing the replica.

Pure and told the time: the same trace, settings and seed give the same numbers.
"""
