"""Ordinary texts in which nothing may be found. Written for this test."""

from __future__ import annotations

import hashlib
import random
import uuid

import pytest

from terraflow.classify.scan import Scanner

ORDINARY = {
    "prose": "The ferry leaves at 9:30 and arrives at 11:45. Tickets cost 12.50 in 2024, up from 10.00 in 2019-2023.",
    "recipe": "Mix 250 g of flour, 3 eggs and 125 ml of milk; bake for 35-40 minutes at 180 degrees (350 F).",
    "question": "Can you explain what a payment card number is, and how the Luhn check works? Is it base 10?",
    "code": "def total(rows):\n    return sum(r['amount'] for r in rows if r['status'] == 'paid_and_settled')\n",
    "decorator": "@app.route('/v1/users/<int:user_id>')\n@pytest.mark.parametrize('x', [1, 2])\nclass A: ...",
    "shell": "git clone git@github.com:acme/shop.git && cd shop && npm install react@18.2.0 --save-exact",
    "imports": "from terraflow.classify.detectors.national import locate_bare_ssn as locator_of_the_bare_numbers",
    "sql": "SELECT id, created_at FROM orders WHERE created_at BETWEEN '2024-01-01' AND '2024-12-31' LIMIT 1000;",
    "address": "https://docs.example.com/en/latest/guides/configuration.html?highlight=timeouts#section-4-2",
    "isbn": "ISBN 978-3-16-148410-0, ISBN-13: 9783161484100, ISBN 0-306-40615-2",
    "orders": "Order number 4929 1234 5678 9013 was shipped; order #112-7654321-0987654; invoice 2024-000123-45.",
    "tracking": "Tracking number 1Z999AA10123456784, parcel 9400111899223197428490, ticket 123-45-6789",
    "times": "1700000000 1700000000123 1700000000123456 2024-05-01T12:30:45.123456Z +2024-05-01 12:30:45 UTC+05:30",
    "versions": "v1.2.3, 10.0.19045.3570, 127.0.0.1:8080, 192.168.100.200, fe80::1ff:fe23:4567:890a, 2.16.840.1.113883",
    "numbers": "0.4111111111111111, 3.141592653589793, 6.02214076e23, 1e-10, 299792458, 1,234,567.89, -273.15",
    "phones of nobody": "Dial 911 or 112; ext. 4455; code 555-2671; the years 1999-2003; chapters 10-12-14.",
    "table": "1001 2002 3003 4004 5005 6006 7007 8008 9009 1010\n4532 1023 5412 7751 6011 3530 4988 5105 5555 4222\n",
    "short groups": "12 34 56 78 90 12 34 56 78 90 12 34 56; 4 8 15 16 23 42; 101 202 303 404 505 606 707",
    "markdown": "| id | name |\n| --- | --- |\n| 10234 | bolts |\n\n* [link](https://example.com/a-b)\n\n`x = y % 20`",
    "html": "<p class=\"a\">Fish &amp; chips &#8211; 20&nbsp;%</p><img src='icon@2x.png' width=100 height=200>",
    "json": '{"id": 981237, "ok": true, "ratio": 0.25, "path": "C:\\\\temp\\\\new", "text": "line\\nbreak\\u00e9"}',
    "placeholders": "api_key = 'YOUR_API_KEY_HERE'; sk-xxxxxxxxxxxxxxxxxxxx; ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    "urls": "postgres://user:password@localhost/app, http://user@host/, https://host:8443/path@2, ftp://host",
    "talk of keys": "A PEM file starts with -----BEGIN PRIVATE KEY----- and an AWS key with AKIA; JWTs start with eyJ.",
    "german": "Über 1 200 Gäste kamen – „mehr als je zuvor“, sagte die Bürgermeisterin am 3. Oktober 2023.",
    "hindi": "यह एक साधारण वाक्य है जिसमें २०२४ और १२३ जैसी संख्याएँ हैं।",
    "chinese": "会议于２０２４年５月１日上午９点３０分举行，共有１２３４人参加。",
    "russian": "Совещание состоится 14 марта 2023 года в 9:30, будет 35 участников из 12 городов.",
    "emoji": "Great job 👍🏽👨‍👩‍👧‍👦 — see you at 5️⃣ o'clock! 🇩🇪 1️⃣2️⃣3️⃣",
    "formula": "E = mc^2; a+b=c; x+10000000; f(x)=3*x+12; 10^15 + 10^12; ~1.5e+10; sum(1..100)=5050",
    "snake case": "tf_keras_layers_dense_1_kernel_regularizer sk_learn_pipeline hf_transformers_tokenizer",
    "lock": "integrity sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NP8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg==",
}


@pytest.mark.parametrize("kind", ORDINARY)
def test_nothing_is_found_in_ordinary_text(scanner: Scanner, kind: str) -> None:
    assert scanner.scan([[], [ORDINARY[kind]]], bytes_max=100_000).counts == {}


def test_nothing_is_found_in_all_of_them_together(scanner: Scanner) -> None:
    findings = scanner.scan([[], list(ORDINARY.values())], bytes_max=100_000)
    assert findings.counts == {}


def test_nothing_is_found_in_digests_and_identifiers(scanner: Scanner) -> None:
    draw = random.Random(20)
    kinds = {
        "sha256": lambda: hashlib.sha256(draw.randbytes(8)).hexdigest(),
        "sha1": lambda: hashlib.sha1(draw.randbytes(8)).hexdigest(),
        "uuid": lambda: str(uuid.UUID(int=draw.getrandbits(128), version=4)),
        "microseconds": lambda: str(draw.randrange(1_600_000_000_000_000, 1_800_000_000_000_000)),
        "snowflake": lambda: str(draw.randrange(10**18, 19 * 10**17)),
        "fraction": lambda: repr(draw.random()),
        "years": lambda: f"{draw.randrange(1900, 2100)} {draw.randrange(1900, 2100)} {draw.randrange(1900, 2100)}",
        "date": lambda: f"{draw.randrange(1990, 2030)}-{draw.randrange(1, 13):02d}-{draw.randrange(1, 29):02d}",
    }
    found = {
        kind: scanner.scan([[], [f"see {make()}, and"]], bytes_max=10_000).counts
        for kind, make in kinds.items()
        for _ in range(400)
    }
    assert {kind for kind, counts in found.items() if counts} == set()
