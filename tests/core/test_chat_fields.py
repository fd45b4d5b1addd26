"""The known names are those of the current client library, which is generated from the vendor's description."""

from openai.types.chat.completion_create_params import CompletionCreateParamsBase, CompletionCreateParamsStreaming

from terraflow.core.chat_fields import CHAT_FIELDS, UNKNOWN_FIELD, named


def test_the_names_are_those_of_the_client_library():
    theirs = {*CompletionCreateParamsBase.__annotations__, *CompletionCreateParamsStreaming.__annotations__}
    assert theirs == CHAT_FIELDS


def test_a_key_of_the_callers_choosing_is_never_repeated():
    assert named("logprobs") == "logprobs"
    assert named("4111 1111 1111 1111") == UNKNOWN_FIELD
