"""What strangers name, as a terminal may show it."""

from __future__ import annotations


def shown(line: str) -> str:
    """One line, with what does not print escaped: the name of a file or a replica, or a service's answer, may hold
    anything, and must neither steer the terminal nor begin a line of its own."""
    return line if line.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)
