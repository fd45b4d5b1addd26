"""Everything outside the process, as Protocols whose contracts are in MUST and MUST NOT."""
