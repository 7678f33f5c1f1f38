from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyjs.config.errors import ConfigError, Place, Problem
from pyjs.config.parser import parse_file
from pyjs.config.values import REPEATED_MAX, ConfigMap, Data


def plain(data: Data) -> object:
    if isinstance(data, ConfigMap):
        return {key: plain(entry.value.data) for key, entry in data.items()}
    if isinstance(data, list):
        return [plain(value.data) for value in data]
    return data


def parse_text(text: str, environ: Mapping[str, str] = {}, file: str = "config") -> ConfigMap:
    def read(path: str) -> str:
        if path != file:
            raise FileNotFoundError(2, "No such file or directory", path)
        return text

    return parse_file(file, read, environ)


def parse(text: str, environ: Mapping[str, str] = {}, files: Mapping[str, str] = {}) -> object:
    texts = {"conf/main.conf": text, **files}

    def read(path: str) -> str:
        if path not in texts:
            raise FileNotFoundError(2, "No such file or directory", path)
        return texts[path]

    return plain(parse_file("conf/main.conf", read, environ))


def refuse(text: str, environ: Mapping[str, str] = {}, files: Mapping[str, str] = {}) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(text, environ, files)
    return str(caught.value)


@pytest.mark.parametrize(
    "text", ["a = 1", "a: 1", "a 1", "a\t1", "a=1", "a:1", "'a': 1", '"a" 1', "a 1;", "a 1,"]
)
def test_a_key_and_its_value_may_be_parted_in_each_way(text: str) -> None:
    assert parse(text) == {"a": 1}


@pytest.mark.parametrize(
    "text",
    [
        "a 1\nb 2",
        "a 1; b 2",
        "a 1, b 2",
        "a 1 # x\nb 2 // y",
        "{a: 1, b: 2}",
        '{"a": 1,\n"b": 2}\n',
        '{\n"a": 1\n, "b": 2\n}',
        "{a: 1}\nb: 2",
        "{a: 1},b: 2",
        "{{a: 1} b: 2}",
        "a 1\r\nb 2\r\n",
    ],
)
def test_entries_may_be_parted_in_each_way(text: str) -> None:
    assert parse(text) == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    "text",
    [
        "m {a: 1, b {c: x}}",
        "m: {a: 1; b: {c: x}}",
        "m\n{\n a: 1\n b\n {\n c\n x\n }\n}",
        "m:\n{ a: 1\n b:\n {c:\n'x'} }",
        "m = { a 1 # one\n // two\n b {c x} }",
    ],
)
def test_maps_nest(text: str) -> None:
    assert parse(text) == {"m": {"a": 1, "b": {"c": "x"}}}


@pytest.mark.parametrize(
    "text",
    [
        "l [1, 2, 3 ]",
        "l [1,2,3]",
        "l: [1\n2\n3\n]",
        "l = [1, # one\n2 // two\n, 3,]",
        "l:\n[1,2,3]",
    ],
)
def test_lists_take_commas_and_line_ends(text: str) -> None:
    assert parse(text) == {"l": [1, 2, 3]}


def test_lists_hold_maps_and_lists() -> None:
    assert parse("l [{a: 1}, [x, y], 2.5]") == {"l": [{"a": 1}, ["x", "y"], 2.5]}
    assert parse("l []\nm {}") == {"l": [], "m": {}}


def test_the_last_of_two_equal_keys_wins_and_takes_its_place() -> None:
    parsed = parse_text("a 1\nb 2\na 3", {})
    assert [(key, entry.value.data) for key, entry in parsed.items()] == [("b", 2), ("a", 3)]


@pytest.mark.parametrize(
    ("text", "noted"),
    [
        ("a 1\nb 2\n a 3", ['3:2: "a" is set twice in this block, first at f:1:1']),
        ("a 1; a 2; a 3", ['1:6: "a" is set twice', '1:11: "a" is set twice']),
        ("m {\nn { a 1\na {} }\n}", ['3:1: "a" is set twice']),
        ("m {a 1}\nm {b 2}", ['2:1: "m" is set twice']),
        ("l [{a 1, a 2}]", ['1:10: "a" is set twice']),
        ("{a 1}\n{a 2}", ['2:2: "a" is set twice']),
        ("m {a 1}\nn {a 2}\na 3\nl [{a 1}, {a 2}]", []),
        ("a 1\nA 2", []),  # accounts may have such names, so the reader of the block decides
    ],
)
def test_a_key_that_is_set_twice_in_a_block_is_noted_with_both_places(text: str, noted: list[str]) -> None:
    # given
    twice: list[Problem] = []
    # when
    parse_file("f", lambda path: text, {}, twice)
    # then
    assert len(twice) == len(noted)
    for problem, start in zip(twice, noted, strict=True):
        assert str(problem).startswith(f"f:{start}")


def test_a_key_over_that_of_an_included_file_is_not_noted() -> None:
    # given
    texts = {"main": "include base\na 2\ninclude base\ninclude more", "base": "a 1", "more": "a 3"}
    twice: list[Problem] = []
    # when
    parsed = parse_file("main", texts.__getitem__, {}, twice)
    # then
    assert (plain(parsed), twice) == ({"a": 3}, [])


def test_only_the_first_keys_that_are_set_twice_are_noted() -> None:
    twice: list[Problem] = []
    parse_file("f", lambda path: "a 1\n" * 10_000, {}, twice)
    assert len(twice) == REPEATED_MAX


def test_every_value_knows_its_place() -> None:
    parsed = parse_text("a 1\n  b { c: [x,\n   y] }", {}, "f")
    assert parsed["a"].place == Place("f", 1, 1)
    assert parsed["a"].value.place == Place("f", 1, 3)
    inner = parsed["b"].value.data
    assert isinstance(inner, ConfigMap)
    assert inner["c"].place == Place("f", 2, 7)
    elements = inner["c"].value.data
    assert isinstance(elements, list)
    assert [element.place for element in elements] == [Place("f", 2, 11), Place("f", 3, 4)]


# Variables


def test_a_variable_is_looked_up_in_the_enclosing_maps_innermost_first() -> None:
    text = "x 1\ny 2\nm { x 3, a $x, n { b $x, c $y } }\nd $x"
    assert parse(text) == {"x": 1, "y": 2, "m": {"x": 3, "a": 3, "n": {"b": 3, "c": 2}}, "d": 1}


def test_a_variable_may_stand_for_a_map_or_a_list() -> None:
    assert parse("p {a: 1}\nl [$p, $p]") == {"p": {"a": 1}, "l": [{"a": 1}, {"a": 1}]}


def test_a_key_that_a_variable_refers_to_is_marked() -> None:
    parsed = parse_text("x 1\ny 2\nz $x", {})
    assert (parsed["x"].used, parsed["y"].used) == (True, False)


@pytest.mark.parametrize(
    ("text", "data"),
    [("42", 42), ("a", "a"), ("[1,2]", [1, 2]), ("{a: 1}", {"a": 1}), ("'x y'", "x y"), ("on", True)],
)
def test_a_variable_of_the_environment_is_read_as_a_value(text: str, data: object) -> None:
    assert parse("a $V", {"V": text}) == {"a": data}


def test_a_variable_of_the_environment_may_refer_to_another() -> None:
    assert parse("a $V", {"V": "$W", "W": "7"}) == {"a": 7}


def test_a_key_wins_over_the_environment() -> None:
    assert parse("V 1\na $V", {"V": "2"}) == {"V": 1, "a": 1}


@pytest.mark.parametrize(
    ("text", "environ", "cause"),
    [
        ("a $V", {}, "1:3: variable reference for 'V' can not be found; set V above"),
        ("port_x 1\na $port_y", {}, 'did you mean "$port_x"?'),
        ("m { x 1 }\na $x", {}, "variable reference for 'x'"),
        ("X 1\na $x", {}, "variable reference for 'x'"),
        ("a $V", {"V": "$W", "W": "$V"}, "environment variable V refers to itself through V -> W"),
        ("a $V", {"V": "{a: 1"}, "1:3: environment variable V cannot be read as a value"),
        ("a $V", {"V": "a b"}, "environment variable V cannot be read as a value"),
        ("a $V", {"V": ""}, "environment variable V cannot be read as a value"),
    ],
)
def test_a_variable_without_value_is_refused_at_the_reference(
    text: str, environ: Mapping[str, str], cause: str
) -> None:
    assert cause in refuse(text, environ)


# Includes


@pytest.mark.parametrize(
    "line", ["include ./b.conf", "include 'b.conf'", 'include "b.conf"', "INCLUDE b.conf;", "include: b.conf"]
)
def test_an_included_file_joins_the_map(line: str) -> None:
    files = {"conf/b.conf": "b 2\na 3"}
    assert parse(f"a 1\n{line}\nc 4", files=files) == {"b": 2, "a": 3, "c": 4}


def test_an_include_may_stand_in_a_map() -> None:
    files = {"conf/b.conf": "b 2"}
    assert parse("m { include b.conf }\nn {include b.conf; c: 3}", files=files) == {
        "m": {"b": 2},
        "n": {"b": 2, "c": 3},
    }


def test_an_include_is_looked_for_beside_the_file_that_includes() -> None:
    files = {"conf/sub/b.conf": "include c.conf", "conf/sub/c.conf": "c 1", "conf/d.conf": "d 2"}
    assert parse("include sub/b.conf\ninclude sub/../d.conf", files=files) == {"c": 1, "d": 2}


def test_an_absolute_include_is_tried_beside_the_file_first() -> None:
    assert parse("include /etc/x.conf", files={"conf/etc/x.conf": "x 1"}) == {"x": 1}
    assert parse("include /etc/x.conf", files={"/etc/x.conf": "x 2"}) == {"x": 2}


def test_a_file_may_be_included_twice() -> None:
    assert parse("a {include b.conf}\nc {include b.conf}", files={"conf/b.conf": "b 1"}) == {
        "a": {"b": 1},
        "c": {"b": 1},
    }


def test_variables_of_an_included_file_are_known_behind_it_and_not_the_other_way() -> None:
    assert parse("include b.conf\na $b", files={"conf/b.conf": "b 1"}) == {"b": 1, "a": 1}
    assert "conf/b.conf:1:3: variable" in refuse("x 1\ninclude b.conf", files={"conf/b.conf": "b $x"})


@pytest.mark.parametrize(
    ("text", "files", "cause"),
    [
        ("include b.conf", {}, 'main.conf:1:1: include "b.conf": open conf/b.conf: no such file'),
        (
            "include main.conf",
            {},
            'conf/main.conf:1:1: include "main.conf" includes a file that is being read',
        ),
        ("include b.conf", {"conf/b.conf": "x 1\ninclude main.conf"}, "conf/b.conf:2:1: include"),
        ("include b.conf", {"conf/b.conf": "x 1 2"}, "conf/b.conf:1:5: Parse error: the value before this"),
        ("include\n", {}, "include has no path"),
        ("include ''", {}, "include has no path"),
    ],
)
def test_an_include_that_fails_says_where(text: str, files: Mapping[str, str], cause: str) -> None:
    assert cause in refuse(text, files=files)


# Errors


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a 1 2", "conf/main.conf:1:5: Parse error: the value before this ends with"),
        ("a 1\nb", 'conf/main.conf:2:2: Parse error: "b" has no value, found the end of the file'),
        ("a:\nb: 1", 'conf/main.conf:1:3: Parse error: "a" has no value, found the end of the line'),
        ("}", "conf/main.conf:1:1: Parse error: this } closes nothing"),
        ("{a: 1}}", "conf/main.conf:1:7: Parse error: this } closes nothing"),
        ("{a: 1", "conf/main.conf:1:1: Parse error: the { here is never closed"),
        ("a {b: 1", 'conf/main.conf:1:3: Parse error: the map of "a" is never closed'),
        ("a [b", 'conf/main.conf:1:3: Parse error: the list of "a" is never closed'),
        ("a [b,,c]", 'conf/main.conf:1:6: Parse error: "a" lacks an element'),
        (
            "a [b c]",
            "conf/main.conf:1:6: Parse error: the value before this ends with a line end, a comma or ]",
        ),
        ("a {b: 1,,c: 2}", "conf/main.conf:1:9: Parse error: a key is expected"),
        ("a {b: }", 'conf/main.conf:1:7: Parse error: "b" has no value'),
        ("a " + "[" * 101, "conf/main.conf:1:103: Parse error: maps and lists are nested more than 100 deep"),
    ],
)
def test_a_syntax_error_says_where_what_and_what_to_do(text: str, message: str) -> None:
    refusal = refuse(text)
    assert refusal.startswith(message)
    assert "; " in refusal


def test_the_last_brace_of_a_whole_file_may_be_missing() -> None:
    assert parse("{ a: 1\n") == {"a": 1}
    assert parse("a: 1\n{\nb: 2 # that is all\n\n") == {"a": 1, "b": 2}


def test_a_missing_file_is_named() -> None:
    def read(path: str) -> str:
        raise FileNotFoundError(2, "No such file or directory", path)

    with pytest.raises(ConfigError, match=r"^open missing\.conf: no such file or directory; give the path"):
        parse_file("missing.conf", read, {})


def test_a_variable_of_the_environment_includes_nothing() -> None:
    with pytest.raises(ConfigError, match="no such file"):
        parse("a $E", {"E": "1\ninclude a.conf"}, {"a.conf": "b 1", "conf/a.conf": "b 1"})


PIECES = ["a", "port", " ", "\n", ":", "=", "{", "}", "[", "]", ",", ";", '"', "'", "(", ")", "#", "//", "\\"]
PIECES += [
    "$a",
    "$E",
    "1",
    "-",
    ".",
    "k",
    "include ",
    "\\x4",
    "\r\n",
    "2024-01-02T03:04:05Z",
    "\x00",
    "ä",
    "on",
]


@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
def test_any_text_is_read_or_refused_with_a_place(text: str) -> None:
    try:
        parse_text(text, {"E": text}, "f")
    except ConfigError as error:
        problem = error.problems[0]
        assert problem.place.line >= 1
        assert problem.place.column >= 1
        assert problem.fix
