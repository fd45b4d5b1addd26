"""The eight RPCs over the live hints: what strangers send becomes words, and words become answers.

Read `parse`, then `rpcs`, then `identity`. The server that carries the bytes is `terraflow.hints.http2`.
"""
