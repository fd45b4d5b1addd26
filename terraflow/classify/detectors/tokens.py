"""Credentials that their issuers marked with a prefix: one row a format.

1. A token is a prefix and a run of an alphabet whose length lies between two bounds.
2. The body must look drawn at random (`_random`), so that a placeholder ("xxxx…") or a name in snake case is
   none; where the issuer adds a check sum, a right one is enough.
3. `glued` says whether letters may touch the prefix from the left, as when a token is split over two
   messages.

Facts (prefix, alphabet, length): the issuers' own documents and announcements, and GitHub's list of
secret-scanning partners. Lengths are taken generously where issuers have changed them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from terraflow.classify.checksums import crc32_base62
from terraflow.classify.detectors.row import Detector
from terraflow.classify.passage import (
    ALNUM,
    BASE32,
    DIGITS,
    HEX,
    HEX_LOWER,
    LOWER,
    UPPER,
    URLSAFE,
    WORD,
    Span,
    run_stop,
)
from terraflow.core.types import SensitiveType

_UPPER_DIGITS, _URLSAFE_DOT, _URLSAFE_PAD = UPPER + DIGITS, URLSAFE + b".", URLSAFE + b"="


def _kinds(body: bytes) -> int:
    """How many of lower-case letters, upper-case letters and digits the body has."""
    return sum(len(body.translate(None, kind)) < len(body) for kind in (LOWER, UPPER, DIGITS))


def _random(body: bytes) -> bool:
    return len(set(body)) >= 7 and _kinds(body) >= 2


def _checked(body: bytes) -> bool:
    return crc32_base62(body) or _random(body)


def _any_letters(body: bytes) -> bool:
    return len(set(body)) >= 10 and (_kinds(body) >= 2 or len(set(body)) >= 14)


def _three_kinds(body: bytes) -> bool:
    return _kinds(body) == 3 and len(set(body)) >= 10


def _own_key(body: bytes) -> bool:
    return _three_kinds(body) or (not body.strip(HEX_LOWER) and len(body) >= 32 and _random(body))


def _openai(body: bytes) -> bool:
    return b"T3BlbkFJ" in body or (len(body) >= 32 and _three_kinds(body))


def _sendgrid(body: bytes) -> bool:
    parts = body.split(b".")
    return len(parts) == 2 and len(parts[0]) >= 16 and len(parts[1]) >= 32 and _random(body)


class Token(NamedTuple):
    """A credential's format. Lengths are of the body, the prefix not counted."""

    name: str
    prefix: bytes
    alphabet: bytes
    least: int
    most: int
    check: Callable[[bytes], bool] = _random
    glued: bool = True


TOKENS = (
    Token("aws_access_key", b"AKIA", BASE32, 16, 16),
    Token("aws_access_key", b"ASIA", BASE32, 16, 16),
    Token("aws_access_key", b"ABIA", BASE32, 16, 16),
    Token("aws_access_key", b"ACCA", BASE32, 16, 16),
    Token("github_token", b"ghp_", ALNUM, 36, 36, _checked),
    Token("github_token", b"gho_", ALNUM, 36, 36, _checked),
    Token("github_token", b"ghu_", ALNUM, 36, 36, _checked),
    Token("github_token", b"ghs_", ALNUM, 36, 36, _checked),
    Token("github_token", b"ghr_", ALNUM, 36, 76, _checked),
    Token("github_token", b"github_pat_", WORD, 36, 90),
    Token("gitlab_token", b"glpat-", _URLSAFE_DOT, 20, 300),
    Token("gitlab_token", b"gldt-", _URLSAFE_DOT, 20, 300),
    Token("gitlab_token", b"glrt-", _URLSAFE_DOT, 20, 300),
    Token("gitlab_token", b"glptt-", HEX_LOWER, 40, 40),
    Token("slack_token", b"xoxb-", URLSAFE, 20, 250),
    Token("slack_token", b"xoxp-", URLSAFE, 20, 250),
    Token("slack_token", b"xoxa-", URLSAFE, 20, 250),
    Token("slack_token", b"xoxr-", URLSAFE, 20, 250),
    Token("slack_token", b"xoxs-", URLSAFE, 20, 250),
    Token("slack_token", b"xoxe-", URLSAFE, 20, 250),
    Token("slack_token", b"xoxe.xox", _URLSAFE_DOT, 20, 250),
    Token("slack_token", b"xapp-", URLSAFE, 20, 250),
    Token("slack_webhook", b"hooks.slack.com/services/T", ALNUM + b"/", 40, 60),
    Token("stripe_key", b"sk_live_", ALNUM, 16, 250),
    Token("stripe_key", b"rk_live_", ALNUM, 16, 250),
    Token("stripe_key", b"sk_test_", ALNUM, 16, 250),
    Token("stripe_key", b"rk_test_", ALNUM, 16, 250),
    Token("stripe_key", b"whsec_", ALNUM + b"+/", 24, 250),
    Token("openai_key", b"sk-proj-", URLSAFE, 20, 250),
    Token("openai_key", b"sk-svcacct-", URLSAFE, 20, 250),
    Token("openai_key", b"sk-admin-", URLSAFE, 20, 250),
    Token("openai_key", b"sk-", ALNUM, 20, 100, _openai, glued=False),
    Token("openrouter_key", b"sk-or-v1-", HEX_LOWER, 64, 64),
    Token("anthropic_key", b"sk-ant-", URLSAFE, 20, 250),
    Token("google_api_key", b"AIza", URLSAFE, 35, 35),
    Token("google_oauth", b"GOCSPX-", URLSAFE, 28, 28),
    Token("google_oauth", b"ya29.", URLSAFE, 30, 2000),
    Token("sendgrid_key", b"SG.", _URLSAFE_DOT, 50, 80, _sendgrid, glued=False),
    Token("twilio_key", b"SK", HEX_LOWER, 32, 32, glued=False),
    Token("twilio_key", b"AC", HEX_LOWER, 32, 32, glued=False),
    Token("npm_token", b"npm_", ALNUM, 36, 36, _checked),
    Token("pypi_token", b"pypi-AgE", URLSAFE, 50, 1000),
    Token("huggingface_token", b"hf_", ALNUM, 34, 40, _any_letters, glued=False),
    Token("digitalocean_token", b"dop_v1_", HEX_LOWER, 64, 64),
    Token("digitalocean_token", b"doo_v1_", HEX_LOWER, 64, 64),
    Token("digitalocean_token", b"dor_v1_", HEX_LOWER, 64, 64),
    Token("shopify_token", b"shpat_", HEX, 32, 32),
    Token("shopify_token", b"shpca_", HEX, 32, 32),
    Token("shopify_token", b"shppa_", HEX, 32, 32),
    Token("shopify_token", b"shpss_", HEX, 32, 32),
    Token("databricks_token", b"dapi", HEX_LOWER, 32, 32, glued=False),
    Token("vault_token", b"hvs.", URLSAFE, 24, 300),
    Token("vault_token", b"hvb.", URLSAFE, 24, 300),
    Token("mailgun_key", b"key-", HEX_LOWER, 32, 32, glued=False),
    Token("square_token", b"sq0atp-", URLSAFE, 22, 22),
    Token("square_token", b"sq0csp-", URLSAFE, 43, 43),
    Token("grafana_token", b"glsa_", WORD, 41, 41),
    Token("grafana_token", b"glc_", ALNUM + b"+/=", 32, 400),
    Token("linear_key", b"lin_api_", ALNUM, 40, 40),
    Token("notion_token", b"ntn_", ALNUM, 40, 60),
    Token("postman_key", b"PMAK-", HEX_LOWER + b"-", 59, 59),
    Token("groq_key", b"gsk_", ALNUM, 48, 60),
    Token("perplexity_key", b"pplx-", ALNUM, 40, 60),
    Token("xai_key", b"xai-", ALNUM, 70, 90),
    Token("replicate_token", b"r8_", ALNUM, 37, 37, glued=False),
    Token("newrelic_key", b"NRAK-", _UPPER_DIGITS, 27, 27),
    Token("atlassian_token", b"ATATT3", _URLSAFE_PAD, 60, 300),
    Token("age_key", b"AGE-SECRET-KEY-1", _UPPER_DIGITS, 58, 58),
    Token("terraflow_key", b"tf_", URLSAFE, 22, 100, _own_key, glued=False),
)


def _escaped(literal: bytes) -> bytes:
    return b"".join(bytes([c]) if c in WORD else b"\\" + bytes([c]) for c in literal)


def _locator(row: Token) -> Callable[[bytes, int], Span | None]:
    length = len(row.prefix)
    fences = DIGITS if row.glued else WORD + b"-"

    def locate(data: bytes, end: int) -> Span | None:
        start = end - length - row.least
        stop = run_stop(data, start + length, row.alphabet, row.most + 1)
        body = data[start + length : stop].rstrip(b".")
        if data[start - 1] in fences or len(body) > row.most or len(body) < row.least or not row.check(body):
            return None
        return start, start + length + len(body)

    return locate


def _detector(row: Token) -> Detector:
    anchor = _escaped(row.prefix) + b"[" + _escaped(row.alphabet) + b"]{%d}" % row.least
    return Detector(row.name, SensitiveType.CREDENTIALS, (anchor,), _locator(row))


ISSUED = tuple(map(_detector, TOKENS))
