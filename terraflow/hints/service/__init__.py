"""The eight RPCs over the live hints: what strangers send becomes words, and words become answers.

Read `parse`, then `rpcs` and `writes`, then `access` and `identity`. The bytes are carried by `terraflow.hints.http2`.
"""
