"""Requests that no route answers, and what their callers should ask instead.

1. A path of a vendor's API that the plane does not have has a row in ASTRAY, which is for what lies below it as well.
   The first that fits counts.
2. A path that there is, asked with another method or with a slash at its end, is told so.
3. What is said is a constant text, or made of methods: nothing of the request is repeated.

Sources of the paths: the API references of OpenAI, Anthropic and Azure OpenAI.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple


class Astray(NamedTuple):
    """A path; what its caller should do."""

    path: str
    hint: str


_OTHER_API = "This plane does not have that API of the vendor's; GET /openapi.json lists what it has."

# fmt: off
ASTRAY: tuple[Astray, ...] = (
    Astray("/v1/v1/",               "/v1 is there twice: Anthropic's clients want a base URL without it."),
    Astray("/v1/responses",         "This plane does not have the Responses API: use chat completions, POST"
                                    " /v1/chat/completions."),
    Astray("/v1/completions",       "Prompts without roles are not served: POST /v1/chat/completions."),
    Astray("/v1/chat/completions/", "Answers are not kept to be read or changed later."),
    Astray("/v1/complete",          "Prompts without roles are not served: POST /v1/messages."),
    Astray("/v1/messages/batches",  "Anthropic's form of batches is not served: POST /v1/batches, with lines"
                                    " whose url is /v1/messages."),
    *(Astray(f"/v1/{name}", _OTHER_API) for name in (
        "agents", "assistants", "audio", "chatkit", "containers", "conversations", "embeddings", "environments",
        "evals", "fine_tuning", "images", "moderations", "organization", "realtime", "sessions", "skills", "threads",
        "uploads", "user_profiles", "vaults", "vector_stores", "videos",
    )),
    Astray("/openai/",              "Azure's paths are not served: use OpenAI's own client, with a base URL that"
                                    " ends in /v1."),
    *(Astray(f"/{name}", "The path must begin with /v1: OpenAI's clients want a base URL that ends in it.")
      for name in ("chat", "completions", "embeddings", "models", "responses", "files", "batches", "messages",
                   "invocations", "evidence", "requests", "reviews", "deployments")),
)
# fmt: on


def hint(path: str, name: str, routes: Collection[tuple[str, str]]) -> str:
    """What to do instead of asking for a path; `name` is its name among the routes, which are methods and names. Empty
    where nobody knows."""
    if path.endswith("/") and any(served == name.rstrip("/") for _, served in routes):
        return "The path must have no slash at its end."
    found = next((row.hint for row in ASTRAY if _fits(row, path)), None)
    if found is not None:
        return found
    methods = [takes for takes, served in routes if served == name]
    return f"This path takes {' and '.join(methods)}." if methods else ""


def _fits(row: Astray, path: str) -> bool:
    return path == row.path or path.startswith(row.path if row.path.endswith("/") else row.path + "/")
