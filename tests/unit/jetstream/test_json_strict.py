"""Strict decoding: error texts as seen from nats-server 2.15.1."""

from __future__ import annotations

import pytest

from pyjs.jetstream import json_strict as js
from pyjs.jetstream.json_strict import JsonFault, Struct, decode, parse_time_ns

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
        "ratio": js.Kind("float64"),
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
        ('{"ratio":"x"}', FIELD.format("string", "ratio of type float64")),
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
    assert decode(b'{"name":"\\u0041\\n\\/"}{"ratio":1.5e1}{"sealed":false,"sources":[]}', REQUEST) == {
        "name": "A\n/",
        "ratio": 15.0,
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
