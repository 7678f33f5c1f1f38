"""Plays scenes: on running servers of ours, and for nats-server usually from recordings of the results.

A scene is a function that takes three running servers and returns what clients saw, as JSON values. The results of
nats-servers are kept in `recorded_scenes/`, under a key made of the version of nats-server and the code of the
module with the scenes. A scene whose current key has no recording plays on three running nats-servers, as all do with
PYJS_CONFORMANCE=live; so do some of the others, which the commit chooses. PYJS_CONFORMANCE=record stores the results.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.conformance.harness.cluster import ThreeServers, three
from tests.conformance.harness.process import our_command, peer_command
from tests.conformance.harness.recordings import LIVE_EVERY, PEER_VERSION, code_digest
from tests.support.turns import commit_of_tree, is_chosen

RECORDED = Path(__file__).resolve().parents[1] / "recorded_scenes"
MODE = os.environ.get("PYJS_CONFORMANCE", "")
Scene = Callable[[ThreeServers], Any]


class Stage:
    """Both kinds of servers; they are started for the first scene that needs them."""

    def __init__(
        self, source: Path, directory: Path, common: str, ready: Scene, own: dict[str, str] | None = None
    ) -> None:
        self._directory = directory
        self._common = common
        self._own = own
        self._ready = ready
        self._name = source.stem
        self._key = f"{PEER_VERSION} {code_digest(source)[:16]}"
        self._running: dict[str, ThreeServers] = {}
        self._stack = ExitStack()

    def close(self) -> None:
        """End all servers."""
        self._stack.close()

    def both(self, scene: Scene, name: str) -> tuple[Any, Any]:
        """Play a scene; return the results of our servers and of nats-servers."""
        peer = self.peer(scene, name)
        return self.played("ours", scene), peer

    def peer(self, scene: Scene, name: str) -> Any:
        """Return the results of nats-servers: recorded, or live."""
        kept = self._kept().get(name)
        is_live = kept is None or MODE in ("live", "record") or is_chosen(name, commit_of_tree(), LIVE_EVERY)
        peer = self.played("peer", scene) if is_live else kept
        if MODE == "record":
            self._keep(name, peer)
        elif is_live and kept is not None:
            assert peer == kept, f"record {name} again: make recordings"
        return peer

    def played(self, kind: str, scene: Scene) -> Any:
        """Play a scene on servers of one kind and return its results."""
        servers = self._servers(kind)
        self._ready(servers)
        try:
            return json.loads(json.dumps(scene(servers)))
        finally:
            servers.release()

    def _servers(self, kind: str) -> ThreeServers:
        if kind not in self._running:
            command = our_command() if kind == "ours" else peer_command()
            assert command is not None, "nats-server is not here"
            made = three(command, self._directory / kind, self._common, own=self._own)
            self._running[kind] = self._stack.enter_context(made)
        return self._running[kind]

    @property
    def _path(self) -> Path:
        return RECORDED / f"{self._name}.json"

    def _kept(self) -> dict[str, Any]:
        kept = json.loads(self._path.read_text("utf-8")) if self._path.exists() else {}
        scenes: dict[str, Any] = kept["scenes"] if kept.get("key") == self._key else {}
        return scenes

    def _keep(self, name: str, peer: Any) -> None:
        RECORDED.mkdir(exist_ok=True)
        kept = {"key": self._key, "scenes": {**self._kept(), name: peer}}
        self._path.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", "utf-8")
