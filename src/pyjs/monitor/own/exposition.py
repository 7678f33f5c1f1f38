"""The Prometheus text format: families of samples; each sample has labels.

Source: prometheus.io "Text-based format"; checked with the parser of the official Python client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyjs.monitor.own.samples import Table

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
STEP = 500  # samples written between two yields: about a third of a millisecond
TABLE_STEP = 2_000  # the same for rows of a table


class Family(NamedTuple):
    """One metric: its name, its type and its help line."""

    name: str
    kind: str  # gauge | counter
    help: str


def labels(**values: str) -> str:
    """Return `values` as the labels of a sample, in braces."""
    return "{" + ",".join([f'{name}="{escaped(value)}"' for name, value in values.items()]) + "}"


def extended(of: str, **values: str) -> str:
    """Return the formatted labels `of` with further labels appended."""
    return of[:-1] + "," + labels(**values)[1:]


def escaped(value: str) -> str:
    """Return the value of a label with the escapes of the format."""
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return value


class Page:
    """The samples of one answer, in groups of families.

    A group has rows, each of which has labels and one value for each family.
    """

    def __init__(self) -> None:
        self._groups: dict[tuple[Family, ...], list[tuple[str, tuple[float, ...]]]] = {}
        self._tables: list[tuple[tuple[Family, ...], Table]] = []

    def add(self, family: Family, labels: str, value: float) -> None:
        """Add one sample."""
        self.rows((family,)).append((labels, (value,)))

    def rows(self, families: tuple[Family, ...]) -> list[tuple[str, tuple[float, ...]]]:
        """Return the list of rows for a group of families; the caller appends rows to it.

        A row has labels, and one value for each family. A family may be in only one group, since the format requires
        all samples of a family to be consecutive.
        """
        found = self._groups.get(families)
        if found is None:
            found = self._groups[families] = []
        return found

    def table(self, families: tuple[Family, ...], forms: bytes) -> Table:
        """Return a new table for a group of families, to which the caller adds rows.

        `forms` has one letter for each family, which is the form of the family's numbers.
        """
        made = Table(tuple(family.name.encode() for family in families), forms)
        self._tables.append((families, made))
        return made

    def pieces(self) -> Generator[None, None, list[bytes]]:
        """Return the text of the page as a list of pieces; yield between steps."""
        pieces, written = [], 0
        for piece, weight in self._texts():
            pieces.append(piece)
            written += weight
            if written >= STEP:
                written = 0
                yield
        return pieces

    def _texts(self) -> Iterator[tuple[bytes, int]]:
        """Yield each piece of the text with its weight; a step ends when the weights of its pieces reach STEP."""
        for families, rows in self._groups.items():
            for column, family in enumerate(families):
                name = family.name
                yield _head(family), 0
                for at in range(0, len(rows), STEP):
                    some = rows[at : at + STEP]
                    text = "".join([f"{name}{each} {values[column]}\n" for each, values in some])
                    yield text.encode(), len(some)
        for families, table in self._tables:
            for column, family in enumerate(families if len(table) else ()):
                yield _head(family), 0
                for at in range(0, len(table), TABLE_STEP):
                    count = min(len(table) - at, TABLE_STEP)
                    yield table.text(column, at, at + count), count * STEP // TABLE_STEP


def _head(family: Family) -> bytes:
    """Return the lines that precede the samples of a family."""
    return f"# HELP {family.name} {escaped(family.help)}\n# TYPE {family.name} {family.kind}\n".encode()
