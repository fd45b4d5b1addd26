"""The embedded store: one SQLite file in the data folder, WAL, `synchronous=FULL`, group commit.

`store.open_store` opens it for the plane, `tools.open_tools` beside a running plane, `ledger` and `backup` read
it.
"""
