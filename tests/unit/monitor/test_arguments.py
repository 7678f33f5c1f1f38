import pytest

from pyjs.monitor.arguments import Arguments, BadArgument


@pytest.mark.parametrize("value", ["1", "t", "T", "TRUE", "true", "True"])
def test_what_go_takes_for_true_is_true(value: str) -> None:
    assert Arguments(f"x={value}").flag("x")


@pytest.mark.parametrize("query", ["x=0", "x=f", "x=F", "x=FALSE", "x=false", "x=False", "x=", "", "y=1"])
def test_what_go_takes_for_false_or_is_absent_is_false(query: str) -> None:
    assert not Arguments(query).flag("x")


def test_another_boolean_is_refused_in_words_of_go() -> None:
    with pytest.raises(BadArgument) as caught:
        Arguments("auth=z%22").flag("auth")

    text = 'Error decoding boolean for \'auth\': strconv.ParseBool: parsing "z\\"": invalid syntax'
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("value", "number"), [("7", 7), ("-7", -7), ("%2B7", 7), ("", 0), ("0" * 5000 + "7", 7)]
)
def test_an_integer_may_have_a_sign(value: str, number: int) -> None:
    assert Arguments(f"limit={value}").integer("limit") == number


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("x", "invalid syntax"),
        ("1.5", "invalid syntax"),
        ("-", "invalid syntax"),
        ("9" * 20, "value out of range"),
        ("9" * 5000, "value out of range"),
        ("-" + "9" * 5000, "value out of range"),
    ],
)
def test_another_integer_is_refused_in_words_of_go(value: str, problem: str) -> None:
    with pytest.raises(BadArgument) as caught:
        Arguments(f"limit={value}").integer("limit")

    assert (
        str(caught.value) == f"Error decoding int for 'limit': strconv.Atoi: parsing \"{value}\": {problem}"
    )


def test_an_unsigned_number_has_no_sign() -> None:
    with pytest.raises(BadArgument) as caught:
        Arguments("cid=-1").unsigned("cid")

    text = "Error decoding uint64 for 'cid': strconv.ParseUint: parsing \"-1\": invalid syntax"
    assert str(caught.value) == text
    assert Arguments("cid=18446744073709551615").unsigned("cid") == 18446744073709551615


def test_the_first_of_several_counts_and_escapes_are_read() -> None:
    arguments = Arguments("acc=A%26B&acc=C&x=a+b&;&y=%zz")

    assert arguments.text("acc") == "A&B"
    assert arguments.text("x") == "a b"
    assert arguments.text("y") == "%zz"
    assert arguments.text("z") == ""
