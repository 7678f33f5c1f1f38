"""A network namespace for each server, behind a bridge, so that packets between two servers can be dropped.

A cut changes the hardware address to which a server sends its packets for another server to an unused one. No
connection is closed and no error is reported, as with a failed switch; a cut may affect only one direction. Clients
are outside, and can reach every server. This module needs root, and `ip` of iproute2.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress

NOWHERE = "02:00:00:00:00:ff"  # an unused hardware address


class CannotSeparate(Exception):
    """Network namespaces cannot be created on this machine or by this user; the text has the reason."""


class Network:
    """The namespaces of some servers, by name."""

    def __init__(self, names: tuple[str, ...]) -> None:
        if os.geteuid() != 0:
            raise CannotSeparate("network namespaces need root")
        if shutil.which("ip") is None:
            raise CannotSeparate("there is no ip of iproute2")
        self._id = os.getpid() % 65_000
        net = f"10.{213 + self._id // 256 % 40}.{self._id % 256}"
        self.hosts = {name: f"{net}.{number}" for number, name in enumerate(names, 1)}
        self._bridge = f"pb{self._id}"
        self._cuts: set[tuple[str, str]] = set()
        try:
            _ip("link", "add", self._bridge, "type", "bridge")
            _ip("addr", "add", f"{net}.254/24", "dev", self._bridge)
            _ip("link", "set", self._bridge, "up")
            for name in names:
                self._make(name)
        except CannotSeparate:
            self.close()
            raise

    def _make(self, name: str) -> None:
        inside, outside = self._namespace(name), f"pv{self._id}{name}"
        _ip("netns", "add", inside)
        _ip("link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", inside)
        _ip("link", "set", outside, "master", self._bridge)
        _ip("link", "set", outside, "up")
        _ip("-n", inside, "link", "set", "lo", "up")
        _ip("-n", inside, "addr", "add", f"{self.hosts[name]}/24", "dev", "eth0")
        _ip("-n", inside, "link", "set", "eth0", "up")

    def _namespace(self, name: str) -> str:
        return f"pyjs-{self._id}-{name}"

    def prefix(self, name: str) -> list[str]:
        """Return the words that precede the command of a server."""
        return ["ip", "netns", "exec", self._namespace(name)]

    def cut(self, source: str, target: str) -> None:
        """Drop packets from `source` to `target` from now on."""
        host = self.hosts[target]
        _ip(
            "-n", self._namespace(source), "neigh", "replace", host, "lladdr", NOWHERE, "dev", "eth0", "nud",
            "permanent",
        )  # fmt: skip
        self._cuts.add((source, target))

    def isolate(self, name: str) -> None:
        """Disconnect a server from all others, in both directions."""
        for other in self.hosts:
            if other != name:
                self.cut(name, other)
                self.cut(other, name)

    def mend(self) -> None:
        """Repair all connections."""
        for source, target in self._cuts:
            _ip("-n", self._namespace(source), "neigh", "del", self.hosts[target], "dev", "eth0")
        self._cuts.clear()

    def close(self) -> None:
        """Remove all namespaces; no process may be running in them."""
        for name in self.hosts:
            with suppress(CannotSeparate):
                _ip("netns", "del", self._namespace(name))
        with suppress(CannotSeparate):
            _ip("link", "del", self._bridge)


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if done.returncode:
        raise CannotSeparate(f"ip {' '.join(words)}: {done.stderr.strip()}")
