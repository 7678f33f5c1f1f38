"""The arguments of a monitoring request, usually from its query string, with Go's error messages."""

from __future__ import annotations

from urllib.parse import unquote_plus

from pyjs.base.gotext import quoted

TRUE = {"1", "t", "T", "TRUE", "true", "True"}
FALSE = {"0", "f", "F", "FALSE", "false", "False"}
INT64_MAX = (1 << 63) - 1
UINT64_MAX = (1 << 64) - 1
# digits of the largest UINT64; longer texts are not parsed, since Python refuses thousands of digits
DIGITS_MAX = 20


class BadArgument(Exception):
    """Raised for an invalid argument; the message is the body of the answer, which has the HTTP status 400."""


class Arguments:
    """The arguments of one request; if a name occurs several times, the first value counts."""

    def __init__(self, query: str) -> None:
        self._values: dict[str, str] = {}
        for part in query.split("&"):
            name, _, value = part.partition("=")
            if name and ";" not in part:
                self._values.setdefault(unquote_plus(name), unquote_plus(value))

    @staticmethod
    def of(values: dict[str, str]) -> Arguments:
        """Return arguments with the given values, for a request without a query string."""
        made = Arguments("")
        made._values |= values
        return made

    def text(self, name: str) -> str:
        """Return the argument, or "" if it is absent."""
        return self._values.get(name, "")

    def flag(self, name: str) -> bool:
        """Return the argument as a boolean, or False if it is absent or empty.

        Raises:
            BadArgument: the argument is not one of Go's booleans.
        """
        value = self.text(name)
        if not value or value in FALSE:
            return False
        if value in TRUE:
            return True
        raise BadArgument(
            f"Error decoding boolean for '{name}': strconv.ParseBool: parsing {quoted(value)}: invalid syntax"
        )

    def integer(self, name: str) -> int:
        """Return the argument as a signed 64-bit integer, or 0 if it is absent or empty.

        Raises:
            BadArgument: the argument is not a number or does not fit.
        """
        value = self.text(name)
        digits = value[1:] if value[:1] in ("+", "-") else value
        return self._number(name, value, digits, "int", "Atoi", INT64_MAX)

    def unsigned(self, name: str) -> int:
        """Return the argument as an unsigned 64-bit integer, or 0 if it is absent or empty.

        Raises:
            BadArgument: the argument is not a number or does not fit.
        """
        value = self.text(name)
        return self._number(name, value, value, "uint64", "ParseUint", UINT64_MAX)

    @staticmethod
    def _number(name: str, value: str, digits: str, kind: str, function: str, limit: int) -> int:
        if not value:
            return 0
        problem = ""
        significant = digits.lstrip("0")
        if not (digits.isascii() and digits.isdigit()):
            problem = "invalid syntax"
        elif len(significant) > DIGITS_MAX or int(significant or "0") > limit:
            problem = "value out of range"
        if problem:
            raise BadArgument(
                f"Error decoding {kind} for '{name}': strconv.{function}: parsing {quoted(value)}: {problem}"
            )
        number = int(significant or "0")
        return -number if value.startswith("-") else number
