"""Modules that a node loads: no event loop, and no library for unused features."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.unit.jetstream.jsfixture import JetStreamFixture

from pyjs.config.options import JetStreamOptions, Options

# A node without pyjs.server, from the command line to the first PONG. It runs in a separate interpreter and prints
# the loaded modules, except those that every interpreter on this machine loads.
SCRIPT = r"""
import sys
bare = set(sys.modules)
import pyjs.cli, pyjs.node, pyjs.jetstream.server
from os import urandom
from pyjs.base.clock import VirtualClock
from pyjs.base.disk import OsDisk
from pyjs.base.log import Log
from pyjs.base.rng import Rng
from pyjs.core.link import Link, Peer

class OsRng(Rng):
    def randbytes(self, count):
        return urandom(count)

class Output(Link):
    data = b""
    def write(self, data):
        self.data += data

line = pyjs.cli.parse_flags(["-js", "-sd", sys.argv[1]])
options = pyjs.cli.load_options(None, pyjs.cli.read_file, {}, line.flags)
node = pyjs.node.Node(options, VirtualClock(), OsRng(), OsDisk(), Log())
node.start_jetstream()
output = Output()
session = node.open_session(Peer("127.0.0.1", 1), output)
session.receive_data(b'CONNECT {"verbose":false,"lang":"go","version":"1.48.0","protocol":1}\r\nPING\r\n')
node.turn(node.clock.now_ns())
assert output.data.startswith(b"INFO {") and b"\r\nPONG\r\n" in output.data, output.data
print(*sorted(set(sys.modules) - bare))
node.stop()
print(*sorted(set(sys.modules) - bare))
"""

NOT_ASKED_FOR = {"asyncio", "bcrypt", "cramjam", "cryptography", "pydantic", "uvloop"}
# Modules of this server and of Python for secrets, scratch stores, proxies and accounts that share subjects: 15 ms in
# total.
NOT_ASKED_FOR |= {"hashlib", "ipaddress", "shutil", "tempfile", "pyjs.config.exchange.declared"}
# Modules for archives, schedules and traces: 35 ms in total.
NOT_ASKED_FOR |= {"tarfile", "zoneinfo", "pyjs.jetstream.stream.features.cron", "pyjs.core.tracing.trace"}
PACKAGES_NOT_ASKED_FOR = (
    *(
        "pyjs.archive",
        "pyjs.claims",
        "pyjs.cluster",
        "pyjs.core.trust",
        "pyjs.jetstream.transfer",
        "pyjs.models",
    ),
    *("pyjs.server.cluster", "pyjs.server.websocket", "pyjs.server.workers"),
)


def started(store: Path) -> tuple[set[str], set[str]]:
    """Start on `store`; return the modules loaded at the first PONG, and those loaded at the end."""
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(store)], capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stderr) == (0, "")
    until_pong, until_stop = ({*line.split()} for line in run.stdout.splitlines())
    return until_pong, until_stop


def test_a_node_loads_no_event_loop_and_no_library_that_its_options_do_not_ask_for(tmp_path: Path) -> None:
    # given
    js = JetStreamFixture(Options(jetstream=JetStreamOptions(enabled=True, store_dir=str(tmp_path))))
    js.add("S", subjects=["s.>"], storage="file")
    js.node.stop()
    # when
    until_pong, until_stop = started(tmp_path)
    # then
    assert "pyjs.jetstream.stream.stream" in until_pong
    assert until_pong & NOT_ASKED_FOR == set()
    assert [name for name in until_pong if name.startswith(PACKAGES_NOT_ASKED_FOR)] == []
    assert until_stop - until_pong == set()
