"""Clients that others wrote, as programs of their own, and the model behind the plane that they call."""
