"""A gRPC server on its own HTTP/2, one port for every shape of call. It knows nothing of route hints.

1. A stranger may send anything. What it sends ends a call, a stream or its own connection, and nothing else; what is
   kept for it is bounded (`limits`), and whatever it stops waiting for is cancelled.
2. A unary call that needs no waiting is answered inside the read that completed it: no task, no timer, one write for
   all the answers of one read (`Inline`).
3. Reading is bounded by writing: while a connection's unsent bytes are above the mark, nothing more is read from it.

Read `methods` and `call` (what a service writes), `server` (how it is served), then `connection`, `inbound`, `outbox`.
HTTP/2 is RFC 9113, header compression RFC 7541 (by the library hpack), the calls are those of gRPC's
"PROTOCOL-HTTP2" page.
"""
