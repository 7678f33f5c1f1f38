"""The NATS configuration language: the text of a file, its includes and variables, read into one map.

The parser neither opens files nor reads the process environment: `read` returns the text of a path (or raises
OSError), and `environ` is a mapping of variables. This module knows nothing of the meaning of keys.

    file    = { group | entry }                   a group is "{" file "}", so JSON is accepted too
    entry   = key [ "=" | ":" ] value end | "include" path end
    value   = map | list | string | number | bool | date | "$" name
    map     = "{" { entry } "}"
    list    = "[" { value end } "]"
    end     = a line end, a comma, in maps also a semicolon, or the end of the map, list or file

A variable refers to an earlier key in the enclosing maps, innermost first. If there is no such key, the variable
refers to an environment variable, whose text is parsed as a value of this language. Included keys are added to the
including map. The path of an include is relative to the including file, and the included file does not see variables
of that file.

Source: behaviour of nats-server 2.15.1, compared in tests/unit/config/test_peer.py. Unlike nats-server, this parser
accepts an absolute include path, a list that ends in a number, a comma at the start of a line, and a value after a
line end.
"""

from __future__ import annotations

from posixpath import dirname, isabs, normpath
from typing import TYPE_CHECKING

from pyjs.base.errors import reason_of
from pyjs.config.errors import ConfigError, Place, Problem, did_you_mean
from pyjs.config.lexer import Lexer, Variable
from pyjs.config.values import ConfigMap, Entry, Value, note_repeated

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeAlias

Read: TypeAlias = "Callable[[str], str]"

DEPTH_MAX = 100  # levels of maps, lists, includes and references; protects the C stack
FILES_MAX = 1000  # files included by one configuration
SIZE_MAX = 8 << 20  # characters of all files and variables together
VALUES_MAX = 1_000_000  # number of values; a value counts once for each reference to it


def parse_file(
    path: str, read: Read, environ: Mapping[str, str], twice: list[Problem] | None = None
) -> ConfigMap:
    """Parse the file at `path` with its includes, and return its entries.

    If `twice` is given, add to it a problem for each key that is set twice in one block of a file.

    Raises:
        ConfigError: a file cannot be read, contains a syntax error, or exceeds a limit.
    """
    try:
        text = read(path)
    except OSError as error:
        fix = "give the path of a file that can be read"
        raise ConfigError.at(Place("", 0, 0), f"open {path}: {reason_of(error)}", fix) from error
    whole = _Whole(twice)
    return Parser(Lexer(text, path), read, environ, including=(normpath(path),), whole=whole).parse()


def _read_nothing(path: str) -> str:
    raise FileNotFoundError(2, "No such file or directory", path)


class _Whole:
    """The numbers of files, characters and values of a whole configuration, and the checks of their limits."""

    __slots__ = ("_shapes", "_size", "_twice", "_values", "files")

    def __init__(self, twice: list[Problem] | None = None) -> None:
        self._twice = [] if twice is None else twice
        self.files = 0  # number of included files
        self._size = 0  # characters read so far
        self._values = 0
        # By id of a map or list: (the object, so that the id stays unique; its number of values; its levels).
        self._shapes: dict[int, tuple[object, int, int]] = {}

    def read(self, text: str, place: Place) -> None:
        """Count the characters of a file or variable; raise ConfigError at `place` if there are too many."""
        self._size += len(text)
        if self._size > SIZE_MAX:
            cause = f"the configuration has more than {SIZE_MAX} characters, includes and variables counted"
            raise ConfigError.at(place, cause, "write a smaller one")

    def compare(self, first: Entry | None, second: Entry) -> None:
        """Add a problem if `first`, an earlier entry with the same key in the same block, is in the same file."""
        if first is not None:
            note_repeated(self._twice, first, second)

    def note(self, data: ConfigMap | list[Value]) -> None:
        """Store the number of values of a map or list, and the number of its levels, for `use`."""
        values = data if isinstance(data, list) else [entry.value for entry in data.values()]
        shapes = [self._shape(value.data) for value in values]
        count = 1 + sum(count for count, _ in shapes)
        self._shapes[id(data)] = (data, count, 1 + max((depth for _, depth in shapes), default=0))

    def use(self, value: Value, depth: int) -> None:
        """Count the values of `value`, which is inserted `depth` levels below the top.

        Raises:
            ConfigError: there are too many values or levels.
        """
        count, levels = self._shape(value.data)
        if depth + levels > DEPTH_MAX:
            cause = f"maps, lists and references are nested more than {DEPTH_MAX} deep"
            raise ConfigError.at(value.place, cause, "use fewer levels")
        self._values += count
        if self._values > VALUES_MAX:
            cause = f"the configuration has more than {VALUES_MAX} values, each counted wherever it is referred to"
            raise ConfigError.at(value.place, cause, "refer to fewer")

    def _shape(self, data: object) -> tuple[int, int]:
        """Return the number of values and the number of levels of `data`; a single value has no levels."""
        return self._shapes[id(data)][1:] if isinstance(data, ConfigMap | list) else (1, 0)


class Parser:
    """A parser of one file, or of the value of one environment variable."""

    __slots__ = ("_depth", "_environ", "_including", "_lexer", "_read", "_resolving", "_scopes", "_whole")

    def __init__(
        self,
        lexer: Lexer,
        read: Read,
        environ: Mapping[str, str],
        including: tuple[str, ...],
        resolving: tuple[str, ...] = (),
        whole: _Whole | None = None,
        depth: int = 0,
    ) -> None:
        self._lexer = lexer
        self._read = read
        self._environ = environ
        self._including = including  # the chain of including files, outermost first
        self._resolving = resolving  # the chain of environment variables being parsed
        self._scopes: list[ConfigMap] = []
        self._depth = depth  # levels around this file, including those of including files
        self._whole = whole or _Whole()

    def parse(self) -> ConfigMap:
        """Parse the whole file; return its entries."""
        lexer = self._lexer
        self._whole.read(lexer.text, lexer.place(0))
        scope = ConfigMap()
        self._scopes.append(scope)
        groups: list[int] = []  # offsets of the open groups
        lexer.skip_gap()
        while char := lexer.peek():
            if char == "{":
                groups.append(lexer.at)
                lexer.at += 1
            elif char == "}":
                if not groups:
                    lexer.fail(
                        "this } closes nothing", "remove it, or look above for a block closed too early"
                    )
                groups.pop()
                lexer.at += 1
                lexer.skip_gap()
                lexer.take_char(",;")
            else:
                self._entry(scope)
                self._end(",;", "}")
            lexer.skip_gap()
        # nats-server accepts a file without its last } if the last entry ends with its line.
        if groups and not lexer.text.rstrip(" \t").endswith("\n"):
            lexer.fail("the { here is never closed", "add a } at the end of the file", groups[-1])
        return scope

    def _entry(self, scope: ConfigMap) -> None:
        """Read one entry, or the entries of an included file, into `scope`."""
        lexer = self._lexer
        place = lexer.place()
        key, quoted = lexer.take_key()
        if key.lower() == "include" and not quoted:
            lexer.skip_spaces()
            lexer.take_char("=:")
            self._include(scope, place)
            return
        lexer.skip_spaces(newlines=True)
        if lexer.take_char("=:"):
            # At the top level, a value must be on the line of its key; only a block may start on a later line.
            before = lexer.at
            lexer.skip_spaces(newlines=True)
            if len(self._scopes) == 1 and lexer.peek() not in ("{", "[", "("):
                lexer.at = before
                lexer.skip_spaces()
        entry = Entry(key, place, self._value(f'"{key}"'))
        self._whole.compare(scope.get(key), entry)
        scope.put(entry)

    def _value(self, key: str) -> Value:
        lexer = self._lexer
        char = lexer.peek()
        if char == "{" or char == "[":
            return self._nested(char, key)
        taken = lexer.take_scalar(key)
        value = self._resolve(taken) if isinstance(taken, Variable) else taken
        self._whole.use(value, self._depth)
        return value

    def _nested(self, char: str, key: str) -> Value:
        lexer = self._lexer
        start = lexer.at
        if self._depth >= DEPTH_MAX:
            lexer.fail(f"maps and lists are nested more than {DEPTH_MAX} deep", "use fewer levels")
        self._depth += 1
        lexer.at += 1
        data = self._map(start, key) if char == "{" else self._list(start, key)
        self._depth -= 1
        self._whole.note(data)
        return Value(data, lexer.place(start))

    def _map(self, start: int, key: str) -> ConfigMap:
        lexer = self._lexer
        scope = ConfigMap()
        self._scopes.append(scope)
        lexer.skip_gap()
        while not lexer.take_char("}"):
            if not lexer.peek():
                lexer.fail(f"the map of {key} is never closed", "add the missing }", start)
            self._entry(scope)
            self._end(",;", "}")
            lexer.skip_gap()
        self._scopes.pop()
        return scope

    def _list(self, start: int, key: str) -> list[Value]:
        lexer = self._lexer
        values: list[Value] = []
        lexer.skip_gap()
        while not lexer.take_char("]"):
            if not lexer.peek():
                lexer.fail(f"the list of {key} is never closed", "add the missing ]", start)
            if lexer.peek() in ",;}":
                lexer.fail(
                    f"{key} lacks an element, found {lexer.found()}", "remove it, or close the list with ]"
                )
            values.append(self._value(key))
            self._end(",", "]")
            lexer.skip_gap()
        return values

    def _end(self, separators: str, closer: str) -> None:
        """Skip the separators after a value, or stop before `closer`; raise ConfigError at any other text."""
        lexer = self._lexer
        line_ended = lexer.skip_gap()
        if lexer.take_char(separators) or line_ended:
            return
        if lexer.peek() and lexer.peek() != closer:
            fix = "put a text with spaces in quotes, and the next one after a comma or on a new line"
            lexer.fail(
                f"the value before this ends with a line end, a comma or {closer}, found {lexer.found()}", fix
            )

    def _include(self, scope: ConfigMap, place: Place) -> None:
        lexer = self._lexer
        at = lexer.at
        path = lexer.take_path()
        if not path:
            lexer.fail("include has no path", 'write include "file.conf"', at)
        for entry in self._included(path, place).values():
            scope.put(entry)

    def _included(self, path: str, place: Place) -> ConfigMap:
        """Parse the included file and return its entries; `place` is that of the include."""
        self._whole.files += 1
        if self._depth >= DEPTH_MAX or self._whole.files > FILES_MAX:
            limit = f"{DEPTH_MAX} levels deep" if self._depth >= DEPTH_MAX else f"{FILES_MAX} files"
            cause = f'include "{path}": there are includes of more than {limit}'
            raise ConfigError.at(place, cause, "include fewer files")
        beside = normpath(f"{dirname(self._lexer.file) or '.'}/{path}")
        for candidate in (beside, path) if isabs(path) else (beside,):
            if candidate in self._including:
                cause = f'include "{path}" includes a file that is being read: ' + " -> ".join(
                    self._including
                )
                raise ConfigError.at(place, cause, "break the cycle")
            try:
                text = self._read(candidate)
            except OSError as error:
                reason = reason_of(error)
                continue
            including = (*self._including, candidate)
            lexer, depth = Lexer(text, candidate), self._depth + 1
            return Parser(lexer, self._read, self._environ, including, whole=self._whole, depth=depth).parse()
        cause = f'include "{path}": open {beside}: {reason}'
        raise ConfigError.at(place, cause, "give a path relative to the file that includes")

    def _resolve(self, variable: Variable) -> Value:
        """Return the value of `variable`, with the place of the reference."""
        for scope in reversed(self._scopes):
            entry = scope.get(variable.name)
            if entry is not None:
                entry.used = True
                return Value(entry.value.data, variable.place, entry.value.raw)
        return self._resolve_in_environment(variable)

    def _resolve_in_environment(self, variable: Variable) -> Value:
        name, place = variable.name, variable.place
        if name in self._resolving:
            cause = f"environment variable {name} refers to itself through " + " -> ".join(self._resolving)
            raise ConfigError.at(place, cause, "break the cycle")
        text = self._environ.get(name)
        if text is None:
            cause = f"variable reference for '{name}' can not be found"
            known = sorted({key for scope in self._scopes for key in scope})
            fix = f"set {name} above this line or in the environment, or quote the text if it is no variable"
            raise ConfigError.at(place, cause, _with_near(name, known, fix))
        if self._depth >= DEPTH_MAX:
            cause = f"variables are nested more than {DEPTH_MAX} deep"
            raise ConfigError.at(place, cause, "use fewer levels")
        lexer = Lexer(f"value={text}", f"environment variable {name}")
        resolving = (*self._resolving, name)
        parser = Parser(
            lexer, _read_nothing, self._environ, (), resolving, whole=self._whole, depth=self._depth + 1
        )
        try:
            entry = parser.parse().get("value")
        except ConfigError as error:
            cause = f"environment variable {name} cannot be read as a value: {error.problems[0].cause}"
            raise ConfigError.at(place, cause, error.problems[0].fix) from error
        assert entry is not None
        return Value(entry.value.data, place, entry.value.raw)


def _with_near(name: str, known: list[str], fix: str) -> str:
    near = did_you_mean(name, known)
    return f'did you mean "${near}"? Otherwise {fix}' if near else fix
