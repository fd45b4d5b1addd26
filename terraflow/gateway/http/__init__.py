"""The HTTP edge as plain ASGI: heads, bodies, routes and replies; nothing here decides about a governed request."""
