"""Classes that are little more than their fields, made without writing and compiling source for each of them.

What `dataclasses` does for a class with slots, as far as it is needed here, and with the same words:

    @record(frozen=True)
    class Peer:
        ip: str
        port: int = 0
        tags: list[str] = field(default_factory=list)

One constructor, one comparison and one repr serve all classes: they walk over the fields, where a dataclass runs
code that was compiled for it. So a class costs some 20 microseconds and no import, which a start notices with dozens
of them, and an instance costs one or two, which nothing notices that is not made for every message: what is, writes
its `__init__` out. A record inherits from nothing and uses no `super()`.

Source: https://docs.python.org/3/library/dataclasses.html
"""

from __future__ import annotations

from pyjs.base import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias, TypeVar, dataclass_transform

    T = TypeVar("T")
    Field: TypeAlias = tuple[str, Callable[[object, object], None], object]  # name, setter, default
else:

    def dataclass_transform(**options):
        """Return a decorator that does nothing: only type checkers read it."""
        return lambda function: function


class _Factory:
    """Stands in a class body for a default that is made anew for each instance."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[[], object]) -> None:
        self.make = make


_REQUIRED = object()  # stands for the default of a field that has none


def field(*, default_factory: Callable[[], T]) -> T:
    """Return, for a class body, a default that `default_factory` makes for each instance."""
    return _Factory(default_factory)  # type: ignore[return-value]


@dataclass_transform(field_specifiers=(field,))
def record(
    *,
    frozen: bool = False,
    eq: bool = True,
    repr: bool = True,  # noqa: A002  the word of dataclasses
) -> Callable[[type[T]], type[T]]:
    """Return a decorator that makes records; without `eq` or `repr` they compare or look like plain objects."""

    def make(cls: type[T]) -> type[T]:
        names = tuple(cls.__annotations__)
        body = {name: value for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__")}
        defaults = [body.pop(name, _REQUIRED) for name in names]
        _check(cls, names, defaults)
        body["__slots__"] = body["__record_fields__"] = names
        if repr:
            body["__repr__"] = _repr
        if eq:
            body["__eq__"] = _eq
            body["__hash__"] = _hash if frozen else None
        if frozen:
            body["__setattr__"] = _refuse_set
            body["__delattr__"] = _refuse_delete
        made = type(cls.__name__, cls.__bases__, body)
        made.__qualname__ = cls.__qualname__
        if "__init__" not in body:
            setters = [vars(made)[name].__set__ for name in names]
            fields = tuple(zip(names, setters, defaults, strict=True))
            made.__init__ = _constructor(made, fields)  # type: ignore[misc]
        return made

    return make


def field_names(cls: type) -> tuple[str, ...]:
    """Return the names of a record's fields in their order; none for any other class."""
    names: tuple[str, ...] = getattr(cls, "__record_fields__", ())
    return names


def replace(instance: T, **changes: object) -> T:
    """Return a copy of a record with other values in some fields."""
    values = {name: getattr(instance, name) for name in field_names(type(instance))}
    return type(instance)(**values | changes)


# -- what all records share --------------------------------------------------------------------------------


def _check(cls: type, names: tuple[str, ...], defaults: list[object]) -> None:
    """Refuse a class that could not be used, or not for long."""
    optional = ""
    for name, default in zip(names, defaults, strict=True):
        if default is _REQUIRED and optional:
            raise TypeError(
                f"{cls.__qualname__}: {name} has no default and follows {optional}, which has one"
            )
        if type(default).__hash__ is None:
            kind = type(default).__name__
            raise ValueError(f"{cls.__qualname__}: all would share the {kind} {name}; use default_factory")
        if default is not _REQUIRED:
            optional = name


def _constructor(cls: type, fields: tuple[Field, ...]) -> Callable[..., None]:
    def __init__(self: object, *args: object, **given: object) -> None:
        count = len(args)
        if count > len(fields):
            raise _misuse(cls, fields, count, given)
        for (_, put, _), value in zip(fields, args):  # noqa: B905  fewer values than fields are right
            put(self, value)
        for name, put, default in fields[count:]:
            value = given.pop(name, default) if given else default
            if value is _REQUIRED:
                raise _misuse(cls, fields, count, given, name)
            put(self, value.make() if value.__class__ is _Factory else value)
        if given:
            raise _misuse(cls, fields, count, given)

    return __init__


def _misuse(
    cls: type, fields: tuple[Field, ...], count: int, given: dict[str, object], missing: str = ""
) -> TypeError:
    """Return what Python says of such a call; `missing` is the first field without a value."""
    call = f"{cls.__qualname__}.__init__()"
    names = [name for name, _, _ in fields]
    for name in given:
        if name not in names:
            return TypeError(f"{call} got an unexpected keyword argument '{name}'")
        if name in names[:count]:
            return TypeError(f"{call} got multiple values for argument '{name}'")
    required = [name for name, _, default in fields if default is _REQUIRED]
    if count > len(names):
        least, most = len(required) + 1, len(names) + 1  # with self
        takes = f"from {least} to {most}" if least < most else f"{most}"
        plural = "s" if most > 1 else ""
        return TypeError(f"{call} takes {takes} positional argument{plural} but {count + 1} were given")
    lacking = [f"'{name}'" for name in required[required.index(missing) :] if name not in given]
    comma = "," if len(lacking) > 2 else ""
    listed = f"{', '.join(lacking[:-1])}{comma} and {lacking[-1]}" if len(lacking) > 1 else lacking[0]
    plural = "s" if len(lacking) > 1 else ""
    return TypeError(f"{call} missing {len(lacking)} required positional argument{plural}: {listed}")


def _values(instance: object) -> tuple[object, ...]:
    return tuple([getattr(instance, name) for name in field_names(type(instance))])


def _repr(self: object) -> str:
    shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in field_names(type(self)))
    return f"{type(self).__qualname__}({shown})"


def _eq(self: object, other: object) -> object:
    if type(other) is not type(self):
        return NotImplemented
    return _values(self) == _values(other)


def _hash(self: object) -> int:
    return hash(_values(self))


def _refuse_set(self: object, name: str, value: object) -> None:
    raise AttributeError(f"cannot assign to field '{name}' of {type(self).__qualname__}: it is frozen")


def _refuse_delete(self: object, name: str) -> None:
    raise AttributeError(f"cannot delete field '{name}' of {type(self).__qualname__}: it is frozen")
