import json

import pytest

from pyjs.wire.secrets import without_secrets

JWT = "eyJ0eXAiOiJKV1QiLCJhbGciOiJlZDI1NTE5LW5rZXkifQ.eyJqdGkiOiJ4In0.c2lnbmF0dXJl"
SEED = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ('CONNECT {"user":"u","pass":"p"}', 'CONNECT {"user":"u","pass":"[REDACTED]"}'),
        (r'CONNECT {"pass":"a\"p"}', 'CONNECT {"pass":"[REDACTED]"}'),
        ('CONNECT {"PASS" : "p","name":"n"}', 'CONNECT {"PASS" : "[REDACTED]","name":"n"}'),
        ('CONNECT {"pass":"p}', 'CONNECT {"pass":"[REDACTED]'),
        ('CONNECT {"pass":"p\\', 'CONNECT {"pass":"[REDACTED]\\'),
        ('CONNECT {"pass":17}', 'CONNECT {"pass":[REDACTED]}'),
        ("CONNECT {pass: p}", "CONNECT {pass: [REDACTED]}"),
        ('CONNECT {"password":"p"}', 'CONNECT {"password":"[REDACTED]"}'),
        ('CONNECT {"auth_token":"p","nkey":"p"}', 'CONNECT {"auth_token":"[REDACTED]","nkey":"[REDACTED]"}'),
        (r'CONNECT {"p\u0061ss":"p"}', "CONNECT [REDACTED]"),
        (f'CONNECT {{"name":"{SEED}"}}', 'CONNECT {"name":"[REDACTED]"}'),
        (f"PUB a {JWT}", "PUB a [REDACTED]"),
        (f'{{"password":"app","creds":"{JWT}"}}', '{"password":"app","creds":"[REDACTED]"}'),
        (f"{JWT[:60]}", "[REDACTED]"),
        (
            'CONNECT {"user":"passenger","name":"compass: n"}',
            'CONNECT {"user":"passenger","name":"compass: n"}',
        ),
        ("SUB SALES.EUROPE 1", "SUB SALES.EUROPE 1"),
    ],
)
def test_a_secret_is_not_shown(line: str, shown: str) -> None:
    assert without_secrets(line) == shown


def test_a_long_hostile_line_takes_no_long_time() -> None:
    for part in ('"pass"', '"pass":', '"\\u', "eyJ.", "SU", 'pass:"\\', '"pass":"\\"'):
        without_secrets("CONNECT " + part * (65_536 // len(part)))
    without_secrets('CONNECT "' + "\\u" * 32_768)


def test_the_rest_of_a_line_remains_json() -> None:
    line = json.dumps({"user": "u", "pass": "p", "sig": "s", "jwt": JWT, "lang": "python"})

    shown = json.loads(without_secrets(f"CONNECT {line}").removeprefix("CONNECT "))

    assert shown["lang"] == "python"
    assert {name for name, value in shown.items() if value == "[REDACTED]"} == {"pass", "sig", "jwt"}
