"""What decides a lookup: values in, an answer out. No clock is read, and nothing is changed but credits.

`lookup` is LookupRoute and `disagg` LookupPDRoute, both on `Grounds` (`look`); `question` reads what is asked, `rank`
scores who holds it, `assigned` remembers what was just routed, `explain` says why.
"""
