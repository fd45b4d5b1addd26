"""instructor over the client of the vendor named first: writes the objects that it made of answers, as JSON."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import instructor
from instructor.core import InstructorRetryException
from pydantic import BaseModel

URL, KEY, QUESTION = (os.environ[f"PLANE_{name}"] for name in ("URL", "KEY", "QUESTION"))
ASKED = [{"role": "user", "content": QUESTION}]


class Total(BaseModel):
    """What is owed, and for what."""

    total: int
    items: list[str]


class Mended(Total):
    """The same; the model gets it wrong the first time."""


def client(mode: instructor.Mode) -> Any:
    """The client, which gets its objects in one of the ways that it knows."""
    if sys.argv[1] == "openai":
        from openai import OpenAI

        return instructor.from_openai(OpenAI(base_url=URL, api_key=KEY), mode=mode)
    from anthropic import Anthropic

    return instructor.from_anthropic(Anthropic(base_url=URL.removesuffix("/v1"), api_key=KEY), mode=mode)


def plain() -> Any:
    """A whole answer, with no object asked for."""
    made = client(instructor.Mode.TOOLS).create(model="work", max_tokens=50, messages=ASKED, response_model=None)
    return made.choices[0].message.content if sys.argv[1] == "openai" else made.content[0].text


def asked(mode: instructor.Mode, workload: str) -> Any:
    """An object, asked of a workload."""
    return client(mode).create(model=workload, max_tokens=50, messages=ASKED, response_model=Total).model_dump()


def streamed() -> Any:
    """The last of the objects that grow while the answer comes."""
    partial = client(instructor.Mode.TOOLS).create_partial
    grown = list(partial(model="work", max_tokens=50, messages=ASKED, response_model=Total))
    return grown[-1].model_dump()


def several() -> Any:
    """Objects one by one, as the answer comes."""
    each = client(instructor.Mode.TOOLS).create_iterable
    return [one.model_dump() for one in each(model="work", max_tokens=50, messages=ASKED, response_model=Total)]


def mended() -> Any:
    """An object that instructor asks for again: with the call, and as its result what was wrong with it."""
    create = client(instructor.Mode.TOOLS).create
    return create(model="work", max_tokens=50, messages=ASKED, response_model=Mended, max_retries=2).model_dump()


def governed() -> Any:
    """What is said in the plane's headers, and what it says beside the answer."""
    both = client(instructor.Mode.TOOLS).create_with_completion
    said = {"x-terraflow-workload": "work"}
    _, whole = both(model="any", max_tokens=50, messages=ASKED, response_model=Total, extra_headers=said)
    return whole.terraflow["capability"]


def refused() -> Any:
    """The error of a spent budget."""
    try:
        asked(instructor.Mode.TOOLS, "poor")
    except InstructorRetryException as error:
        cause: Any = error.__cause__
        code = cause.body["code"] if "code" in cause.body else cause.body["error"]["code"]
        return {"kind": type(cause).__name__, "status": cause.status_code, "code": code}
    return None


PARTS = {
    "plain": plain,
    "structuredByFunction": lambda: asked(instructor.Mode.TOOLS, "work"),
    "structuredStreamed": streamed,
    "several": several,
    "structured": lambda: asked(instructor.Mode.JSON_SCHEMA, "extract"),
    "mended": mended,
    "governed": governed,
    "refused": refused,
}
print(json.dumps({name: part() for name, part in PARTS.items()}))
