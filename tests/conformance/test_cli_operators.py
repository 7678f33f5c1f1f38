"""The `nats` command with an operator's credentials: its output is equal for both servers, and live views work.

Numbers, ids and times are masked. Of JSON answers, the names and types of fields are compared:
tests/conformance/test_system_account.py compares the values.
"""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from tests.conformance.harness import cli
from tests.conformance.harness.process import ServerProcess, our_command, peer_command
from tests.support.jwt_clients import TokenClient, World

from pyjs.testing.jwt import JETSTREAM, Key, credentials, user_token

PEER = peer_command()
NATS = cli.program()
MISSING = [name for name, found in (("peer", PEER), ("cli", NATS)) if found is None]
pytestmark = pytest.mark.skipif(
    any(name not in os.environ.get("PYJS_REQUIRE", "").split(",") for name in MISSING),
    reason="the nats command or nats-server is not here (make cli-walk builds the command)",
)
WAIT_S = 40.0
NAME = b"conformance"  # of the server
WORLD, ACCOUNT, USER = World(), Key("account"), Key("user")
WORLD.add(ACCOUNT, "ORDERS", limits=JETSTREAM)
STEPS = {
    "admin": [
        "server ls",
        "server info",
        "server ping",
        "server report connections",
        "server report accounts",
        "server report jetstream",
        "server report cpu",
        "server report mem",
        "server report health",
        "server check connection",
        "server check server --name conformance",
        "server check credential --credential admin.creds",
        "server request connections",
        "server request subscriptions",
        "server request jetstream-health",
        "server request accounts",
        "server request routes",
        f"server request accounts --account {ACCOUNT.public}",
        f"server account info {ACCOUNT.public}",
    ],
    "alice": [
        "account info",
        "account report connections",
        "account report statistics",
        "account tls",
        "server check connection",
        "server check jetstream",
        "server check stream --stream MISSING",
        "server ls",
    ],
}
# Live views, and the text that each shows eventually; alice works meanwhile.
WATCHES = {
    "servers": NAME,
    "servers --sort mem": NAME,
    "jetstream": NAME,
    "accounts": b"ORDERS",
    "accounts --sort subs": b"ORDERS",
    "api requests": b"stream_names_request",
}


class Desk:
    """One server, and the credentials of the people who use it."""

    def __init__(self, command: list[str], directory: Path) -> None:
        directory.mkdir()
        self.server = ServerProcess(
            command, WORLD.config('jetstream { store_dir: "<<store>>" }'), directory, with_http=False
        )
        admin = user_token(WORLD.system, WORLD.admin, "admin")
        (directory / "admin.creds").write_text(credentials(admin, WORLD.admin))
        (directory / "alice.creds").write_text(credentials(user_token(ACCOUNT, USER, "alice"), USER))
        self._directory = directory
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(directory),
            "TZ": "UTC",
            "COLUMNS": "200",
            "NO_COLOR": "1",
        }

    def line(self, who: str, step: str) -> list[str]:
        assert NATS is not None
        url = f"nats://127.0.0.1:{self.server.port}"
        return [NATS, "--server", url, "--creds", f"{who}.creds", "--timeout", "5s", *step.split()]

    def run(self, who: str, step: str) -> list[object]:
        """Run a command; return its exit code and its output, without values that differ between two servers."""
        done = subprocess.run(
            self.line(who, step),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd=self._directory,
            env=self._environment,
            timeout=WAIT_S,
        )
        return [
            done.returncode,
            shape(done.stdout) if " request " in f" {step}" else masked(done.stdout + done.stderr),
        ]

    def work(self) -> None:
        """Connect as alice, and request the stream list."""
        with closing(TokenClient(self.server.port, user_token(ACCOUNT, USER, "alice"), USER)) as alice:
            alice.request(b"$JS.API.STREAM.NAMES")

    def watch(self, what: str) -> bool:
        """Return whether a live view, which needs a terminal, shows the expected text."""
        terminal, inside = pty.openpty()
        termios.tcsetwinsize(inside, (40, 200))
        process = subprocess.Popen(
            self.line("admin", f"server watch {what}"),
            stdin=inside,
            stdout=inside,
            stderr=inside,
            cwd=self._directory,
            env={**self._environment, "TERM": "xterm"},
            start_new_session=True,
        )
        os.close(inside)
        shown, deadline = b"", time.monotonic() + WAIT_S
        try:
            while WATCHES[what] not in shown and time.monotonic() < deadline:
                self.work()
                if select.select([terminal], [], [], 0.5)[0]:
                    shown += os.read(terminal, 65536)
        except OSError:
            pass  # the command has ended
        finally:
            process.kill()
            process.wait()
            os.close(terminal)
        return WATCHES[what] in shown


def masked(text: str) -> list[str]:
    """Return the lines of a text with # in place of each number and its unit, and without ids."""
    for pattern, mask in cli.MASKS:
        text = pattern.sub(mask, text)
    text = re.sub(r"\b[0-9a-f]{64}\b", "<digest>", text)
    text = re.sub(r"(Storage Directory|Write sync Frequency): .*", r"\1", text)
    # A duration below a second is masked already: whether the server is that young is chance.
    text = re.sub(r"<duration>|\d[\d.,]*( ?(B|KiB|MiB|GiB|TiB|s|ms|µs|h|m)\b)?", "#", text)
    text = re.sub(r"(Git Commit|Go Version): .*", r"\1", text)
    text = re.sub(r"[│┃╭╮╰╯├┤┬┴┼─]+", "|", text)
    return [re.sub(r" +", " ", line).strip() for line in text.splitlines()]


def shape(text: str) -> object:
    """Return the names and types of the fields of a JSON document."""
    return _shape(json.loads(text[text.index("{") :]))


def _shape(value: object) -> object:
    if isinstance(value, dict):
        return {name: _shape(each) for name, each in value.items()}
    if isinstance(value, list):
        return sorted({json.dumps(_shape(each), sort_keys=True) for each in value})
    return (
        "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__
    )


@pytest.fixture(scope="module")
def desks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Desk]]:
    assert PEER is not None
    directory = tmp_path_factory.mktemp("cli")
    with ExitStack() as stack:
        both = [Desk(PEER, directory / "peer"), Desk(our_command(), directory / "ours")]
        for desk in both:
            stack.callback(desk.server.kill)
            desk.server.start()
        yield both


@pytest.mark.parametrize(
    ("who", "step"),
    # The ids are numbers, because the steps contain keys that each process generates.
    [
        pytest.param(who, step, id=f"{who}-{at}")
        for who, steps in STEPS.items()
        for at, step in enumerate(steps)
    ],
)
def test_a_command_says_the_same_of_both_servers(desks: list[Desk], who: str, step: str) -> None:
    peer, ours = (desk.run(who, step) for desk in desks)
    assert ours == peer


@pytest.mark.parametrize("what", WATCHES)
def test_a_live_view_shows_what_happens(desks: list[Desk], what: str) -> None:
    assert [desk.watch(what) for desk in desks] == [True, True]
