"""Chat templates and tokenizers: what they make of messages, and that what they cannot do is unavailable."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from terraflow.hints.tokens.chat import RENDERED_CHARACTERS_MAX, TEMPLATE_CHARACTERS_MAX, ChatTemplate, TemplateFault
from terraflow.hints.tokens.loaded import BYTES, LoadedTokenizers, TokenizerFault, TokenizerFiles
from terraflow.hints.words import PROMPT_TEXT_BYTES_MAX

USER = [{"role": "user", "content": "Hi"}]
OPEN, CLOSE = 256, 257


@pytest.fixture(scope="module")
def loaded() -> LoadedTokenizers:
    return LoadedTokenizers({"m": TokenizerFiles(BYTES)})


def _folder(path: Path, template: object = "{{ bos_token }}{{ messages[0].content }}", **config: Any) -> Path:
    """A tokenizer of words in a folder, as models are published."""
    words = Tokenizer(models.WordLevel({"<s>": 0, "Hi": 1, "you": 2, "?": 3}, unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.add_special_tokens(["<s>"])
    words.enable_truncation(2)
    words.enable_padding(length=8)
    words.save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text(json.dumps({"chat_template": template, "bos_token": "<s>", **config}))
    return path


def test_one_token_a_byte_between_the_marks(loaded: LoadedTokenizers) -> None:
    text = "é\0\n <"
    assert loaded.prompt("m", text) == [
        OPEN, *b"user\n", *text.encode(), CLOSE, *b"\n", OPEN, *b"assistant\n",
    ]  # fmt: skip


def test_a_prompt_is_one_user_message(loaded: LoadedTokenizers) -> None:
    assert loaded.prompt("m", "Hi") == loaded.messages("m", USER)


def test_a_conversation_that_goes_on_begins_alike(loaded: LoadedTokenizers) -> None:
    first = loaded.messages("m", USER)
    then = loaded.messages("m", [*USER, {"role": "assistant", "content": "Hello"}, {"role": "user", "content": "you"}])
    assert first is not None and then is not None
    assert list(then[: len(first)]) == list(first)


def test_parts_and_tools_are_rendered(loaded: LoadedTokenizers) -> None:
    parts = [{"role": "user", "content": [{"type": "text", "text": "H"}, {"type": "text", "text": "i"}]}]
    assert loaded.messages("m", parts) == loaded.messages("m", USER)
    one, other = ([{"name": name}] for name in "ab")
    assert loaded.messages("m", USER, one) != loaded.messages("m", USER, other)
    ordered, turned = ({"a": 1, "b": 2}, {"b": 2, "a": 1})
    assert loaded.messages("m", USER, [ordered]) == loaded.messages("m", USER, [turned])


@pytest.mark.parametrize("text", ["\ud800", "x" * (PROMPT_TEXT_BYTES_MAX + 1)], ids=["surrogate", "too long"])
def test_what_cannot_be_tokenized_is_unavailable(loaded: LoadedTokenizers, text: str) -> None:
    assert loaded.prompt("m", text) is None


def test_a_model_without_tokenizer_is_unavailable(loaded: LoadedTokenizers) -> None:
    assert loaded.prompt("other", "Hi") is None
    assert "m" in loaded and "other" not in loaded


def test_a_published_folder_brings_template_and_marks(tmp_path: Path) -> None:
    loaded = LoadedTokenizers({"m": TokenizerFiles(str(_folder(tmp_path)))})
    assert loaded.prompt("m", "Hi you Hi you") == [0, 1, 2, 1, 2]


def test_marks_may_be_objects_and_templates_a_list(tmp_path: Path) -> None:
    named = [{"name": "rag", "template": "you"}, {"name": "default", "template": "Hi {{ bos_token }}"}]
    folder = _folder(tmp_path, named, bos_token={"content": "<s>", "special": True})
    assert LoadedTokenizers({"m": TokenizerFiles(str(folder))}).prompt("m", "x") == [1, 0]


def test_a_template_file_counts_before_the_configured_one(tmp_path: Path) -> None:
    folder = _folder(tmp_path)
    (folder / "chat_template.jinja").write_text("you you")
    assert LoadedTokenizers({"m": TokenizerFiles(str(folder))}).prompt("m", "Hi") == [2, 2]
    other = tmp_path / "mine.jinja"
    other.write_text("Hi Hi Hi")
    files = TokenizerFiles(str(folder / "tokenizer.json"), str(other))
    assert LoadedTokenizers({"m": files}).prompt("m", "Hi") == [1, 1, 1]


def test_a_prompt_without_tokens_is_unavailable(tmp_path: Path) -> None:
    folder = _folder(tmp_path, "{{ messages[0].content }}")
    assert LoadedTokenizers({"m": TokenizerFiles(str(folder))}).prompt("m", " ") is None


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer.json", "{}"),
        ("tokenizer_config.json", "{"),
        ("tokenizer_config.json", "[]"),
        ("chat_template.jinja", "{% if %}"),
        ("chat_template.jinja", "x" * (TEMPLATE_CHARACTERS_MAX + 1)),
    ],
)
def test_a_bad_file_is_refused_when_it_is_loaded(tmp_path: Path, name: str, content: str) -> None:
    folder = _folder(tmp_path)
    (folder / name).write_text(content)
    with pytest.raises(TokenizerFault):
        LoadedTokenizers({"m": TokenizerFiles(str(folder))})


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TokenizerFault, match=r"tokenizer\.json"):
        LoadedTokenizers({"m": TokenizerFiles(str(tmp_path))})


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('roles must alternate') }}",
        "{{ messages.append(1) }}",
        "{{ messages.__class__.__mro__ }}",
        "{{ strftime_now('%Y') }}",
        "{{ now() }}",
        "{% for i in range(1000000) %}x{% endfor %}",
        "{% for i in range(99999) %}{{ 'x' * 99 }}{% endfor %}",
        "{{ 1 / 0 }}",
    ],
)
def test_a_template_that_cannot_render_says_so(source: str) -> None:
    assert RENDERED_CHARACTERS_MAX < 99999 * 99
    with pytest.raises(TemplateFault):
        ChatTemplate(source).render(USER)


def test_a_failing_template_is_unavailable(tmp_path: Path) -> None:
    folder = _folder(tmp_path, "{{ raise_exception('no') }}")
    assert LoadedTokenizers({"m": TokenizerFiles(str(folder))}).prompt("m", "Hi") is None


def test_templates_as_model_authors_write_them() -> None:
    source = """
{%- for message in messages %}
    {%- if loop.index0 == 1 %}
        {%- break %}
    {%- endif %}
    {{- message['role'] + ': ' + message['content'] | trim }}
    {% if true %}
B
    {% endif %}
{%- endfor %}
{{- {'é': 1} | tojson }}"""
    assert ChatTemplate(source).render([*USER, *USER]) == 'user: Hi\nB\n{"é": 1}'
    assert ChatTemplate("{{ strftime_now is defined }}").render(USER) == "False"
