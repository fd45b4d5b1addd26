"""The HTTP edge: heads, bodies, routes and replies; nothing here decides about a governed request."""
