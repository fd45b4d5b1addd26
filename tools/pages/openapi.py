"""The OpenAPI document of the model API, as a plane serves it."""

from __future__ import annotations

from terraflow.gateway.http.openapi import document


def text() -> str:
    """The document's text."""
    return document().decode()
