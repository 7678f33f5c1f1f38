from __future__ import annotations

from datetime import UTC, datetime

import pytest

from pyjs.config.errors import ConfigError, Place
from pyjs.config.lexer import Lexer, Variable
from pyjs.config.values import Value


def take(text: str) -> object:
    """Return the value that the lexer reads from `text`."""
    taken = Lexer(text, "f").take_scalar("key")
    return taken.name if isinstance(taken, Variable) else taken.data


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("foo", "foo"),
        ("foo,bar", "foo"),
        ("foo;bar", "foo"),
        ("foo]bar", "foo"),
        ("foo}bar", "foo"),
        ("foo bar", "foo"),
        ("foo\r\nbar", "foo"),
        ('"foo bar"', "foo bar"),
        ("'foo bar'", "foo bar"),
        ("'raw \\t'", "raw \\t"),
        ('"two\nlines"', "two\nlines"),
        ('""', ""),
        (r'"\t\n\r\"\\"', '\t\n\r"\\'),
        (r'"\x41\xc3\xa4"', "Aä"),
        (r'"\xe4"', "\udce4"),
        (r"a\tb", "a\tb"),
        ("(\nabc\n)\n", "\nabc\n"),
        ("(\nabc\n)", "\nabc\n"),
        ("(a) b\n c)\n)\n", "a) b\n c)\n"),
        ("it's", "it's"),
        ("#abc", "#abc"),
        ("http://host/path", "http://host/path"),
        ("127.0.0.1:4222", "127.0.0.1:4222"),
        ("10.0.0.0/8", "10.0.0.0/8"),
        ("30s", "30s"),
        ("1.5h", "1.5h"),
        ("1kbb", "1kbb"),
        ("1e3", "1e3"),
        ("2024-01-02", "2024-01-02"),
        ("-x", "-x"),
        ("$2a$11$abc", "$2a$11$abc"),
        ("$2b$11$abc", "$2b$11$abc"),
    ],
)
def test_a_string_is_read_in_each_of_its_forms(text: str, data: str) -> None:
    assert take(text) == data


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("42", 42),
        ("-1", -1),
        ("1k", 1000),
        ("1KB", 1024),
        ("1GiB", 1 << 30),
        ("42]", 42),
        ("1.5", 1.5),
        ("-0.25", -0.25),
        ("true", True),
        ("YES", True),
        ("On", True),
        ("false", False),
        ("no", False),
        ("OFF", False),
        ("2024-01-02T03:04:05Z", datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)),
    ],
)
def test_a_bare_word_is_what_it_looks_like(text: str, data: object) -> None:
    taken = take(text)
    assert taken == data
    assert type(taken) is type(data)


def test_a_dollar_makes_a_variable_and_quotes_make_it_a_string() -> None:
    assert take("$NAME") == "NAME"
    assert isinstance(Lexer("$NAME", "f").take_scalar("key"), Variable)
    assert isinstance(Lexer("'$NAME'", "f").take_scalar("key"), Value)


@pytest.mark.parametrize(
    ("text", "line", "column", "cause"),
    [
        ('  "abc', 1, 3, "has no end"),
        ("\n 'abc", 2, 2, "has no end"),
        ("(\nabc)\n", 1, 1, "has no end"),
        (r'"a\qb"', 1, 3, r"\\q is no escape"),
        (r"a\qb", 1, 2, r"\\q is no escape"),
        (r'"\xZZ"', 1, 2, r"\\x is no escape"),
        ("9EB", 1, 1, "too large"),
        ("2024-13-02T03:04:05Z", 1, 1, "is no date"),
        (",", 1, 1, "key has no value"),
        ("# comment", 1, 1, "key has no value"),
        ("// comment", 1, 1, "key has no value"),
        ("", 1, 1, "found the end of the file"),
        ("\n", 1, 1, "found the end of the line"),
    ],
)
def test_what_cannot_be_read_is_refused_where_it_stands(
    text: str, line: int, column: int, cause: str
) -> None:
    lexer = Lexer(text, "f")
    if text.strip() and not text.startswith(","):
        lexer.skip_spaces(newlines=True)
    with pytest.raises(ConfigError, match=cause) as caught:
        lexer.take_scalar("key")
    assert caught.value.problems[0].place == Place("f", line, column)


def test_comments_and_blank_lines_are_a_gap() -> None:
    lexer = Lexer(" # one\n\t// two\r\n\n key", "f")
    assert lexer.skip_gap()
    assert lexer.take_key() == ("key", False)
    assert not lexer.skip_gap()


def test_a_byte_order_mark_is_no_part_of_the_first_key() -> None:
    assert Lexer("\ufeffport", "f").take_key() == ("port", False)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("a.b: 1", ("a.b", False)),
        ('"a b": 1', ("a b", True)),
        ("'a=b' 1", ("a=b", True)),
        ("a=1", ("a", False)),
    ],
)
def test_a_key_ends_at_space_or_separator_unless_quoted(text: str, key: tuple[str, bool]) -> None:
    assert Lexer(text, "f").take_key() == key


@pytest.mark.parametrize(
    ("text", "cause"),
    [("= 1", "a key is expected"), (", a", "a key is expected"), ("a{b", "holds a bracket")],
)
def test_what_is_no_key_is_refused(text: str, cause: str) -> None:
    with pytest.raises(ConfigError, match=cause):
        Lexer(text, "f").take_key()
