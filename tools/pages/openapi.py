"""The OpenAPI document of the model API, as a plane serves it."""

from __future__ import annotations

from terraflow.gateway.http.openapi import document
from terraflow.gateway.http.service import ROUTES


def text() -> str:
    """The document's text."""
    return document(frozenset(ROUTES)).decode()
