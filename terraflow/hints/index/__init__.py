"""Which replica holds which block: bounded, pure, and told the time."""

from terraflow.hints.compiled import choose

choose(__path__[0])
