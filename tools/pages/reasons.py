"""The reference page of reason codes, from the registry."""

from __future__ import annotations

from collections.abc import Iterator

from terraflow.core.reasons import PLANNED, REASONS, Kind, Reason, Surface

INTRODUCTION = """# Reason codes

<!-- Generated from terraflow/core/reasons.py by `make fix`. -->

Every decision of the plane explains itself with a reason code. `terraflow reason CODE` prints one of them,
`terraflow reason --all --json` prints all.

- **Status** is the HTTP status of a response that ends with the code, unless the code's row says otherwise. Route
  hints and rendering have no HTTP status.
- **Retry** says whether the same request, unchanged, may succeed after `Retry-After` or a short wait. At *no*,
  follow the last column first.
- **Since** is the version that first raised the code. A *planned* code is reserved for a part that is not built
  yet, and no response carries it.
"""

SURFACES = {
    Surface.GOVERNED: (
        "Governed requests",
        "How a governed request ended. The code is in the header `x-terraflow-reason` of every answer that is not"
        " a flowing stream, in the body's `terraflow.reason_code`, and in the request's evidence. A flowing"
        " stream's code is in the evidence only. What ends before it is governed, or never is, has its code in the"
        " error body only: `APP_UNAUTHENTICATED`, `QUEUE_SHED` before the first step, `EVIDENCE_UNAVAILABLE` and"
        " `INTERNAL_ERROR` where the key cannot be looked up, and every code of another route than the three mouths.",
    ),
    Surface.MODEL_API: (
        "Model API errors",
        "Errors of `/v1` about a request that was never governed. The code is in the error body, with no reason"
        " header; nothing ran and nothing was charged.",
    ),
    Surface.CONSOLE_API: (
        "Console API errors",
        'Errors of `/api`, in the body `{"error": {"code", "message", "details"}}`.',
    ),
    Surface.LOOKUP_ROUTE: (
        "Route hints",
        "Why a hint is what it is. Hints fail open: treat a code you do not know as no hint.",
    ),
    Surface.RENDER_TEMPLATE: ("Prompt rendering", "How the rendering of a prompt template ended."),
}

KINDS = {
    Kind.RESPONSE: "ends a request, or refuses it",
    Kind.ROUTE_EXCLUSION: "why one capability may not serve the request: recorded for each capability, and the"
    " response only when that capability was pinned",
    Kind.PRODUCED_ANSWER: "how an answer came to be",
    Kind.ACTIVATION: "met when a bundle is activated",
    Kind.RECORDED_ONLY: "recorded beside another code, never a response",
    Kind.NOT_RAISED: "listed by the vocabulary as not raised; the row's note says what this plane does",
    Kind.RESERVED: "reserved for the broker of agents' actions",
    Kind.HINT: "the reason of a route hint",
    Kind.RENDER: "the outcome of rendering a template",
}


def page() -> str:
    """The whole page, as Markdown."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield INTRODUCTION
    yield "| kind | a code of this kind is |"
    yield "| --- | --- |"
    for kind, text in KINDS.items():
        yield f"| `{kind}` | {text} |"
    for surface, (title, text) in SURFACES.items():
        yield f"\n## {title}\n\n{text}\n"
        yield "| code | status | kind | retry | since | meaning | what to do |"
        yield "| --- | --- | --- | --- | --- | --- | --- |"
        for row in REASONS:
            if row.surface is surface:
                yield _table_row(row)
    yield ""


def _table_row(row: Reason) -> str:
    status = "–" if row.status is None else str(row.status)
    if row.second is not None:
        other = "" if row.second.status is None else f"{row.second.status} on "
        status += f"; {other}{row.second.where}"
    meaning = f"{row.meaning} *{row.note}*" if row.note else row.meaning
    since = f"*{PLANNED}*" if row.since == PLANNED else row.since
    cells = (f"`{row.code}`", status, row.kind, "yes" if row.retry else "no", since, meaning, row.action)
    return f"| {' | '.join(cells)} |"
