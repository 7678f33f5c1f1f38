from pyjs.monitor.json_text import compact_json, number, pretty_json, text


def test_json_is_indented_and_escaped_as_go_does() -> None:
    value = {"a": "<é&>", "b": [], "c": {}, "d": [1, 2.5], "e": 18446744073709551615}

    assert pretty_json(value).decode() == (
        '{\n  "a": "\\u003cé\\u0026\\u003e",\n  "b": [],\n  "c": {},\n  "d": [\n    1,\n    2.5\n  ],\n'
        '  "e": 18446744073709551615\n}'
    )


def test_compact_json_has_no_spaces() -> None:
    assert compact_json({"status": "ok", "n": [1]}) == b'{"status":"ok","n":[1]}'


def test_a_whole_float_is_written_without_a_point() -> None:
    assert (number(2.0), number(0.5)) == (2, 0.5)
    assert isinstance(number(2.0), int)


def test_bytes_that_are_no_text_are_replaced() -> None:
    assert text(b"a\xffb") == "a\ufffdb"
