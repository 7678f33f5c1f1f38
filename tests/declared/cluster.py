"""Plays a history on three servers: each step edits all files, reloads all servers, and may kill one of them."""

from __future__ import annotations

import random
import time
from pathlib import Path

from tests.conformance.harness.cluster import NAMES, ThreeServers
from tests.conformance.harness.process import our_command
from tests.declared.making import Step, Way
from tests.declared.playing import ACCOUNTS, Mismatch, Played, Report
from tests.support.raw import RawClient

SETTLE_S = 90.0


class PlayedCluster(Played):
    """Three servers with the same blocks."""

    def __init__(self, directory: Path, seed: int) -> None:
        self._rng = random.Random(seed)
        self._three = ThreeServers(our_command(), directory, ACCOUNTS.replace("BLOCKS", ""))
        self._at = NAMES[0]  # the server that is asked

    def play(self, history: list[Step]) -> None:
        """Play a history. Raises Mismatch."""
        self._three.start()
        try:
            for at, step in enumerate(history):
                try:
                    self._cluster_step(step)
                except AssertionError as error:
                    raise Mismatch(
                        f"step {at}, {step.way.value}: {error}\n{step.file()}\n{step.drift}"
                    ) from error
        finally:
            self._three.kill()

    def _cluster_step(self, step: Step) -> None:
        self._settled()
        self._drift(step)
        before = self._names()
        old = {name: self._three.server(name).config_path.read_text("utf-8") for name in NAMES}
        self._edit(step.file())
        code, planned = self._plan(self._three.server(self._at).config_path)
        if code == 1:
            for name, text in old.items():
                self._three.server(name).config_path.write_text(text, "utf-8")
            return
        for name in self._rng.sample(NAMES, 3):
            self._three.server(name).signal("HUP")
        if step.way is not Way.RELOAD:
            victim = self._rng.choice(NAMES)
            time.sleep(step.kill_after_ms / 1000)  # the fault comes at any moment
            self._three.server(victim).kill()
            self._at = next(name for name in NAMES if name != victim)
            self._three.start_processes(victim)
        after = self._wait_applied(planned, is_exact=step.way is Way.RELOAD)
        assert before <= self._names(), "a stream is gone"
        refused = {each["name"] for each in after["assets"] if each["action"] == "refuse"}
        self._expect_equal(step, refused)

    def _edit(self, blocks: str) -> None:
        """Write the blocks into the file of each server, for a reload and for its next start."""
        new = f"jetstream {{ {blocks} }} }}\n  R {{"
        for name in NAMES:
            server = self._three.server(name)
            for text, write in ((server.config_path.read_text("utf-8"), True), (server._config, False)):
                head, _, rest = text.partition("{user: a, password: p}], ")
                tail = rest.partition("\n  R {")[2]
                edited = f"{head}{{user: a, password: p}}], {new}{tail}"
                if write:
                    server.config_path.write_text(edited, "utf-8")
                else:
                    server._config = edited

    def _wait_applied(self, planned: Report, *, is_exact: bool) -> Report:
        """Wait until the plan has nothing to do but what it refuses; return it."""
        refused = {each["name"] for each in planned["assets"] if each["action"] == "refuse"}
        deadline = time.monotonic() + SETTLE_S
        while True:
            found = self._try_plan()
            waits = [
                each
                for each in found["assets"]
                if each["action"] in ("create", "update")
                or each.get("reason") == "no server answers"
                or (is_exact and each["action"] == "refuse" and each["name"] not in refused)
            ]
            if not waits and not found.get("error"):
                return found
            assert time.monotonic() < deadline, f"planned {planned}, and now {waits or found}"
            time.sleep(0.05)  # between two looks: another process applies

    def _try_plan(self) -> Report:
        try:
            _, found = self._plan(self._three.server(self._at).config_path)
        except AssertionError as error:  # there is no leader yet
            return {"assets": [], "error": str(error)}
        return found

    def _settled(self) -> None:
        """Wait until every server is well."""
        for name in NAMES:
            self._three.wait_healthy(name)

    def _client(self, user: str) -> RawClient:
        connect = b'CONNECT {"verbose":false,"headers":true,"no_responders":true,"user":"%b","pass":"p"}\r\n'
        return RawClient(self._three.server(self._at).port, connect=connect % user.encode(), timeout_s=30)
