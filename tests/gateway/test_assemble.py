"""Chunks put together are the answer that the same provider gives whole."""

from hypothesis import given
from hypothesis import strategies as st

from terraflow.gateway.assemble import BYTES_MAX, Assembly
from terraflow.gateway.mouths.openai_chat import whole_as_chunks
from terraflow.ports.upstream import Answer, Chunk, Usage

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
    answer = assembled(whole_as_chunks(Answer(choices=choices, usage=Usage()))).answer()
    assert answer is not None
    assert answer.choices == choices


def test_an_unfinished_answer_is_none_and_usage_is_the_last_said() -> None:
    assembly = assembled([delta(content="a"), Chunk(choices=[], usage=Usage(input=1, output=2))])
    assert assembly.answer() is None
    assert assembly.usage == Usage(input=1, output=2)
    assert assembly.output_bytes == 1


def test_the_old_function_call_and_custom_tools_are_joined() -> None:
    answer = assembled(
        [
            delta(function_call={"name": "f", "arguments": ""}),
            delta(function_call={"arguments": '{"x":'}),
            delta(function_call={"arguments": "1}"}),
            delta(tool_calls=[{"index": 0, "id": "c", "type": "custom", "custom": {"name": "sql", "input": "sel"}}]),
            delta(tool_calls=[{"index": 0, "custom": {"input": "ect 1"}}]),
            delta(finish="tool_calls"),
        ]
    ).answer()
    assert answer is not None
    message = answer.choices[0]["message"]
    assert message["function_call"] == {"name": "f", "arguments": '{"x":1}'}
    assert message["tool_calls"] == [{"id": "c", "type": "custom", "custom": {"name": "sql", "input": "select 1"}}]


def test_audio_and_signed_thoughts_are_joined() -> None:
    answer = assembled(
        [
            delta(audio={"id": "a", "transcript": "he"}),
            delta(audio={"data": "AAA", "transcript": "llo"}),
            delta(audio={"data": "BBB", "expires_at": 7}),
            delta(thinking_blocks=[{"type": "thinking", "thinking": "x", "signature": "s"}]),
            delta(thinking_blocks=[{"type": "redacted_thinking", "data": "d"}]),
            delta(finish="stop"),
        ]
    ).answer()
    assert answer is not None
    message = answer.choices[0]["message"]
    assert message["audio"] == {"id": "a", "transcript": "hello", "data": "AAABBB", "expires_at": 7}
    assert [block["type"] for block in message["thinking_blocks"]] == ["thinking", "redacted_thinking"]


def test_a_field_that_nobody_can_join_makes_the_answer_not_kept() -> None:
    assembly = assembled([delta(content="a", novelty={"x": 1}), delta(finish="stop")])
    assert assembly.answer() is None


def test_what_was_written_is_counted_in_utf_8_wherever_it_stands() -> None:
    calls = [{"index": 0, "id": "never counted", "type": "custom", "custom": {"name": "n", "input": "ü"}}]
    assembly = assembled([delta(role="assistant", content="你好"), delta(tool_calls=calls)])
    assert assembly.output_bytes == 6 + 1 + 2


def test_what_comes_once_more_in_a_block_is_counted_once() -> None:
    thought = {"index": 0, "type": "thinking", "thinking": "hm", "signature": "s"}
    cited = {"index": 0, "type": "text", "text": "So.", "citations": []}
    pieces = (delta(reasoning_content="hm"), delta(thinking_blocks=[thought]), delta(content="So."))
    assembly = assembled([*pieces, delta(text_blocks=[cited])])
    assert assembly.output_bytes == len("hm" + "s" + "So.")


def test_beyond_the_bound_it_is_not_kept() -> None:
    assembly = assembled([delta(content="x" * (BYTES_MAX + 1)), delta(finish="stop")])
    assert assembly.answer() is None
    assert assembly.output_bytes > BYTES_MAX
