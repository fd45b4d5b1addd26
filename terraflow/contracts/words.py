"""The kinds of text and number that a bundle is written in, each with the rule it keeps.

1. A field is declared as `Annotated[Kind, says("what it means")]`: the rule and the meaning stand where the field
   stands, and the published schema and its page are generated from both.
2. Patterns end in `\\Z`, since Python's `$` also matches before a final line break; the published schema says `$`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta

from terraflow.core.types import TENANT_ID

INTEGER_MAX = 2**53 - 1
"""The greatest integer of canonical JSON."""

TenantName = Annotated[str, Meta(title="tenant id", pattern=rf"^{TENANT_ID.pattern}\Z", max_length=63)]
Id = Annotated[str, Meta(title="id", pattern=r"^[a-z0-9][a-z0-9._-]{0,63}\Z")]
IdOrAny = Annotated[str, Meta(title="id or *", pattern=r"^(\*|[a-z0-9][a-z0-9._-]{0,63})\Z")]
ModelName = Annotated[str, Meta(title="model name", pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,127}\Z")]
"""A name as a vendor or a client spells a model."""
ToolName = Annotated[str, Meta(title="tool name", pattern=r"^[A-Za-z0-9_.-]{1,128}\Z")]
PersonName = Annotated[str, Meta(title="person", pattern=r"^[A-Za-z0-9][A-Za-z0-9._@+-]{0,127}\Z")]
SecretName = Annotated[str, Meta(title="secret's place", pattern=r"^env:[A-Z_][A-Z0-9_]{0,127}\Z")]
Usd = Annotated[str, Meta(title="dollars", pattern=r"^(0|[1-9][0-9]{0,9})(\.[0-9]{1,6})?\Z")]
Count = Annotated[int, Meta(ge=0, le=INTEGER_MAX)]
Positive = Annotated[int, Meta(ge=1, le=INTEGER_MAX)]
Moment = Annotated[datetime, Meta(tz=True)]
"""RFC 3339 with a zone, e.g. `2026-01-01T00:00:00Z`."""

DataClassLabel = Literal["public", "internal", "confidential", "restricted"]
ConsequenceLabel = Literal["low", "moderate", "high", "critical"]
ClassTrigger = Literal["undeclared", "pii", "pci", "phi", "credentials"]
"""What a class is given for: a sensitive type, or nothing found and nothing declared."""


def says(meaning: str) -> Meta:
    """What a field means, for the schema and its page."""
    return Meta(description=meaning)
