"""Options of streams and consumers, each declared once as a field of a dataclass.

`option` states the kind (JSON type, unit and nats-server's name of the type), one line of documentation, the default,
the first API level, and whether an update may change the option. The decoding of requests, answers in JSON, stored
configurations, and the tables and schemas in docs/ are derived from it. The JSON name is the name of the field
without `_ns`.

This module knows nothing of single options (stream.py, consumer.py) or of their limits (jetstream/rules).
"""

from __future__ import annotations

from dataclasses import field, fields
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from pyjs.base.bounds import NUMBERS, TIME_NS, wrapped_ns
from pyjs.base.gotext import moment_text
from pyjs.jetstream.config.json_strict import Kind, Struct, parse_time_ns, struct

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, TypeVar

    from _typeshed import DataclassInstance

    T = TypeVar("T", bound=DataclassInstance)

_ZERO = {"string": "", "bool": False, "time.Time": None, "struct": None, "list": ()}
_KIND_DEFAULT = object()


class Option(NamedTuple):
    """The declaration of one option."""

    name: str  # in JSON
    attribute: str
    kind: Kind
    doc: str
    default: Any
    level: int  # the first API level that has the option
    always: bool  # answers show it even if it is zero
    updatable: bool

    @property
    def zero(self) -> Any:
        """The value of the option if a request does not set it."""
        return zero_of(self.kind)


def zero_of(kind: Kind) -> Any:
    """Return the value of an unset option of this kind."""
    if kind.name == "enum":
        return kind.words[0]
    return {} if kind.name == "map" else _ZERO.get(kind.name, 0)


def option(
    kind: Kind,
    doc: str,
    default: Any = _KIND_DEFAULT,
    *,
    level: int = 0,
    always: bool = False,
    updatable: bool = True,
) -> Any:
    """Declare an option as a field of a dataclass. Without `default`, the default is the zero value of its kind."""
    told = {"kind": kind, "doc": doc, "level": level, "always": always, "updatable": updatable}
    start = zero_of(kind) if default is _KIND_DEFAULT else default
    if kind.name == "map" or (kind.name == "struct" and start is not None):
        return field(default_factory=type(start), metadata=told)
    return field(default=start, metadata=told)


def options_of(of: type[DataclassInstance]) -> tuple[Option, ...]:
    """Return the options of a dataclass, in the order in which answers show them."""
    return tuple(
        Option(name=each.name.removesuffix("_ns"), attribute=each.name, default=each.default, **each.metadata)
        for each in fields(of)
    )


def struct_of(of: type[DataclassInstance], go_name: str = "") -> Struct:
    """Return the fields of a dataclass for the decoder; `go_name` is nats-server's name of the type if it differs."""
    return Struct(go_name or of.__name__, {each.name: each.kind for each in options_of(of)}, of)


def part(of: type[DataclassInstance], go_name: str = "") -> Kind:
    """Return the kind of an option whose value is an object with options."""
    return struct(struct_of(of, go_name))


class _Shape:
    """The options of one dataclass, in the form that the conversions of this module use."""

    def __init__(self, of: type[DataclassInstance]) -> None:
        self.options = options_of(of)
        self.attributes = {each.attribute: each for each in self.options}
        self.values = attrgetter(*self.attributes)
        self.parts = tuple(each for each in self.options if each.kind.name in ("time.Time", "struct", "list"))
        self.shown = tuple(
            (
                each.name,
                each.always or each.kind.name == "time.Time",
                each.zero if each.kind.name == "enum" else None,
                _WRITERS.get(each.kind.name),
            )
            for each in self.options
        )


@cache
def shape_of(of: type[DataclassInstance]) -> _Shape:
    """Return the cached _Shape of a dataclass."""
    return _Shape(of)


def changed(config: T, **values: Any) -> T:
    """Return a copy of a configuration with changed values.

    Raises:
        AttributeError: there is no such option.
    """
    shape = shape_of(type(config))
    # the configuration of a consumer is frozen
    made, assign = object.__new__(type(config)), object.__setattr__
    for attribute, value in zip(shape.attributes, shape.values(config), strict=True):
        assign(made, attribute, value)
    for attribute, value in values.items():
        assign(made, attribute, value)
    return made


def as_json(config: DataclassInstance) -> dict[str, Any]:
    """Return a configuration, or a part of one, as JSON for an answer; most unset options are left out."""
    out: dict[str, Any] = {}
    shape = shape_of(type(config))
    for (name, always, zero, write), value in zip(shape.shown, shape.values(config), strict=True):
        if value is not None and (always or (value and value != zero)):
            out[name] = write(value) if write else value
    return out


def _list_json(values: tuple[Any, ...]) -> list[Any]:
    return [each if isinstance(each, str | int) else as_json(each) for each in values]


_WRITERS: dict[str, Callable[[Any], object]] = {
    "time.Time": moment_text,
    "struct": as_json,
    "list": _list_json,
    "map": lambda value: dict(sorted(value.items())),
}


def from_json(of: type[T], given: Mapping[str, Any]) -> T:
    """Return the configuration in the JSON values `given`, which must have been checked.

    Missing options keep their defaults.
    """
    shape = shape_of(of)
    values = {each.attribute: given[each.name] for each in shape.options if each.name in given}
    return of(**_with_parts(shape, values, from_json))


def _with_parts(shape: _Shape, values: dict[str, Any], read: Callable[..., Any]) -> dict[str, Any]:
    for each in shape.parts:
        if each.attribute in values:
            values[each.attribute] = _made(each.kind, values[each.attribute], read)
    return values


def _made(kind: Kind, value: Any, read: Callable[..., Any]) -> Any:
    """Convert the value of an option; a value of a wrong kind is returned unchanged."""
    if kind.name == "list" and isinstance(value, list):
        assert kind.item is not None
        return tuple(_made(kind.item, each, read) for each in value)
    if kind.name == "time.Time" and isinstance(value, str):
        return parse_time_ns(value)
    if kind.struct is None or not isinstance(value, dict):
        return value
    assert kind.struct.of is not None
    return read(kind.struct.of, value)


def to_meta(config: DataclassInstance) -> dict[str, Any]:
    """Return a configuration as plain values to store; the keys are the names of its attributes."""
    shape = shape_of(type(config))
    pairs = zip(shape.options, shape.values(config), strict=True)
    return {each.attribute: _stored(each.kind, value) for each, value in pairs}


def _stored(kind: Kind, value: Any) -> Any:
    if isinstance(value, tuple):
        assert kind.item is not None
        return [_stored(kind.item, each) for each in value]
    if kind.name == "time.Time" and value is not None and wrapped_ns(value) != value:
        return moment_text(value)  # as text: the time does not fit in a stored number
    return to_meta(value) if kind.name == "struct" and value is not None else value


def from_meta(of: type[T], meta: Mapping[str, Any]) -> T:
    """Return the configuration that `to_meta` converted to plain values.

    Raises:
        ValueError: an option is unknown (a newer version wrote it), or a value has the wrong kind.
    """
    shape = shape_of(of)
    if unknown := sorted(meta.keys() - shape.attributes.keys()):
        raise ValueError(f"stream configuration has unknown fields {unknown}; a newer server wrote it")
    made = of(**_with_parts(shape, dict(meta), from_meta))
    for each, value in zip(shape.options, shape.values(made), strict=True):
        if value == each.default and type(value) is type(each.default):
            # the usual case, without a conversion: a starting server reads thousands of configurations
            continue
        if not (value is None and each.default is None) and not _fits(each.kind, value):
            raise ValueError(f"{each.attribute} of the stream configuration is {value!r}")
    return made


def _fits(kind: Kind, value: Any) -> bool:
    """Return whether a stored value has the type of `kind`, and is within its range."""
    if kind.name == "list":
        assert kind.item is not None
        return isinstance(value, tuple) and all(_fits(kind.item, each) for each in value)
    if kind.name == "map":
        return isinstance(value, dict) and all(_is_text(each) for pair in value.items() for each in pair)
    if kind.struct is not None:
        return type(value) is kind.struct.of
    if kind.name in ("string", "enum"):
        return _is_text(value)
    if kind.name == "bool":
        return type(value) is bool
    low, high = TIME_NS if kind.name == "time.Time" else NUMBERS[kind.name]
    return type(value) is int and low <= value <= high


def _is_text(value: object) -> bool:
    if type(value) is not str:
        return False
    value.encode()  # raises UnicodeEncodeError, a ValueError, for half a surrogate pair
    return True
