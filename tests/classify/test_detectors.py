"""What each detector finds and leaves: generated values of the checksummed types, a sample of every other format."""

from __future__ import annotations

import random
import string

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from terraflow.classify import checksums
from terraflow.classify.detectors import DETECTORS
from terraflow.classify.detectors.cards import CARDS
from terraflow.classify.detectors.tokens import TOKENS
from terraflow.classify.scan import Scanner
from tests.classify import values

BOUND = 100_000
SCANNER = Scanner()
SENTENCES = st.sampled_from(["{}", "My number is {}, thanks.", "({})", '{{"value":"{}"}}', "see {}\nand go on"])


def counts(text: str, scanner: Scanner = SCANNER) -> dict[str, int]:
    return dict(scanner.scan([[], [text]], bytes_max=BOUND).counts)


@given(values.cards(), SENTENCES, st.sampled_from(["", " ", "-", "."]))
def test_every_valid_card_is_found(card: str, sentence: str, joint: str) -> None:
    assume(len(set(card)) > 1)
    assert "payment_card" in counts(sentence.format(values.grouped(card, joint)))


@given(values.ibans(), SENTENCES, st.sampled_from(["", " ", "-"]), st.booleans())
def test_every_valid_iban_is_found(iban: str, sentence: str, joint: str, lower: bool) -> None:
    written = values.grouped(iban.lower() if lower else iban, joint)
    assert counts(sentence.format(written)).get("iban") == 1


@given(values.aadhaars(), SENTENCES, st.sampled_from([" ", "-", "."]))
def test_every_grouped_aadhaar_is_found(aadhaar: str, sentence: str, joint: str) -> None:
    assert counts(sentence.format(values.grouped(aadhaar, joint))).get("aadhaar") == 1


@given(values.aadhaars())
def test_a_bare_aadhaar_counts_in_context_only(aadhaar: str) -> None:
    assert counts(f"Aadhaar no. {aadhaar}").get("aadhaar") == 1
    assert "aadhaar" not in counts(f"the value {aadhaar}")


@given(values.ssns(), SENTENCES)
def test_every_social_security_number_is_found(ssn: str, sentence: str) -> None:
    assert counts(sentence.format(ssn)).get("us_ssn") == 1
    assert counts(f"SSN: {ssn.replace('-', '')}").get("us_ssn") == 1
    assert "us_ssn" not in counts(f"the value {ssn.replace('-', '')}")


def one_digit_changed(value: str, place: int, by: int) -> str:
    places = [at for at, sign in enumerate(value) if sign.isdigit()]
    at = places[place % len(places)]
    return value[:at] + str((int(value[at]) + by) % 10) + value[at + 1 :]


@given(st.sampled_from(["payment_card", "iban", "aadhaar"]), st.data(), st.integers(0, 30), st.integers(1, 9))
@settings(max_examples=300)
def test_one_changed_digit_is_not_found(name: str, data: st.DataObject, place: int, by: int) -> None:
    changed = one_digit_changed(data.draw(values.VALUES[name]), place, by)
    assert name not in counts(f"the value {changed}")


@pytest.mark.parametrize("area", ["000", "666", "900", "987"])
def test_areas_never_issued_are_no_social_security_numbers(area: str) -> None:
    assert counts(f"SSN {area}-12-3456") == {}
    assert counts("SSN 123-00-3456") == {} == counts("SSN 123-45-0000")


@given(values.cards())
def test_a_planted_fault_in_luhn_is_seen(card: str) -> None:
    """The oracle above bites: a detector that takes any check digit finds what the real one leaves."""
    wrong = one_digit_changed(card, len(card) - 1, 1)
    assert "payment_card" in counts(f"the value {wrong}", PLANTED)
    assert "payment_card" not in counts(f"the value {wrong}")


PLANTED = Scanner([row._replace(locate=lambda data, end: (max(1, end - 17), end - 1)) for row in CARDS])


@given(st.text(string.digits, min_size=2, max_size=24))
def test_check_sums_agree_with_plain_formulas(digits: str) -> None:
    assert checksums.luhn(digits.encode()) == (values.luhn_sum(digits) % 10 == 0)
    assert checksums.verhoeff(digits.encode()) == (values.verhoeff_state(digits) == 0)


@given(values.ibans())
def test_mod_97_agrees_with_the_plain_formula(iban: str) -> None:
    assert checksums.mod97(iban.encode()) and values.iban_remainder(iban) == 1
    wrong = one_digit_changed(iban, 1, 1)
    assert not checksums.mod97(wrong.encode())


def test_the_published_github_token_has_a_right_check_sum() -> None:
    """The example of GitHub's announcement of its token format."""
    assert checksums.crc32_base62(b"zQWBuTSOoRi4A9spHcVY5ncnsDkxkJ0mLq17")
    assert not checksums.crc32_base62(b"zQWBuTSOoRi4A9spHcVY5ncnsDkxkJ0mLq18")


_OWN_BODY = {
    b"sk-": "aB3dE5fG7hI9jK1lM3nOT3BlbkFJ5pQ7rS9tU1vW3xY5zA7b",
    b"SG.": "ngeVfQFYQlKU0ufo8x5d1A.TwL2iGABf9DHoTf-09kqeF8tAmbihYzrnopKc-1s5cr",
    b"hooks.slack.com/services/T": "01ABCDEF23/B04GHIJKL56/aB3dE5fG7hI9jK1lM3nO5pQ7",
}


def token_of(row) -> str:
    """A body of the row's alphabet that looks drawn at random."""
    own = _OWN_BODY.get(row.prefix)
    if own is not None:
        return row.prefix.decode() + own
    signs = [chr(c) for c in sorted(set(row.alphabet)) if chr(c).isalnum()]
    return row.prefix.decode() + "".join(random.Random(11).choices(signs, k=row.least))


@pytest.mark.parametrize("row", TOKENS, ids=lambda row: row.prefix.decode())
def test_each_issued_token_is_found_and_its_placeholder_is_not(row) -> None:
    token = token_of(row)
    assert row.name in counts(f'key = "{token}"'), token
    assert row.name in counts(f"{token}")
    assert row.name not in counts(f'key = "{row.prefix.decode()}{"X" * row.least}"')
    assert row.name not in counts(f'key = "{token[: len(row.prefix) + row.least // 2]}"')


PEM = "-----BEGIN {}PRIVATE KEY{}-----\nMIIEowIBAAKCAQEAx4UbaDzY5xjW6hc9jwN0mX33XpTDVW/WnO3j\n"
JWT = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
GCP = '{"type": "service_account", "project_id": "p", "private_key_id": "0123456789abcdef0123456789abcdef01234567"}'
AZURE = "DefaultEndpointsProtocol=https;AccountName=x;AccountKey=" + "aB3dE5fG7hI9jK1lM3nO5" * 4 + "Qw==;"
AWS = "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
FOUND = [
    *[("private_key", PEM.format(kind, "")) for kind in ("", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED ", "DSA ")],
    ("private_key", PEM.format("PGP ", " BLOCK")),
    ("private_key", PEM.format("RSA ", "").replace("\n", "\\n")),
    ("private_key", "PuTTY-User-Key-File-3: ssh-ed25519"),
    ("jwt", f"Authorization: Bearer {JWT}"),
    ("url_password", "postgres://app:s3cr3t-word@db.internal:5432/app"),
    ("url_password", "mongodb+srv://admin:hunter2hunter2@cluster0.example.net"),
    ("url_password", "redis://:p4ssw0rd99@cache:6379/0"),
    ("url_password", "https://bob:Tr0ub4dor@host.example/path"),
    ("connection_string", "Server=tcp:db,1433;User ID=sa;Password=Sup3r!Secret;Encrypt=True"),
    ("azure_key", AZURE),
    ("azure_client_secret", "secret: aB38Q~dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW3xY5"),
    ("aws_secret_key", AWS),
    ("gcp_service_account", GCP),
    ("telegram_token", "bot 110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw1"),
    ("github_token", "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"),
    ("aws_access_key", "AKIAIOSFODNN7EXAMPLE"),
    ("email", "write to jane.doe+news@mail.example.co.uk."),
    ("email", "<o'brien@example.org>"),
    ("phone", "+1 (415) 555-2671. 5 apples"),
    ("phone", "+14155552671"),
    ("phone", "+44 20 7946 0958"),
    ("phone", "+91 98765 43210"),
    ("phone", "(415) 555-2671"),
    ("phone", "415-555-2671"),
    ("phone", "1.415.555.2671"),
    ("phone", "call 415 555 2671"),
    ("phone", "mobile: 9876543210"),
    ("phone", "020 7946 0958"),
    ("phone", "07700 900123"),
    ("phone", "(0161) 496 0123"),
    ("phone", "98765 43210"),
    ("us_ssn", "123 45 6789"),
    ("payment_card", "3782 822463 10005"),
    ("payment_card", "3056 930902 5904"),
    ("payment_card", "4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1"),
    ("payment_card", "41 11 11 11 11 11 11 11"),
    ("payment_card", "4111 1111 1111 1111 12/25 123"),
    ("payment_card", "card for order 4111111111111111"),
    ("payment_card", "ID4111111111111111"),
    ("iban", "GB82 WEST 1234 5698 7654 32"),
]


@pytest.mark.parametrize(("name", "text"), FOUND, ids=[f"{n}-{i}" for i, (n, _) in enumerate(FOUND)])
def test_each_other_format_is_found(name: str, text: str) -> None:
    assert name in counts(text)
    assert name in counts(f"before {text} after") or name == "connection_string"


LEFT = [
    ("payment_card", "order number 4111111111111111"),
    ("payment_card", "ISBN 4111111111111111"),
    ("payment_card", "ratio 0.4111111111111111"),
    ("payment_card", "a94111111111111111f3"),
    ("payment_card", "1001 2002 4111 1111 1111 1111 3003 4004 5005"),
    ("us_ssn", "order 123-45-6789"),
    ("us_ssn", "1-123-45-6789"),
    ("phone", "1700000000"),
    ("phone", "+2024-01-15 10:30:45"),
    ("phone", "version 415-555-2671-9"),
    ("email", "git@github.com:acme/shop.git"),
    ("email", "logo@2x.png"),
    ("email", "react@18.2.0"),
    ("private_key", "a file starts with -----BEGIN PRIVATE KEY----- and then the body"),
    ("jwt", "eyJub3RoaW5nIjoxfQ.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N"),
    ("url_password", "postgres://user:password@localhost/app"),
    ("url_password", "postgres://user:${DB_PASSWORD}@localhost/app"),
    ("url_password", "http://localhost:8080/a@b"),
    ("aws_secret_key", "the digest wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
    ("gcp_service_account", 'the "service_account" type has a private_key_id and a private_key'),
    ("terraflow_key", "tf_keras_layers_dense_kernel_regularizer"),
    ("openai_key", "sk-learn-based-pipelines-for-tabular-data"),
]


@pytest.mark.parametrize(("name", "text"), LEFT, ids=[f"{n}-{i}" for i, (n, _) in enumerate(LEFT)])
def test_what_only_resembles_a_value_is_left(name: str, text: str) -> None:
    assert name not in counts(text)


def test_every_row_of_the_table_has_been_found_above() -> None:
    tested = {name for name, _ in FOUND} | {row.name for row in TOKENS} | set(values.VALUES)
    assert {row.name for row in DETECTORS} == tested
