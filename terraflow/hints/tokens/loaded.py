"""The tokenizers of models, loaded before the first request: the `Tokenizers` of lookups, and messages for the plane.

1. A model has a `tokenizer.json` and a chat template; without one of its own the template is ChatML's.
2. What cannot be tokenized is unavailable, None; nothing raises once they are loaded.
3. Text goes in as it is: special tokens in it are special, as they are to an engine that tokenizes the rendered prompt.
4. `BYTES` names the tokenizer of this package: one token a byte, ids 0…255, and ChatML's two marks.

Formats: tokenizer.json of huggingface/tokenizers; tokenizer_config.json and chat_template.jinja of transformers.
"""

from __future__ import annotations

import importlib.resources
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import Tokenizer

from terraflow.hints.tokens.chat import ChatTemplate, TemplateFault
from terraflow.hints.words import PROMPT_TEXT_BYTES_MAX, TOKEN_IDS_MAX

BYTES = "bytes"
FILE_BYTES_MAX = 1 << 28


class TokenizerFault(ValueError):
    """A model's files cannot be used; the text names the file."""


class TokenizerFiles(NamedTuple):
    """Where a model's tokenizer is: a `tokenizer.json`, a folder with one, or `BYTES`.

    `template`: a Jinja file; without it the folder's `chat_template.jinja`, its `tokenizer_config.json`, or ChatML.
    """

    tokenizer: str
    template: str | None = None


class _Model(NamedTuple):
    tokenizer: Tokenizer
    template: ChatTemplate


class LoadedTokenizers:
    """By model; see the module."""

    def __init__(self, models: Mapping[str, TokenizerFiles]) -> None:
        """Load all. Raises TokenizerFault."""
        self._models = {name: _load(name, files) for name, files in models.items()}

    def __contains__(self, model: object) -> bool:
        return model in self._models

    def prompt(self, model: str, text: str) -> Sequence[int] | None:
        """`text` as one user message, ready for generation; None when that is not to be had."""
        if len(text) > PROMPT_TEXT_BYTES_MAX:
            return None
        return self.messages(model, [{"role": "user", "content": text}])

    def messages(
        self, model: str, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None = None
    ) -> Sequence[int] | None:
        """A chat's messages and tools as its model's engine sees them; None when that is not to be had."""
        loaded = self._models.get(model)
        if loaded is None:
            return None
        try:
            return _encode(loaded.tokenizer, loaded.template.render(messages, tools))
        except TemplateFault:
            return None

    def text(self, model: str, text: str) -> Sequence[int] | None:
        """Text as it is, without a template; None when that is not to be had."""
        loaded = self._models.get(model)
        return None if loaded is None else _encode(loaded.tokenizer, text)


def _encode(tokenizer: Tokenizer, text: str) -> Sequence[int] | None:
    try:
        ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    except Exception:
        return None
    except BaseException as fault:  # A panic in the library's Rust derives from nothing better.
        if type(fault).__name__ != "PanicException":
            raise
        return None
    return ids if 0 < len(ids) <= TOKEN_IDS_MAX else None


def _load(model: str, files: TokenizerFiles) -> _Model:
    variables: dict[str, str] = {}
    if files.tokenizer == BYTES:
        source = _shipped("bytes.json")
        template = None
    else:
        path = Path(files.tokenizer)
        folder = path if path.is_dir() else path.parent
        source = _read(path / "tokenizer.json" if path.is_dir() else path)
        template, variables = _configured(folder)
    if files.template is not None:
        template = _read(Path(files.template))
    try:
        tokenizer = Tokenizer.from_str(source)
    except Exception as fault:
        raise TokenizerFault(f"{files.tokenizer} is no tokenizer for {model}: {fault}") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    try:
        return _Model(tokenizer, ChatTemplate(_shipped("chatml.jinja") if template is None else template, variables))
    except TemplateFault as fault:
        raise TokenizerFault(f"the chat template of {model}: {fault}") from None


def _configured(folder: Path) -> tuple[str | None, dict[str, str]]:
    """The template and the variables that lie beside a tokenizer."""
    template: str | None = None
    variables: dict[str, str] = {}
    beside = folder / "tokenizer_config.json"
    if beside.is_file():
        try:
            config = json.loads(_read(beside))
        except ValueError as fault:
            raise TokenizerFault(f"{beside} is no JSON: {fault}") from None
        if not isinstance(config, dict):
            raise TokenizerFault(f"{beside} is no JSON object")
        template = _default_of(config.get("chat_template"))
        for name, value in config.items():
            text = value.get("content") if isinstance(value, dict) else value
            if name.endswith("_token") and isinstance(text, str):
                variables[name] = text
    own = folder / "chat_template.jinja"
    return (_read(own) if own.is_file() else template), variables


def _default_of(configured: Any) -> str | None:
    """The template that is not named, or is named `default`."""
    if isinstance(configured, list):
        named = {row.get("name"): row.get("template") for row in configured if isinstance(row, dict)}
        configured = named.get("default")
    return configured if isinstance(configured, str) else None


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise TokenizerFault(f"{path} is larger than {FILE_BYTES_MAX} bytes")
        return path.read_text("utf-8")
    except FileNotFoundError:
        folder = "tokenizer.json, or a folder that has one"
        raise TokenizerFault(f"there is no {path}: give a {folder}, or `{BYTES}`") from None
    except OSError as fault:
        raise TokenizerFault(f"{path} cannot be read: {fault.strerror}") from None
    except UnicodeDecodeError:
        raise TokenizerFault(f"{path} cannot be read: it is not UTF-8 text") from None


def _shipped(name: str) -> str:
    return (importlib.resources.files("terraflow.hints.tokens") / name).read_text("utf-8")
