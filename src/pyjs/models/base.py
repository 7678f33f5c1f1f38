"""The base of all models: conversion to and from JSON, and types of fields.

A duration is a number of nanoseconds, as in JSON. A timedelta or a string such as "1m30s" is converted to it, and
`nanoseconds` converts from larger units. A time is a datetime with a time zone, precise to a microsecond.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Annotated, Any, Self

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from pyjs.base.bounds import NUMBERS
from pyjs.base.units import parse_duration_ns

NS_PER_US = 1_000


def nanoseconds(*, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0) -> int:
    """Return the sum of the arguments in nanoseconds, precise to a microsecond."""
    given = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    return given // timedelta(microseconds=1) * NS_PER_US


def duration_ns(value: Any) -> Any:
    """Return a timedelta, or a string such as "1m30s", in nanoseconds; return any other value unchanged."""
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1) * NS_PER_US
    return parse_duration_ns(value) if isinstance(value, str) else value


def _number(kind: str) -> Any:
    low, high = NUMBERS[kind]
    return Field(ge=low, le=high)


Int = Annotated[int, _number("int")]
Int32 = Annotated[int, _number("int32")]
Int64 = Annotated[int, _number("int64")]
UInt64 = Annotated[int, _number("uint64")]
Duration = Annotated[int, _number("time.Duration"), BeforeValidator(duration_ns)]
Time = AwareDatetime


class Options(BaseModel):
    """The base of requests and configurations that a program composes. Unknown names are errors."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True)

    def to_json(self) -> bytes:
        """Return the fields that were set, as the body of a request."""
        return self.model_dump_json(exclude_unset=True).encode()

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        """Return the names and values of the fields that were set, without secrets."""
        return [(name, value) for name, value in super().__repr_args__() if name in self.model_fields_set]


class Answer(BaseModel):
    """The base of the answers of a server. Unknown fields, such as those of a newer server, are ignored."""

    model_config = ConfigDict(extra="ignore")

    @classmethod
    def parse(cls, data: bytes | str) -> Self:
        """Return the answer in the JSON text `data`.

        Raises:
            pydantic.ValidationError: `data` is not such an answer; the error names each invalid field.
        """
        return cls.model_validate_json(data, extra="ignore")


def faults(model: type[Options], text: str) -> list[tuple[tuple[int | str, ...], str]]:
    """Return the path and the problem of each invalid field in `text`, a JSON object; [] if `model` accepts it.

    Nothing is converted: a number in quotes is not a number.
    """
    try:
        model.model_validate_json(text, strict=True)
    except ValidationError as error:
        return [
            (each["loc"], each["msg"].removeprefix("Input ").removeprefix("Value error, "))
            for each in error.errors(include_url=False)
        ]
    return []
