"""Values of a configuration file as the JSON of an API request.

The fields and their kinds are declared in pyjs.jetstream.config. This module adds the features of the file's
language: durations with units, a single string in place of a list, and keys in upper or lower case. The models of
pyjs.models then check the values. Every error has the place of the value.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING

from pyjs.base.units import parse_duration_ns
from pyjs.config.errors import Problem, suggestion
from pyjs.config.values import ConfigMap, Value, describe
from pyjs.models.base import faults

if TYPE_CHECKING:
    from typing import Any

    from pyjs.config.errors import Place
    from pyjs.jetstream.config.json_strict import Kind, Struct
    from pyjs.models.base import Options

    Path = tuple[str | int, ...]

NS_PER_MS = 1_000_000
PROBLEMS_MAX = 50
UNITS = "the units are ns, us, ms, s, m, h and d: 30d, 1h30m, 500ms"


class Reader:
    """A reader of the entries of assets, which adds each problem to `problems`."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems
        self._values: dict[Path, Value] = {}  # of the asset that is being read
        self._place: Place

    def read(
        self, entries: ConfigMap, place: Place, struct: Struct, model: type[Options]
    ) -> dict[str, Any] | None:
        """Return the fields of one asset as JSON, or None if there is a problem."""
        before = len(self.problems)
        self._values = {}
        self._place = place
        given = self._fields(entries, struct, ())
        if len(self.problems) > before:
            return None
        wrong = faults(model, json.dumps(given))
        for path, text in wrong:
            self._refuse(path, text)
        return None if wrong else given

    def _note(self, place: Place, cause: str, fix: str) -> None:
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(Problem(place, cause, fix))

    def _fields(self, entries: ConfigMap, struct: Struct, path: Path) -> dict[str, Any]:
        given: dict[str, Any] = {}
        for entry in entries.values():
            name = entry.key.lower()
            kind = struct.fields.get(name)
            if kind is None:
                if not entry.used:
                    otherwise = "docs/options.md lists the fields"
                    fix = suggestion(entry.key, struct.fields, otherwise)
                    self._note(entry.place, f'unknown field "{entry.key}"', fix)
            elif name in given:
                self._note(entry.place, f'"{entry.key}" is set twice', "remove one of the two")
            else:
                given[name] = self._read(entry.value, kind, (*path, name))
        return given

    def _read(self, value: Value, kind: Kind, path: Path) -> Any:
        """Return a value as JSON. A value of a wrong kind is returned unchanged, and the model will refuse it."""
        self._values[path] = value
        data = value.data
        if kind.name == "list" and kind.item is not None:
            items = data if isinstance(data, list) else [value]
            return [self._read(each, kind.item, (*path, at)) for at, each in enumerate(items)]
        if isinstance(data, ConfigMap):
            return self._read_map(data, kind, path)
        if isinstance(data, list):
            return [each.data if isinstance(each.data, str | int) else str(each.data) for each in data]
        if isinstance(data, datetime):
            return data.strftime("%Y-%m-%dT%H:%M:%SZ")
        if kind.name == "time.Duration":
            return self._read_duration(value, str(path[-1] if isinstance(path[-1], str) else path[-2]))
        return data

    def _read_map(self, data: ConfigMap, kind: Kind, path: Path) -> Any:
        if kind.struct is not None:
            return self._fields(data, kind.struct, path)
        if kind.name == "map" and kind.item is not None:
            return {name: self._read(entry.value, kind.item, (*path, name)) for name, entry in data.items()}
        return {}

    def _read_duration(self, value: Value, name: str) -> Any:
        data = value.data
        if isinstance(data, str):
            try:
                return parse_duration_ns(_without_days(data))
            except ValueError as error:
                self._note(value.place, f'"{name}" is no duration: {error} in "{data}"', UNITS)
                return 0
        if isinstance(data, bool) or not isinstance(data, int):
            return data
        if value.raw[-1:].isalpha():
            fix = f'write "{value.raw.lower()}" in quotes'
            self._note(value.place, f'"{name}" is the number {data} without quotes around {value.raw}', fix)
        elif 0 < abs(data) < NS_PER_MS:
            fix = f'write the unit: "{data}s" for seconds'
            self._note(value.place, f'"{name}" is {data} nanoseconds, too short to be meant', fix)
        return data

    def _refuse(self, path: Path, text: str) -> None:
        """Add the problem `text`, which the model found at `path`, with the place of the value there."""
        while path and path not in self._values:
            path = path[:-1]
        value, name = self._values.get(path), ".".join(str(each) for each in path)
        if value is None:
            self._note(self._place, f"the entry is invalid: {text}", "docs/options.md lists the fields")
        else:
            self._note(value.place, f'"{name}" is {describe(value)}', text)


def _without_days(text: str) -> str:
    """Return the text of a duration with its days converted to hours, since the language has no unit for days."""
    days, found, rest = text.partition("d")
    if found and days.isdecimal() and days.isascii() and len(days) < 7:
        return f"{int(days) * 24}h{rest}"
    return text
