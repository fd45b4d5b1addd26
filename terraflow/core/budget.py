"""The words of budgets: whose they are, and which period they cover."""

from __future__ import annotations

from enum import StrEnum


class Level(StrEnum):
    """Whose budget it is."""

    WORKLOAD = "workload"
    BUSINESS_UNIT = "business_unit"
    TENANT = "tenant"


class Window(StrEnum):
    """The period a budget covers, in UTC; a window is a key, it is never reset."""

    HOUR = "hour"
    MONTH = "month"
