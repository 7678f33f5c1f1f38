"""Make the golden store of consumers with dead letters: `python -m tests.golden.make_letters`.

Run it before a change of the consumers' state. Writes letters-<version>.tar.xz in letters/, the store directory of
a node that was killed, whose consumers' logs have changes of every kind, and the .json of what was in it. The node
has a virtual clock and a seeded generator of random numbers, so the store has the same bytes each time.
"""

from __future__ import annotations

import json
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from tests.unit.jetstream.deadfixture import STREAM_KEY, Dead
from tests.unit.jetstream.jsfixture import JetStreamFixture

from pyjs.config.options import JetStreamOptions, Options

HERE = Path(__file__).parent / "letters"
NAME = "letters-1"
CONSUMERS = ("c", "all", "g")
MESSAGES = 8
ROOM = 2  # letters; the others wait
INFO = ("config", "created", "delivered", "ack_floor", "num_ack_pending", "num_redelivered", "num_pending")
NS = 1_000_000_000


class Golden(Dead):
    """A node on a store directory, with the vocabulary of dead letters."""

    def __init__(self, directory: Path, now_ns: int | None = None) -> None:
        options = Options(jetstream=JetStreamOptions(enabled=True, store_dir=str(directory)))
        JetStreamFixture.__init__(self, options, now_ns=now_ns)
        self.inbox = self.client()
        self.inbox.send(b"SUB in.> 1\r\n")
        self.inbox.take()

    def write(self) -> None:
        """Store changes of every kind; most letters wait, since there is no room for them."""
        self.add("D", subjects=["$DLQ.S.>"], storage="file", max_msgs=ROOM, discard="new")
        metadata = {STREAM_KEY: "D"}
        self.add("S", subjects=["s.>"], storage="file", retention="interest", metadata=metadata)
        self.consumer("c", max_deliver=2, ack_wait=20 * NS)
        self.consumer("all", ack_policy="all", max_deliver=2, ack_wait=20 * NS)
        group = {"priority_groups": ["G"], "priority_policy": "pinned_client", "priority_timeout": 10 * NS}
        self.consumer("g", max_deliver=2, ack_wait=20 * NS, **group)
        self.fill(MESSAGES)
        self._give_up_and_answer()
        self._acknowledge_all()
        self._rewrite()

    def _give_up_and_answer(self) -> None:
        """Let one letter of each reason be stored, then one of each wait; nak, delay, prolong, acknowledge others."""
        got = self.pull("c", batch=7)
        self.ack(got[0], b"+TERM no such customer")
        self.ack(got[1], b"-NAK")
        self.ack(self.pull("c", batch=1)[0], b"-NAK")
        self.pull("c", batch=1)
        self.ack(got[2], b"+TERM")
        self.ack(got[3], b'-NAK {"delay": 30000000000}')
        self.ack(got[4], b"+WPI")
        self.ack(got[5])

    def _acknowledge_all(self) -> None:
        got = self.pull("all", batch=5)
        self.ack(got[0])
        self.ack(got[2], b"+TERM all")
        self.ack(got[3])

    def _rewrite(self) -> None:
        """Give up one delivery in a snapshot, and one in the changes after it."""
        got = self.pull("g", batch=3, group="G")
        self.ack(got[0], b"+TERM in the snapshot")
        self.core("g").acks.changes.lost = True
        self.ack(got[1])
        self.ack(got[2], b"+TERM in the log")

    def seen(self) -> dict[str, Any]:
        """Return what is in the streams and consumers."""
        return {
            "S": [self.api("STREAM.INFO.S", {"deleted_details": True})["state"], self.letters("S")],
            "D": [self.api("STREAM.INFO.D")["state"], self.letters()],
            "consumers": {name: self._consumer_seen(name) for name in CONSUMERS},
        }

    def _consumer_seen(self, name: str) -> dict[str, Any]:
        info, acks = self.info(name), self.core(name).acks
        for key in ("delivered", "ack_floor"):
            info[key].pop("last_active", None)
        kept = {key: info[key] for key in INFO}
        return kept | {"given_up": list(acks.exhausted.items()), "terms": list(acks.terms.items())}


def as_json(found: dict[str, Any]) -> str:
    """Return what was seen as text; bytes become text."""
    return json.dumps(found, indent=1, sort_keys=True, default=bytes.decode) + "\n"


def main() -> int:
    """Make the golden store."""
    HERE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        store, killed = Path(scratch) / "store", Path(scratch) / "killed"
        golden = Golden(store)
        golden.write()
        found = {"now_ns": golden.clock.now_ns(), "seen": golden.seen()}
        shutil.copytree(store, killed)
        golden.node.stop()
        with tarfile.open(HERE / f"{NAME}.tar.xz", "w:xz") as archive:
            archive.add(killed, "store", filter=_plain)
    (HERE / f"{NAME}.json").write_text(as_json(found))
    return 0


def _plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return an entry without owner and time."""
    info.uid = info.gid = info.mtime = 0
    info.uname = info.gname = ""
    return info


if __name__ == "__main__":
    sys.exit(main())
