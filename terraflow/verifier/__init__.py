"""The offline verifier: an export and a public key are all it needs.

It imports nothing of the rest of TerraFlow, only the standard library and `cryptography`: a mistake in the writer
cannot hide itself here by being made twice. Formats: C2SP signed-note, tlog-checkpoint, tlog-tiles, tlog-proof;
RFC 6962 section 2.1; RFC 8785; DSSE 1.0; in-toto Statement v1.
"""
