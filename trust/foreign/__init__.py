"""Verifiers that we did not write, put to an export: what they must accept, and the changes they must refuse.

`verify.go` uses golang.org/x/mod's sumdb/note and tlog, `verify.js` uses @sigstore/verify.
"""
