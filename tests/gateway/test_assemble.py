"""Chunks put together are the answer that the same provider gives whole."""

from hypothesis import given
from hypothesis import strategies as st

from terraflow.gateway.assemble import BYTES_MAX, Assembly
from terraflow.gateway.mouths.openai_chat import whole_as_chunks
from terraflow.ports.upstream import Chunk, Usage

CALLS = [
    {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}},
    {"id": "b", "type": "function", "function": {"name": "g", "arguments": '{"y": 2}'}},
]


def assembled(chunks: list[Chunk]) -> Assembly:
    assembly = Assembly(keep=True)
    for chunk in chunks:
        assembly.add(chunk)
    return assembly


def delta(index: int = 0, finish: str | None = None, **parts: object) -> Chunk:
    return Chunk(choices=[{"index": index, "delta": parts, "finish_reason": finish}])


@given(st.lists(st.text(min_size=1, max_size=20), min_size=1, max_size=8))
def test_text_is_joined_in_order(pieces: list[str]) -> None:
    chunks = [delta(content=piece) for piece in pieces] + [delta(finish="stop")]
    answer = assembled(chunks).answer()
    assert answer is not None
    assert answer.choices[0]["message"]["content"] == "".join(pieces)


def test_parallel_tool_calls_stay_apart() -> None:
    pieces = [
        delta(tool_calls=[{"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}]),
        delta(tool_calls=[{"index": 1, "id": "b", "type": "function", "function": {"name": "g", "arguments": '{"y"'}}]),
        delta(tool_calls=[{"index": 0, "function": {"arguments": '{"x": '}}]),
        delta(
            tool_calls=[{"index": 1, "function": {"arguments": ": 2}"}}, {"index": 0, "function": {"arguments": "1}"}}]
        ),
        delta(finish="tool_calls"),
    ]
    answer = assembled(pieces).answer()
    assert answer is not None
    assert answer.choices[0]["message"]["tool_calls"] == CALLS


def test_choices_stay_apart() -> None:
    answer = assembled([delta(1, content="b"), delta(0, content="a"), delta(0, "stop"), delta(1, "length")]).answer()
    assert answer is not None
    assert [(c["message"]["content"], c["finish_reason"]) for c in answer.choices] == [("a", "stop"), ("b", "length")]


def test_a_whole_answer_sent_as_chunks_comes_back_whole() -> None:
    choices = [
        {"index": 0, "message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"},
        {
            "index": 1,
            "message": {"role": "assistant", "content": None, "tool_calls": CALLS},
            "finish_reason": "tool_calls",
        },
    ]
    answer = assembled(whole_as_chunks(choices)).answer()
    assert answer is not None
    assert answer.choices == choices


def test_an_unfinished_answer_is_none_and_usage_is_the_last_said() -> None:
    assembly = assembled([delta(content="a"), Chunk(choices=[], usage=Usage(input=1, output=2))])
    assert assembly.answer() is None
    assert assembly.usage == Usage(input=1, output=2)
    assert assembly.output_bytes == 1


def test_beyond_the_bound_it_is_not_kept() -> None:
    assembly = assembled([delta(content="x" * (BYTES_MAX + 1)), delta(finish="stop")])
    assert assembly.answer() is None
    assert assembly.output_bytes > BYTES_MAX
