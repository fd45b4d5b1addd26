"""LangChain's chat models, of the vendor named first: writes what they made of each answer, as JSON."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.tools import tool
from pydantic import BaseModel

URL, KEY, QUESTION = (os.environ[f"PLANE_{name}"] for name in ("URL", "KEY", "QUESTION"))
ASKED = [HumanMessage(QUESTION)]


class Total(BaseModel):
    """What is owed, and for what."""

    total: int
    items: list[str]


@tool
def weather(city: str) -> str:
    """What it is like outside."""
    return f"35 °C in {city}"


def model(name: str, **more: Any) -> BaseChatModel:
    """The chat model that asks a workload."""
    if sys.argv[1] == "openai":
        from langchain_openai import ChatOpenAI

        return ChatOpenAI(model=name, base_url=URL, api_key=KEY, stream_usage=True, **more)
    from langchain_anthropic import ChatAnthropic

    return ChatAnthropic(model=name, base_url=URL.removesuffix("/v1"), api_key=KEY, max_tokens=50, **more)


def plain() -> Any:
    """A whole answer."""
    return model("work").invoke(ASKED).text


def streamed() -> Any:
    """An answer in pieces, and the tokens that it took."""
    chunks = list(model("work").stream(ASKED))
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    assert isinstance(whole, AIMessageChunk) and whole.usage_metadata is not None
    return {"pieces": [chunk.text for chunk in chunks if chunk.text], "used": whole.usage_metadata["total_tokens"]}


def tools() -> Any:
    """A function called, and what is said of its result."""
    bound = model("work").bind_tools([weather])
    first = bound.invoke(ASKED)
    results = [ToolMessage(weather.invoke(call["args"]), tool_call_id=call["id"]) for call in first.tool_calls]
    return {"said": bound.invoke([*ASKED, first, *results]).text, "called": [call["args"] for call in first.tool_calls]}


def tools_streamed() -> Any:
    """A function called in a stream."""
    chunks = list(model("work").bind_tools([weather]).stream(ASKED))
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    [call] = whole.tool_calls
    return {"name": call["name"], "given": call["args"]}


def structured() -> Any:
    """An object of a class, by a schema."""
    return model("extract").with_structured_output(Total, method="json_schema").invoke(ASKED).model_dump()


def structured_streamed() -> Any:
    """The last of the objects that grow while the answer comes."""
    *_, last = model("work").with_structured_output(Total, method="json_schema").stream(ASKED)
    return last.model_dump()


def structured_as_json() -> Any:
    """An object of a class, which the model is told of in the question alone."""
    if sys.argv[1] != "openai":
        return None
    return model("work").with_structured_output(Total, method="json_mode").invoke(ASKED).model_dump()


def structured_by_function() -> Any:
    """An object of a class, by a function that the model is made to call."""
    return model("work").with_structured_output(Total, method="function_calling").invoke(ASKED).model_dump()


def governed() -> Any:
    """What is said in the plane's headers, and what it says in its own."""
    said = {"default_headers": {"x-terraflow-workload": "work"}}
    if sys.argv[1] == "openai":
        answer = model("any", include_response_headers=True, **said).invoke(ASKED)
        return answer.response_metadata["headers"]["x-terraflow-capability"]
    return model("any", **said).invoke(ASKED).response_metadata["terraflow"]["capability"]


def refused() -> Any:
    """The error of a spent budget."""
    try:
        model("poor").invoke(ASKED)
    except Exception as error:
        body: Any = error.body
        kinds = [kind.__name__ for kind in type(error).__mro__]
        code = body["code"] if "code" in body else body["error"]["code"]
        kind = "RateLimitError" if "RateLimitError" in kinds else kinds[0]
        return {"kind": kind, "status": error.status_code, "code": code}
    return None


PARTS = {
    "plain": plain,
    "streamed": streamed,
    "tools": tools,
    "toolsStreamed": tools_streamed,
    "structuredStreamed": structured_streamed,
    "structured": structured,
    "structuredByFunction": structured_by_function,
    "structuredAsJson": structured_as_json,
    "governed": governed,
    "refused": refused,
}
print(json.dumps({name: part() for name, part in PARTS.items()}))
