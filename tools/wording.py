"""Whether a text copies the vocabulary's reference, without keeping the reference's text here.

`facts/reference_wording.txt` holds digests of the reference's wording, one a line. A text copies it when the two
have a run of seven words in common, or a whole sentence of four to six words.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

RUN_WORDS = 7
"""Facts said in a few words are said alike by everyone; seven words in a row are somebody's sentence."""
SENTENCE_WORDS_MIN = 4

REFERENCE = Path(__file__).parent / "facts" / "reference_wording.txt"


def digests(text: str) -> Iterator[tuple[str, str]]:
    """Each digest of the text's wording, with the words it stands for. A digest is the first 40 bits of SHA-256
    over the words in lower case, joined by spaces: among ten thousand runs, the chance that one meets one of two
    thousand digests by accident is 2 in 100 000."""
    for sentence in re.split(r"[.;:]\s*(?=\S)|[.;:]?$", text):
        words = re.findall(r"[a-z0-9]+", sentence.lower())
        if len(words) < SENTENCE_WORDS_MIN:
            continue
        for start in range(max(1, len(words) - RUN_WORDS + 1)):
            run = " ".join(words[start : start + RUN_WORDS])
            yield hashlib.sha256(run.encode()).hexdigest()[:10], run


def reference_wording(path: Path = REFERENCE) -> frozenset[str]:
    """The digests of the reference's wording."""
    return frozenset(line for line in path.read_text().splitlines() if not line.startswith("#"))


def copied(text: str, reference: frozenset[str]) -> str | None:
    """The first run of words that the text has in common with the reference, or None."""
    return next((run for digest, run in digests(text) if digest in reference), None)
