"""Checks and generators of this repository; nothing here ships."""
