"""Strict decoding of JSON: its error texts are those of nats-server 2.15.1."""

from __future__ import annotations

import pytest

from pyjs.base.gotext import moment_text
from pyjs.jetstream.config import json_strict as js
from pyjs.jetstream.config.json_strict import JsonFault, Struct, decode, parse_time_ns

PLACEMENT = Struct("Placement", {"cluster": js.STRING, "tags": js.STRINGS})
SOURCE = Struct("StreamSource", {"name": js.STRING, "opt_start_time": js.TIME})
REQUEST = Struct(
    "StreamConfigRequest",
    {
        "name": js.STRING,
        "subjects": js.STRINGS,
        "retention": js.enum("limits", "interest", "workqueue"),
        "compression": js.enum("none", "s2", unknown_text="unknown compression algorithm"),
        "max_msgs": js.INT64,
        "max_msg_size": js.INT32,
        "first_seq": js.UINT64,
        "max_age": js.DURATION,
        "sealed": js.BOOL,
        "placement": js.struct(PLACEMENT),
        "mirror": js.struct(SOURCE),
        "sources": js.structs(SOURCE),
        "metadata": js.STRING_MAP,
    },
)
FIELD = "json: cannot unmarshal {} into Go struct field StreamConfigRequest.{}"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("x", "invalid character 'x' looking for beginning of value at offset 1"),
        ("\0", "invalid character '\\x00' looking for beginning of value at offset 1"),
        ("é", "invalid character 'é' looking for beginning of value at offset 2"),
        ('{"a":é}', "invalid character 'é' looking for beginning of value at offset 7"),
        ("{", "unexpected EOF"),
        ('{"name"', "unexpected EOF"),
        ('{"name":"A', "unexpected EOF"),
        ("{b", "invalid character 'b' looking for beginning of object key string at offset 2"),
        ("{'n':1}", "invalid character '\\'' looking for beginning of object key string at offset 2"),
        ('{"name":"A",}', "invalid character '}' looking for beginning of object key string at offset 13"),
        ('{"name":"A"} x', "invalid character 'x' looking for beginning of value at offset 14"),
        ('{"name" "A"}', "invalid character '\"' after object key at offset 9"),
        ('{"name":"A" "b":1}', "invalid character '\"' after object key:value pair at offset 13"),
        ("[1 2]", "invalid character '2' after array element at offset 4"),
        ('{"name":tru}', "invalid character '}' in literal true (expecting 'e') at offset 12"),
        ('{"name":"A","max_msgs":01}', "invalid character '1' after object key:value pair at offset 25"),
        ('{"name":"A","max_msgs":-}', "invalid character '}' in numeric literal at offset 25"),
        ('{"name":"A","max_msgs":1.}', "invalid character '}' in numeric literal at offset 26"),
        ('{"name":"A\\q"}', "invalid escape sequence `\\q` in string at offset 12"),
        ('{"name":"A\x01"}', "invalid character '\\x01' in string at offset 11"),
        ('{"name":"\\u12x4"}', "invalid escape sequence `\\u12x` in string at offset 14"),
    ],
)
def test_syntax_faults_read_as_the_peer_words_them(body: str, text: str) -> None:
    with pytest.raises(JsonFault) as fault:
        decode(body.encode(), REQUEST)
    assert str(fault.value) == text


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("[]", "json: cannot unmarshal array into Go value of type server.StreamConfigRequest"),
        ("5", "json: cannot unmarshal number into Go value of type server.StreamConfigRequest"),
        ("true", "json: cannot unmarshal bool into Go value of type server.StreamConfigRequest"),
        ('{"name":5}', FIELD.format("number", "name of type string")),
        ('{"max_msgs":"x"}', FIELD.format("string", "max_msgs of type int64")),
        ('{"max_msgs":1.5}', FIELD.format("number 1.5", "max_msgs of type int64")),
        ('{"max_msgs":1e3}', FIELD.format("number 1e3", "max_msgs of type int64")),
        (
            '{"max_msgs":9223372036854775808}',
            FIELD.format("number 9223372036854775808", "max_msgs of type int64"),
        ),
        ('{"max_msg_size":2147483648}', FIELD.format("number 2147483648", "max_msg_size of type int32")),
        ('{"first_seq":-1}', FIELD.format("number -1", "first_seq of type uint64")),
        ('{"max_age":"1s"}', FIELD.format("string", "max_age of type time.Duration")),
        ('{"max_msgs":{}}', FIELD.format("object", "max_msgs of type int64")),
        ('{"sealed":1}', FIELD.format("number", "sealed of type bool")),
        ('{"subjects":"x"}', FIELD.format("string", "subjects of type []string")),
        (
            '{"subjects":["x",5]}',
            "json: cannot unmarshal number into StreamConfigRequest.subjects.1 of type string",
        ),
        ('{"placement":5}', FIELD.format("number", "placement of type server.Placement")),
        ('{"placement":{"cluster":5}}', FIELD.format("number", "placement.cluster of type string")),
        ('{"sources":[{"name":5}]}', FIELD.format("number", "sources.0.name of type string")),
        ('{"metadata":5}', FIELD.format("number", "metadata of type map[string]string")),
        ('{"metadata":{"a":5}}', FIELD.format("number", "metadata.a of type string")),
        (
            '{"mirror":{"opt_start_time":5}}',
            FIELD.format("number", "mirror.opt_start_time of type time.Time"),
        ),
        ('{"retention":"zz"}', 'can not unmarshal "\\"zz\\""'),
        ('{"Retention":5}', 'can not unmarshal "5"'),
        ('{"retention":null}', 'can not unmarshal "null"'),
        ('{"compression":"zz"}', "unknown compression algorithm"),
        ('{"compression":5}', "json: cannot unmarshal number into Go value of type string"),
        ('{"foo":1}', 'json: unknown field "foo"'),
        ('{"placement":{"foo":5}}', 'json: unknown field "foo"'),
        ('{"foo":1,"name":5,"retention":"zz"}', 'json: unknown field "foo"'),
        ('{"name":5,"foo":1}', FIELD.format("number", "name of type string")),
    ],
)
def test_the_first_fault_in_the_document_is_reported(body: str, text: str) -> None:
    with pytest.raises(JsonFault) as fault:
        decode(body.encode(), REQUEST)
    assert str(fault.value) == text


DEEP = 10_000  # levels of nesting that nats-server accepts


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_a_body_is_refused_where_it_is_deeper_than_the_peer_reads(opening: str) -> None:
    with pytest.raises(JsonFault) as fault:
        decode(('{"name":"A","subjects":' + opening * DEEP).encode(), REQUEST)
    at = 23 + len(opening) * (DEEP - 1) + 1
    assert str(fault.value) == f"exceeded max depth at offset {at}"
    assert fault.value.lenient_text() == "exceeded max depth"


@pytest.mark.parametrize("depth", [1_000, 1_100, DEEP - 1])
def test_what_is_deep_is_named_by_its_kind_and_its_field(depth: int) -> None:
    lists, objects = "[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth
    with pytest.raises(
        JsonFault, match=r"cannot unmarshal object into Go struct field .*name of type string"
    ):
        decode(f'{{"name":{objects}}}'.encode(), REQUEST)
    with pytest.raises(JsonFault, match='unknown field "x"'):
        decode(f'{{"x":{lists}}}'.encode(), REQUEST)
    assert decode(f'{{"x":{lists},"name":"A"}}'.encode(), REQUEST, strict=False) == {"name": "A"}


def test_a_body_that_only_opens_ends_too_early() -> None:
    with pytest.raises(JsonFault, match="unexpected EOF"):
        decode(b"[" * DEEP, REQUEST)


@pytest.mark.parametrize(
    "number", ["9" * 5_000, "-" + "9" * 100_000, "1" + "0" * 5_000 + "e-5000", "0." + "1" * 5_000]
)
def test_a_number_of_any_length_is_answered_with_its_digits(number: str) -> None:
    with pytest.raises(JsonFault) as fault:
        decode(f'{{"max_msgs":{number}}}'.encode(), REQUEST)
    assert str(fault.value) == FIELD.format(f"number {number}", "max_msgs of type int64")
    assert decode(f'{{"x":{number}}}'.encode(), REQUEST, strict=False) == {}


@pytest.mark.parametrize("number", ["18446744073709551615", "12345678901234567890", "0", "7"])
def test_unsigned_numbers_reach_to_64_bits(number: str) -> None:
    assert decode(f'{{"first_seq":{number}}}{{}}'.encode(), REQUEST) == {"first_seq": int(number)}


def test_minus_zero_is_no_unsigned_number() -> None:
    assert decode(b'{"max_msgs":-0,"first_seq":0}', REQUEST) == {"max_msgs": 0, "first_seq": 0}
    with pytest.raises(JsonFault, match=r"cannot unmarshal number -0 into .*first_seq of type uint64"):
        decode(b'{"first_seq":-0}', REQUEST)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"\xff", "invalid character '\\xff' looking for beginning of value at offset 1"),
        (b'{"name":\xe2\x82}', "invalid character '\\xe2' looking for beginning of value at offset 9"),
        (b'{"a":\xed\xa0\x80}', "invalid character '\\xed' looking for beginning of value at offset 6"),
        (b'{"name":tr\xff}', "invalid character '\\xff' in literal true (expecting 'u') at offset 11"),
        (
            b'\xef\xbb\xbf{"name":"A"}',
            "invalid character '\\ufeff' looking for beginning of value at offset 3",
        ),
        (b'{"name":\xc2\x80}', "invalid character '\\u0080' looking for beginning of value at offset 10"),
        (b'{"name":"\\\xff"}', 'invalid escape sequence "\\\\\\xff" in string at offset 11'),
        (
            b'{"name":5} [[[',
            "json: cannot unmarshal number into Go struct field StreamConfigRequest.name of type string",
        ),
    ],
)
def test_bytes_that_are_no_text_are_named_as_the_peer_names_them(body: bytes, text: str) -> None:
    with pytest.raises(JsonFault) as fault:
        decode(body, REQUEST)
    assert str(fault.value) == text


def test_each_byte_that_is_no_text_is_one_replacement_character() -> None:
    body = b'{"name":"a\xe2\x82b\xf0\x9f\x98c\xed\xa0\x80d\xff\xfe"}'
    three = "\ufffd" * 3
    assert decode(body, REQUEST) == {"name": f"a\ufffd\ufffdb{three}c{three}d\ufffd\ufffd"}


@pytest.mark.parametrize("tail", [b"x", b"", b',"\\ud800"]'])
def test_a_megabyte_that_is_wrong_or_odd_at_its_end_is_read_in_one_pass(tail: bytes) -> None:
    body = b'{"subjects":["' + b'","'.join([b"a"] * 250_000) + b'"' + tail
    with pytest.raises(JsonFault):
        decode(body, REQUEST)


@pytest.mark.parametrize(
    "text",
    [
        "0000-01-01T00:00:00Z",
        "0000-02-29T23:59:59.5Z",
        "0001-01-01T00:00:00Z",
        "1677-09-21T00:12:43.145224191Z",
        "1969-12-31T23:59:59.999999999Z",
        "2262-04-11T23:47:16.854775808Z",
        "9999-12-31T23:59:59.999999999Z",
    ],
)
def test_times_of_ten_thousand_years_are_read_and_shown(text: str) -> None:
    assert moment_text(parse_time_ns(text)) == text


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("0000-01-01T00:00:00+23:59", "0000-01-01T00:00:00Z"),
        ("9999-12-31T23:59:59-23:59", "9999-12-31T23:59:59.999999999Z"),
        ("2024-01-01T00:00:00,5Z", "2024-01-01T00:00:00.5Z"),
        (f"2024-01-01T00:00:00.{'1' * 5_000}Z", "2024-01-01T00:00:00.111111111Z"),
    ],
)
def test_times_at_the_edges_are_cut_there(given: str, shown: str) -> None:
    assert moment_text(parse_time_ns(given)) == shown


@pytest.mark.parametrize(
    "text",
    [
        "2024-01-01t00:00:00Z",
        "2024-01-01T00:00:00z",
        "\uff12\uff10\uff12\uff14-01-01T00:00:00Z",
        "2024-02-30T00:00:00Z",
    ],
)
def test_times_in_other_letters_are_none(text: str) -> None:
    with pytest.raises(ValueError):
        parse_time_ns(text)


def test_a_time_that_is_no_time_is_shown_byte_by_byte() -> None:
    with pytest.raises(
        JsonFault, match=r'parsing time "\\xc3\\xa9" as .*cannot parse "\\xc3\\xa9" as "2006"'
    ):
        decode('{"mirror":{"opt_start_time":"é"}}'.encode(), REQUEST)


def test_a_bad_time_names_the_layout() -> None:
    with pytest.raises(JsonFault, match='parsing time "zz" as "2006-01-02T15:04:05Z07:00"'):
        decode(b'{"mirror":{"opt_start_time":"zz"}}', REQUEST)


@pytest.mark.parametrize("body", [b"", b"  ", b"null"])
def test_an_empty_body_sets_nothing(body: bytes) -> None:
    assert decode(body, REQUEST) == {}


def test_names_match_without_regard_to_case() -> None:
    assert decode(b'{"NAME":"A","max_MSGS":5}', REQUEST) == {"name": "A", "max_msgs": 5}


def test_null_leaves_a_field_unset() -> None:
    assert decode(b'{"name":null,"subjects":[null,"a"],"metadata":{"a":null}}', REQUEST) == {
        "subjects": ["", "a"],
        "metadata": {},
    }


def test_objects_in_a_row_are_merged() -> None:
    assert decode(b'{"name":"A"} {"sealed":true}', REQUEST) == {"name": "A", "sealed": True}


@pytest.mark.parametrize(
    ("text", "meant"),
    [(r"\ud800", "\ufffd"), (r"a\ude00b", "a\ufffdb"), (r"\ud83d\ud83d\ude00", "\ufffd\U0001f600")],
)
def test_half_of_a_pair_is_a_replacement_character(text: str, meant: str) -> None:
    assert decode(b'{"name":"%b"}' % text.encode(), REQUEST) == {"name": meant}


def test_values_that_only_the_slow_scanner_reads_survive() -> None:
    assert decode(b'{"name":"\\u0041\\n\\/"}{"max_msgs":-15}{"sealed":false,"sources":[]}', REQUEST) == {
        "name": "A\n/",
        "max_msgs": -15,
        "sealed": False,
        "sources": [],
    }


def test_unknown_fields_are_left_out_when_not_strict() -> None:
    assert decode(b'{"foo":1,"name":"A"}', REQUEST, strict=False) == {"name": "A"}


def test_times_are_nanoseconds_since_the_epoch() -> None:
    assert parse_time_ns("1970-01-01T00:00:01Z") == 1_000_000_000
    assert parse_time_ns("1970-01-01T01:00:00.000000005+01:00") == 5
    assert parse_time_ns("2024-05-01T10:00:00.123456789Z") == 1714557600123456789
    for bad in ("2024", "2024-05-01 10:00:00Z", "2024-05-01T10:00:00", "2024-05-01T10:00:00.5+1"):
        with pytest.raises(ValueError):
            parse_time_ns(bad)
