"""The page of detectors, from the tables in `terraflow/classify/detectors/`: a row a detector, a row a token's issuer.

What a detector asks for is said here, by the function that decides it: a detector without a sentence, and a sentence
without a detector, fail.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from terraflow.classify.detectors import DETECTORS, Detector, bank, cards, contact, national, secrets
from terraflow.classify.detectors.tokens import ISSUED, TOKENS, Token

INTRODUCTION = """# What is detected

<!-- Generated from terraflow/classify/detectors/ by `make fix`. -->

Before a request is decided on, every string in it is read for sensitive content: as it stands and decoded (base64,
percent signs, character references, look-alike letters), and joined with its neighbours, since a value may be spread
over messages. What is found gives the request its types and raises its [data class](index.md#words); the evidence
holds the detectors' names and how often each found something, never the text.

A detector counts what is certain enough to refuse a request for. It misses what is written in ways that it does not
know, and now and then it counts what is only shaped alike. That lowers risk; it proves nothing about a request.

**Not detected**: names of people, postal addresses, dates of birth, national numbers that are not listed here, and
anything about health. No detector gives the type `phi`: whoever sends such content declares it
(`x-terraflow-sensitive-types: phi`, see [the chat API](api.md)), and a contract can demand a declared class
(`require_class`)."""

SAYS = {
    cards.locate_solid: "13 to 19 digits without separators: an issuer's prefix and length, and the Luhn digit",
    cards.locate_grouped: "the same in groups of four, or as 4-6-5 and 4-6-4, with one separator between groups",
    cards.locate_scattered: "the same in groups of one to three digits, if the whole run of digits is the card",
    bank.locate_iban: "a country's code with that country's length and structure, and check digits mod 97",
    national.locate_ssn: "digits grouped 3-2-4 with one kind of separator, of numbers that can have been issued",
    national.locate_bare_ssn: "nine bare digits near one of its words",
    national.locate_aadhaar: "digits grouped 4-4-4 from 2 on, with the Verhoeff digit",
    national.locate_bare_aadhaar: "twelve bare digits with the Verhoeff digit, near one of its words",
    contact.locate_email: "a local part, `@`, and a host with a top-level domain of letters; no user part of a URL",
    contact.locate_international: "`+`, a country's code, and 8 to 15 digits in all",
    contact.locate_north_american: "ten digits written 3-3-4, after 1 or not; spaces alone need one of its words",
    contact.locate_grouped: "the grouped forms of the United Kingdom and of India",
    contact.locate_bare: "ten or eleven bare digits near one of its words",
    secrets.locate_private_key: "a PEM or PGP private key's armour line with 16 characters of its body",
    secrets.locate_putty_key: "the head of a PuTTY key file",
    secrets.locate_jwt: "a JSON web token of three parts whose header names an algorithm",
    secrets.locate_url_password: "`scheme://user:password@host`, unless the password is a placeholder",
    secrets.locate_connection_password: "`Password=` or `Pwd=` beside a key that names a server; no placeholder",
    secrets.locate_azure_key: "`AccountKey=` or `SharedAccessKey=` with base64 of 32 or 64 bytes",
    secrets.locate_azure_client_secret: "three characters, a digit, `Q~` and 31 to 34 more",
    secrets.locate_aws_secret: "forty characters of base64 near a word such as `aws` or `secret`",
    secrets.locate_service_account: "a Google service account's key file with its private key or the key's id",
    secrets.locate_telegram: "a bot's id, a colon, and 35 characters from `AA` on",
}
"""What each deciding function asks for."""

WORDS = (
    ("payment_card", cards.CARD_WORDS, cards.OTHER_WORDS),
    ("us_ssn", national.SSN_WORDS, national.OTHER_WORDS),
    ("aadhaar", national.AADHAAR_WORDS, national.OTHER_WORDS),
    ("phone", contact.PHONE_WORDS, contact.OTHER_WORDS),
)


def page() -> str:
    """The whole page, as Markdown."""
    return "\n".join((INTRODUCTION, *_structures(), *_words(), *_tokens(), ""))


def structured() -> tuple[Detector, ...]:
    """The detectors that are no row of the table of tokens."""
    return tuple(row for row in DETECTORS if row not in ISSUED)


def said(row: Detector) -> str:
    """The sentence of a detector. Raises KeyError for one without."""
    return SAYS[row.locate]


def _structures() -> Iterator[str]:
    yield "\n## Numbers, addresses and secrets\n"
    yield "| detector | type | what counts |"
    yield "| --- | --- | --- |"
    for name, rows in groupby(structured(), key=lambda row: row.name):
        forms = list(rows)
        yield f"| `{name}` | `{forms[0].type.value}` | {'; '.join(said(row) for row in forms)} |"
    countries = ", ".join(sorted(bank.STRUCTURES.split()[::2]))
    yield f"\nIBANs of: {countries}."
    issuers = ", ".join(dict.fromkeys(issuer for issuer, *_ in cards.ISSUERS))
    yield f"\nCards of: {issuers}."


def _words() -> Iterator[str]:
    yield "\n## Words that decide\n"
    yield "Some forms are too common to count alone: they need one of the first words near them, or count only without"
    yield "one of the second just before.\n"
    yield "| detector | words for it | words that speak of something else |"
    yield "| --- | --- | --- |"
    for name, words, others in WORDS:
        yield f"| `{name}` | {_listed(words)} | {_listed(others)} |"


def _listed(words: Iterable[bytes]) -> str:
    return ", ".join(sorted(word.decode() for word in words))


def _tokens() -> Iterator[str]:
    yield "\n## Credentials that their issuers mark\n"
    yield "All of type `credentials`. The length is that of what follows the prefix, which must also look drawn at"
    yield "random, or carry the issuer's check sum: a placeholder such as `xxxx` is none.\n"
    yield "| detector | prefix and length |"
    yield "| --- | --- |"
    for name, rows in groupby(TOKENS, key=lambda row: row.name):
        yield f"| `{name}` | {', '.join(map(_form, rows))} |"


def _form(row: Token) -> str:
    length = str(row.least) if row.least == row.most else f"{row.least}–{row.most}"
    return f"`{row.prefix.decode()}` {length}"
