"""A start with an empty store loads what it runs and nothing more: every module that comes in late is time saved."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.unit.jetstream.jsfixture import JetStreamFixture

from pyjs.config.options import JetStreamOptions, Options

# A node without its shell, from the command line to the first PONG. It runs in an interpreter of its own and prints
# which modules came in, but for those that any interpreter has here.
SCRIPT = r"""
import sys
bare = set(sys.modules)
import pyjs.cli, pyjs.node, pyjs.jetstream.service
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

SLOW = """
    argparse ast asyncio base64 bcrypt contextlib copy dataclasses datetime difflib dis enum hashlib inspect json
    linecache msgpack orjson pathlib platform pydantic re ssl string struct tempfile tokenize traceback typing uuid
    xxhash
"""
NOT_YET = """
    pyjs.config.lexer pyjs.config.parser pyjs.config.tables pyjs.jetstream.api.router pyjs.jetstream.api.table
    pyjs.jetstream.consumer pyjs.jetstream.consumers pyjs.jetstream.errcodes pyjs.jetstream.models
    pyjs.jetstream.persist pyjs.jetstream.stream pyjs.jetstream.streams pyjs.monitor pyjs.store.filestore
    pyjs.store.memstore
"""


def started(store: Path) -> tuple[set[str], set[str]]:
    """Start on `store`; return what was loaded at the first PONG, and what at the end."""
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(store)], capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stderr) == (0, "")
    until_pong, until_stop = ({*line.split()} for line in run.stdout.splitlines())
    return until_pong, until_stop


def test_a_start_with_an_empty_store_loads_nothing_that_can_wait(tmp_path: Path) -> None:
    until_pong, until_stop = started(tmp_path / "store")

    assert until_pong & {*SLOW.split(), *NOT_YET.split()} == set()
    assert until_stop == until_pong


def test_a_start_that_recovers_streams_loads_no_json_library(tmp_path: Path) -> None:
    # given
    js = JetStreamFixture(Options(jetstream=JetStreamOptions(enabled=True, store_dir=str(tmp_path))))
    js.add("S", subjects=["s.>"], storage="file")
    js.node.stop()
    # when
    until_pong, _ = started(tmp_path)
    # then
    assert "pyjs.jetstream.stream" in until_pong
    assert until_pong & {"dataclasses", "hashlib", "json", "orjson", "typing", "uuid"} == set()


def test_the_shell_loads_nothing_that_is_slow() -> None:
    script = """
import sys
bare = set(sys.modules)
import pyjs.server.server, pyjs.server.signals, pyjs.server.loop, pyjs.server.allocator, pyjs.server.syncer
import pyjs.server.io_thread
print(*sorted(set(sys.modules) - bare))
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    loaded = set(run.stdout.split()) - {"enum"}  # the standard library's socket and signal are made with it
    assert loaded & {*SLOW.split(), *NOT_YET.split(), "threading", "importlib", "queue"} == set()
