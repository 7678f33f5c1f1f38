"""Readers of single values: one Kind for each type of option, and checks that several rows use.

This module knows nothing of single options and their blocks. Each reader returns the value for the attribute, or
raises Refused with the expected value, the found value and the right syntax.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from pyjs.base.gotext import NS_PER_S, duration_text
from pyjs.base.units import INT64_MAX, parse_duration_ns, parse_number
from pyjs.config.errors import Refused, suggestion
from pyjs.config.table import Key, Kind, Reading, Table, read_block, wrong_type
from pyjs.config.values import ConfigMap, Value, describe

if TYPE_CHECKING:
    from collections.abc import Callable

INT32_MAX = (1 << 31) - 1
ANY_HOST = "0.0.0.0"

Block = TypeVar("Block")


def _is_int(data: object) -> bool:
    return isinstance(data, int) and not isinstance(data, bool)


def _read_bool(reading: Reading, key: Key, value: Value, target: object) -> object:
    if isinstance(value.data, bool):
        return value.data
    quoted = isinstance(value.data, str) and value.data.lower() in ("true", "false")
    fix = "remove the quotes" if quoted else f"write {key.name}: true or {key.name}: false"
    raise wrong_type(key, value, "true or false", fix)


def _read_number(
    reading: Reading, key: Key, value: Value, target: object, expected: str, example: str
) -> object:
    if _is_int(value.data):
        return value.data
    fix = "remove the quotes"
    try:
        parse_number(str(value.data))
    except ValueError:
        fix = f"write a number without quotes, {key.name}: {example} for instance"
        if str(value.data)[:1].isdigit():
            fix = f"the units are KB, MB, GB and TB, {key.name}: {example} for instance"
    raise wrong_type(key, value, expected, fix)


def _read_storage_size(reading: Reading, key: Key, value: Value, target: object) -> object:
    """Read a size in bytes, which may be quoted; "" is 0.

    In a quoted size, the suffixes K, M, G and T mean powers of 1024. Without quotes, they mean powers of 1000.
    """
    data = value.data
    if _is_int(data):
        return data
    fix = f'write a number with or without suffix, {key.name}: 10GB or {key.name}: "10G" for instance'
    if not isinstance(data, str):
        raise wrong_type(key, value, "a size in bytes", fix)
    if data == "":
        return 0
    try:
        return parse_number(data + "b" if data[-1:] in tuple("KMGT") else data)
    except ValueError:
        raise wrong_type(key, value, "a size in bytes", fix) from None


def read_string(reading: Reading, key: Key, value: Value, target: object) -> str:
    """Read a string; refuse a NUL character, unless the value is a secret."""
    if isinstance(value.data, str):
        if "\0" in value.data and not key.secret:
            raise Refused(value.place, f'"{key.name}" holds a NUL character', "leave it out")
        return value.data
    raise wrong_type(key, value, "a string", "put it in quotes")


def _read_duration(reading: Reading, key: Key, value: Value, target: object) -> object:
    if not isinstance(value.data, str):
        raise wrong_type(key, value, "a duration", _duration_fix(value))
    try:
        return parse_duration_ns(value.data)
    except ValueError as error:
        cause = f'"{key.name}" is no duration: {error} in "{value.data}"'
        raise Refused(value.place, cause, "the units are ns, us, ms, s, m and h: 24h, 1h30m, 500ms") from None


def _duration_fix(value: Value) -> str:
    if value.raw[-1:] in ("m", "M"):
        return f'write "{value.raw.lower()}" in quotes: without them it is the number {value.data}'
    if _is_int(value.data):
        return f'write the unit: "{value.data}s" for seconds'
    return 'write a duration such as "30s" or "1h30m"'


def _read_duration_or_seconds(reading: Reading, key: Key, value: Value, target: object) -> object:
    """Read a duration and return it in nanoseconds.

    A number means seconds and causes a warning. A number that was written as an unquoted 2m means two minutes.
    """
    data = value.data
    if not isinstance(data, int) or isinstance(data, bool):
        return _read_duration(reading, key, value, target)
    cause = f'"{key.name}" is a number without unit and should be converted to a duration'
    reading.warn(value.place, cause, _duration_fix(value))
    if value.raw[-1:] in ("m", "M"):
        return data * 60 * NS_PER_S // 1_000_000
    if abs(data) > INT64_MAX // NS_PER_S:
        raise Refused(value.place, f'"{key.name}" is {data} seconds, too long', 'write "30s" for instance')
    return data * NS_PER_S


def _read_strings(reading: Reading, key: Key, value: Value, target: object) -> object:
    if isinstance(value.data, str):
        return (value.data,)
    if not isinstance(value.data, list):
        raise wrong_type(key, value, "a string or a list of strings", f"write {key.name}: [a, b]")
    return tuple(read_string(reading, key, element, target) for element in value.data)


def _read_string_map(reading: Reading, key: Key, value: Value, target: object) -> object:
    entries = read_map(key, value, "name: value")
    return {name: read_string(reading, key, entry.value, target) for name, entry in entries.items()}


def read_map(key: Key, value: Value, example: str) -> ConfigMap:
    """Return the map in `value`, or raise Refused, whose advice shows `example` as the contents of the map."""
    if isinstance(value.data, ConfigMap):
        return value.data
    raise wrong_type(key, value, "a map", f"write {key.name} {{ {example} }}")


def fill(reading: Reading, table: Table, key: Key, value: Value, example: str, block: Block) -> Block:
    """Set the attributes of `block` from the map in `value`; return `block`."""
    read_block(reading, table, read_map(key, value, example), block)
    return block


def read_listen(reading: Reading, key: Key, value: Value, target: object) -> tuple[str, int]:
    """Read "host:port" or a port as (host, port); a missing host is ""."""
    data = value.data
    if isinstance(data, int) and not isinstance(data, bool):
        host, port = "", data
    elif isinstance(data, str):
        host, port = _split_host_port(key, value, data)
    else:
        raise wrong_type(key, value, "host:port or a port", f"write {key.name}: 127.0.0.1:4222")
    port_in_range(reading, key, value, port)
    return host, port


def read_listen_here(reading: Reading, key: Key, value: Value, target: object) -> tuple[str, int]:
    """Read "host:port" or a port as (host, port). A missing host means all addresses of the machine."""
    host, port = read_listen(reading, key, value, target)
    return host or ANY_HOST, port


def _split_host_port(key: Key, value: Value, text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not colon or (":" in host and not bracketed):
        cause = f'"{key.name}" expects host:port, found "{text}"'
        raise Refused(value.place, cause, 'write 127.0.0.1:4222, or "[::1]:4222" for IPv6')
    try:
        return host[1:-1] if bracketed else host, int(port)
    except ValueError:
        cause = f'"{key.name}" has the port "{port}", which is no number'
        raise Refused(value.place, cause, "use a port from 1 to 65535, or -1 for any free one") from None


def read_lower(reading: Reading, key: Key, value: Value, target: object) -> str:
    """Read a string and return it in lower case, without surrounding white space."""
    return read_string(reading, key, value, target).strip().lower()


def read_switch(key: Key, value: Value) -> bool:
    """Read a switch: true, false, or one of the words enabled, enable, disabled and disable; ignore their case."""
    if isinstance(value.data, bool):
        return value.data
    words = {"enabled": True, "enable": True, "disabled": False, "disable": False}
    if not isinstance(value.data, str):
        raise wrong_type(key, value, "true, false or a map", f"write {key.name}: enabled")
    if value.data.lower() in words:
        return words[value.data.lower()]
    cause = f'"{key.name}" is {describe(value)}, which is neither enabled nor disabled'
    raise Refused(value.place, cause, suggestion(value.data, words, f"write {key.name}: enabled"))


def map_kind(table: Table, example: str, make: Callable[[], object]) -> Kind:
    """Return the kind of a map whose entries set the attributes of a new object from `make`."""

    def read(reading: Reading, key: Key, value: Value, target: object) -> object:
        return fill(reading, table, key, value, example, make())

    return Kind("map", read, "{}", table)


BOOL = Kind("bool", _read_bool, "bool")
INT = Kind("int", partial(_read_number, expected="a whole number", example="42"), "int")
SIZE = Kind("size", partial(_read_number, expected="a size in bytes", example="64MB"), "int")
STORAGE_SIZE = Kind("size", _read_storage_size, "int | str")
STRING = Kind("string", read_string, "str")
PATH = Kind("path", read_string, "FilePath")
STRINGS = Kind("list of strings", _read_strings, "str | Sequence[str]")
STRING_MAP = Kind("map of strings", _read_string_map, "Mapping[str, str]")
DURATION = Kind("duration", _read_duration, "Duration")
DURATION_OR_SECONDS = Kind("duration", _read_duration_or_seconds, "Duration")
LISTEN = Kind("host:port", read_listen, "str | int")
LISTEN_HERE = Kind("host:port", read_listen_here, "str | int")


@dataclass(frozen=True, slots=True)
class Between:
    """A check that a number is from `lowest` to `highest`; `fix` is the advice in its message."""

    lowest: int
    highest: int
    fix: str

    def __call__(self, reading: Reading, key: Key, value: Value, data: object) -> None:
        """Raise Refused for a number outside the range."""
        assert isinstance(data, int)
        if data < self.lowest:
            raise Refused(value.place, f'"{key.name}" is {data}, the smallest is {self.lowest}', self.fix)
        if data > self.highest:
            raise Refused(value.place, f'"{key.name}" is {data}, the largest is {self.highest}', self.fix)


@dataclass(frozen=True, slots=True)
class AtLeast:
    """A check that a duration is at least `lowest_ns`; `fix` is the advice in its message."""

    lowest_ns: int
    fix: str

    def __call__(self, reading: Reading, key: Key, value: Value, data: object) -> None:
        """Raise Refused for a shorter duration."""
        assert isinstance(data, int)
        if data < self.lowest_ns:
            found, lowest = duration_text(data), duration_text(self.lowest_ns)
            raise Refused(value.place, f'"{key.name}" is {found}, the shortest is {lowest}', self.fix)


port_in_range = Between(-1, 65535, "use a port from 1 to 65535, or -1 for any free one")
count_31 = Between(0, INT32_MAX, "use a number from 0 to 2147483647")
positive_duration = AtLeast(0, "use a positive duration, or leave the key out for the default")
