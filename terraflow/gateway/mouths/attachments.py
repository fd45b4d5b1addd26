"""What the parts of a request that are not text can cost: bounds in tokens, since their bytes say little.

1. An image costs by its pixels, not by its bytes or the length of its address: at most `IMAGE_TOKENS_MAX`.
2. Inline audio costs by its seconds, and a second takes at least a kilobyte: at most a token for each
   `AUDIO_BYTES_PER_TOKEN` of its base64.
3. An inline file costs at most a token a byte, and what one image does for what is drawn in it; a file that only an id
   names may be long: `FILE_TOKENS_MAX`.
4. A vendor that counts more than these bounds is posted what it counts, and the attempt is flagged `overrun`.

Sources: OpenAI's and Anthropic's pages on vision and audio pricing (patches of 32 pixels, tiles of 512, at most
2 048 x 2 048; ten audio tokens a second).
"""

from __future__ import annotations

from typing import NamedTuple

from terraflow.gateway.mouths.chat_shape import Assistant, AudioPart, ChatBody, FilePart, ImagePart

IMAGE_TOKENS_MAX = 10_000
AUDIO_BYTES_PER_TOKEN = 64
AUDIO_TOKENS_MIN = 1_000
FILE_TOKENS_MAX = 128_000


class Attachments(NamedTuple):
    """`inline_bytes` are those of the body that are not counted as text, `tokens_max` what stands for them."""

    inline_bytes: int
    tokens_max: int
    audio: bool


NONE = Attachments(0, 0, audio=False)


def attachments_of(body: ChatBody) -> Attachments:
    """The bounds of a body's attachments."""
    inline, tokens, audio = 0, 0, body.audio is not None or "audio" in (body.modalities or ())
    for message in body.messages:
        if isinstance(message, Assistant) and message.audio is not None:
            audio, tokens = True, tokens + FILE_TOKENS_MAX
        for part in message.content if isinstance(message.content, list) else ():
            if isinstance(part, ImagePart):
                url = part.image_url.url
                inline += len(url) if url.startswith("data:") else 0
                tokens += IMAGE_TOKENS_MAX
            elif isinstance(part, AudioPart):
                audio, data = True, part.input_audio.data
                inline += len(data)
                tokens += max(AUDIO_TOKENS_MIN, len(data) // AUDIO_BYTES_PER_TOKEN)
            elif isinstance(part, FilePart):
                tokens += IMAGE_TOKENS_MAX if part.file.file_data is not None else FILE_TOKENS_MAX
    return Attachments(inline, tokens, audio) if audio or tokens else NONE
