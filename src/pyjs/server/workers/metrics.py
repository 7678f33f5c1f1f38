"""/metrics of all workers, combined to one page of the server.

Counters of connections, accounts and the use of JetStream are added up; the samples about the turns of an event loop
get the label `worker`. The families of /varz, /healthz, /subsz and /routez are made from the combined JSON pages of
these names. If other samples of several workers have the same labels, the sample of the first worker is used; a
stream is in only one worker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.monitor.own.exposition import Family, Page, extended, labels
from pyjs.monitor.own.flattened import flatten
from pyjs.monitor.own.metrics import LOOP, add_health, summed

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence
    from typing import Any

    Steps = Generator[None, None, list[bytes]]

STEP = 5_000  # lines read between two yields
OF_PAGES = ("varz", "healthz", "subsz", "routez")
WORKER = (
    Family("pyjs_worker_ready", "gauge", "Whether the worker is ready; 0: it is being started again."),
    Family("pyjs_worker_restarts_total", "counter", "The restarts of the worker after crashes."),
)


def server_page(name: str, prefix: str, pages: Mapping[str, Mapping[str, Any]], health: int) -> Page:
    """Return the samples that are made from the combined JSON pages.

    `pages` has the combined JSON pages by name, and `health` is the HTTP status of /healthz.
    """
    page, core, of_server = Page(), prefix or "gnatsd", labels(server_id=name)
    for path in ("varz", "subsz", "routez"):
        flatten(page, f"{core}_{path}", of_server, pages[path])
    add_health(page, core, of_server, health, pages["healthz"])
    for worker in pages["varz"].get("pyjs_workers", ()):
        row = extended(of_server, worker=str(worker["number"]))
        page.rows(WORKER).append((row, (int(worker["state"] == "ready"), worker["restarts"])))
    return page


def combined(page: Page, prefix: str, texts: Sequence[tuple[int, bytes]]) -> Steps:
    """Combine `page` with the workers' /metrics texts in steps, and return the text in pieces.

    `texts` has the number and the text of each worker.
    """
    left_out = tuple(f"{prefix or 'gnatsd'}_{name}".encode() for name in OF_PAGES)
    merger = _Merger(left_out, frozenset(map(str.encode, summed(prefix))))
    for number, text in texts:
        yield from merger.read(number, text)
    pieces = yield from page.pieces()
    return pieces + merger.pieces()


class _Merger:
    """A merger of the metric families in the /metrics texts of several workers."""

    def __init__(self, left_out: tuple[bytes, ...], added: frozenset[bytes]) -> None:
        self._left_out = left_out  # beginnings of names
        self._added = added
        self._of_worker = frozenset(family.name.encode() for family in LOOP)
        self._families: dict[
            bytes, tuple[list[bytes], dict[bytes, bytes]]
        ] = {}  # name -> head, value by sample

    def read(self, number: int, text: bytes) -> Generator[None, None, None]:
        """Add the text of the worker with this number, in steps."""
        head: list[bytes] = []
        lines = text.split(b"\n")  # not splitlines(): a label may contain a carriage return
        for at, line in enumerate(lines):
            if at % STEP == STEP - 1:
                yield
            if not line:
                continue
            if line.startswith(b"# HELP"):
                head = [line]
            elif line.startswith(b"#"):
                name = line.split(b" ")[2]
                rows = self._families.setdefault(name, ([*head, line], {}))[1]
            else:
                self._add(name, rows, line, number)

    def _add(self, name: bytes, rows: dict[bytes, bytes], line: bytes, number: int) -> None:
        sample, _, value = line.rpartition(b" ")
        if name in self._of_worker:
            rows[sample[:-1] + b',worker="%d"}' % number] = value
        elif sample not in rows:
            rows[sample] = value
        elif name in self._added:
            rows[sample] = b"%d" % (int(rows[sample]) + int(value))

    def pieces(self) -> list[bytes]:
        """Return the text of each family, except those that are left out."""
        return [
            b"\n".join([*head, *[b"%b %b" % row for row in rows.items()], b""])
            for name, (head, rows) in self._families.items()
            if not name.startswith(self._left_out)
        ]
