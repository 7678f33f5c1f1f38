"""Flat JSON is written as the library writes it, and read as the library reads it, or not at all."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pyjs.core.flat_json import read_flat, write_flat

CONNECT = (
    b'{"verbose":false,"pedantic":false,"user":"a","pass":"b, c: {d}","lang":"go","version":"1.31.0","protocol":1,'
    b'"echo":true,"headers":true,"no_responders":true,"nkey":null,"tls_required": false}'
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
PIECES = [
    "{",
    "}",
    '"',
    ":",
    ",",
    " ",
    "a",
    "b",
    "true",
    "null",
    "1",
    "0",
    "-",
    ".",
    "[",
    "]",
    "\\",
    "\t",
    "é",
]


@pytest.mark.parametrize(
    "line",
    [
        CONNECT,
        CONNECT.replace(b",", b", ").replace(b":", b" : "),
        b"{}",
        b" { } ",
        b'{"a":0}',
        b'{"a":"","b":123456789012345678}',
        b'{"":""}',
    ],
)
def test_what_clients_send_is_plain(line: bytes) -> None:
    found = read_flat(line)

    assert found is not None
    assert list(found.items()) == list(orjson.loads(line).items())


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"[]",
        b"{,}",
        b'{"a"}',
        b'{"a":}',
        b'{"a":,"b":1}',
        b'{"a":1,}',
        b'{"a":1 2}',
        b'{"a":1,2,"b":3}',
        b'{"a":01}',
        b'{"a":True}',
        b'{"a" "b"}',
        b'{"a":"b}',
        b'{"a":"b"c}',
        b'{"a":"b" "c":1}',
        b'{"a":1:2}',
        b"{a:1}",
        b'{"a":1}}',
        b'x{"a":1}',
        b'{"a":1}\r',
    ],
)
def test_what_is_wrong_is_left_to_the_library(line: bytes) -> None:
    assert read_flat(line) is None


@pytest.mark.parametrize(
    "line",
    [
        '{"a":"é"}'.encode(),
        b'{"a":"\\n"}',
        b'{"a":1.5}',
        b'{"a":-1}',
        b'{"a":{}}',
        b'{"a":[1]}',
        b'{"a":1,"a":2}',
        b'{\t"a":1}',
        b'{"a":1234567890123456789}',
    ],
)
def test_what_is_not_plain_is_left_to_the_library(line: bytes) -> None:
    assert isinstance(orjson.loads(line), dict)
    assert read_flat(line) is None


@given(st.lists(st.sampled_from(PIECES)).map("".join))
@example('{"a":1,"b":"1"}')
def test_nothing_is_read_otherwise_than_by_the_library(text: str) -> None:
    found = read_flat(text.encode())

    if found is not None:
        assert list(found.items()) == list(orjson.loads(text).items())


@given(
    st.dictionaries(
        st.text("abc"),
        st.one_of(
            st.none(), st.booleans(), st.integers(0, 10**18 - 1), st.text(st.characters(codec="ascii"))
        ),
    ),
    st.sampled_from([(",", ":"), (", ", ": ")]),
)
def test_an_object_is_read_as_the_library_reads_it(
    fields: dict[str, object], separators: tuple[str, str]
) -> None:
    line = separators[0].join(
        f"{orjson.dumps(name).decode()}{separators[1]}{orjson.dumps(value).decode()}"
        for name, value in fields.items()
    )
    texts = [value for value in fields.values() if isinstance(value, str)]
    plain = all(text.isprintable() and not set(text) & set('"\\') for text in texts)

    assert read_flat(f"{{{line}}}".encode()) == (fields if plain else None)


@given(st.dictionaries(st.text("ab_"), st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), TEXT)))
@example({"name": '"quoted" \\ \x00\x1f\b\t\n\f\r\x7f\u2028é\U0001f600'})
def test_an_object_is_written_as_the_library_writes_it(fields: dict[str, object]) -> None:
    assert write_flat(fields) == orjson.dumps(fields)
