"""Three servers of one kind, each with a network, a disk and a clock that a test can disturb.

If the machine or the user cannot create namespaces or images, the servers run without them, and the faults that need
them are refused with the reason.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from tests.conformance.harness.cluster import NAMES
from tests.conformance.harness.process import ServerProcess, free_port
from tests.crash.ext4 import CannotMount, Ext4
from tests.crash.preload import Faults, NoCompiler, build
from tests.crash.servers import MODES, command_of
from tests.failover.network import CannotSeparate, Network

CLIENT_PORT, ROUTE_PORT = 4222, 6222  # inside the namespaces
BOOT_ID = "/proc/sys/kernel/random/boot_id"
ON_MACHINE = f'mount --bind "$0" {BOOT_ID} && exec "$@"'


class Trio:
    """Three servers, initially not started; `missing` has the reason for each facility that is not available."""

    def __init__(
        self, server: str, mode: str, directory: Path, *, needs_disks: bool, needs_clocks: bool
    ) -> None:
        self.directory = directory
        self.missing: dict[str, str] = {}
        self.damages: list[str] = []  # descriptions of damaged files
        self.refused_starts: list[str] = []  # servers that refused to start with their damaged store
        self.clocks: dict[str, Faults] = {}
        self.disks: dict[str, Ext4] = {}
        self.network = self._network()
        if needs_disks:
            self._make_disks()
        library = self._library(server) if needs_clocks else None
        hosts = dict.fromkeys(NAMES, "127.0.0.1") if self.network is None else self.network.hosts
        ports = {name: free_port() if self.network is None else ROUTE_PORT for name in NAMES}
        routes = {name: f"nats://{hosts[name]}:{ports[name]}" for name in NAMES}
        self.servers: dict[str, ServerProcess] = {}
        for name in NAMES:
            place = directory / name
            place.mkdir(parents=True, exist_ok=True)
            others = ", ".join(route for other, route in routes.items() if other != name)
            config = (
                f'jetstream {{ store_dir: "<<store>>", max_file_store: 4GB, max_memory_store: 100MB{MODES[mode]} }}\n'
                f'cluster {{ name: TRIO, listen: "{hosts[name]}:{ports[name]}", routes: [{others}] }}'
            )
            port = free_port() if self.network is None else CLIENT_PORT
            command = [*self._prefix(name, library), *command_of(server)]
            self.servers[name] = ServerProcess(
                command, config, place, with_http=False, name=name, port=port, host=hosts[name]
            )
        self._lives = 0

    def _network(self) -> Network | None:
        try:
            return Network(NAMES)
        except CannotSeparate as reason:
            self.missing["network"] = str(reason)
            return None

    def _make_disks(self) -> None:
        try:
            for name in NAMES:
                self.disks[name] = Ext4(self.directory / name, megabytes=1024)
                (self.directory / name / "store").symlink_to(self.disks[name].path)
        except CannotMount as reason:
            self.missing["disks"] = str(reason)

    def _library(self, server: str) -> Path | None:
        try:
            if server == "peer":
                raise NoCompiler("nats-server reads the clock without libc")
            return build(self.directory / "preload")
        except NoCompiler as reason:
            self.missing["clocks"] = str(reason)
            return None

    def _prefix(self, name: str, library: Path | None) -> list[str]:
        prefix = [] if self.network is None else self.network.prefix(name)
        if self.disks:
            machine = self._machine(name)
            machine.write_text(f"{uuid4()}\n")
            prefix += ["unshare", "--mount", "--propagation", "slave", "sh", "-c", ON_MACHINE, str(machine)]
        if library is not None:
            self.clocks[name] = Faults(library, self.directory / name, str(self.directory / name / "nothing"))
            prefix += self.clocks[name].prefix
        return prefix

    def _machine(self, name: str) -> Path:
        """Return the file that a server uses as the id of its machine's boot."""
        return self.directory / name / "boot_id"

    async def start(self, *names: str) -> None:
        """Start some servers; the log of an earlier process is preserved next to the new one."""
        for name in names:
            self._lives += 1
            log = self.directory / name / "log"
            with suppress(FileNotFoundError):
                log.rename(log.with_name(f"log.{self._lives}"))
        starts = (asyncio.to_thread(self.servers[name].start) for name in names)
        await asyncio.gather(*starts)

    def kill(self, *names: str) -> None:
        """Kill some servers with SIGKILL."""
        for name in names:
            os.kill(self.servers[name].pid, 9)
        for name in names:
            self.servers[name].kill()

    def store(self, name: str) -> Path:
        """Return the directory of the store of a server."""
        return self.directory / name / "store"

    def wipe(self, name: str) -> None:
        """Remove all files from the store of a server."""
        for each in self.store(name).iterdir():
            if each.is_dir() and each.name != "lost+found":
                shutil.rmtree(each)
            elif each.is_file():
                each.unlink()

    def cut_power(self) -> None:
        """Kill all servers, lose the unsynced data of their disks, and simulate a restart of their machines."""
        for disk in self.disks.values():
            disk.cut_power()
        self.kill(*NAMES)
        for name in self.disks:
            self._machine(name).write_text(f"{uuid4()}\n")
        for disk in self.disks.values():
            disk.unmount()
            disk.mount()

    def close(self) -> None:
        """Stop all servers and remove everything."""
        for server in self.servers.values():
            server.kill()
        for disk in self.disks.values():
            with suppress(CannotMount):
                disk.unmount()
        if self.network is not None:
            self.network.close()

    def keep(self, target: Path) -> None:
        """Copy logs and stores, to investigate a failure."""
        for name in NAMES:
            shutil.copytree(
                self.directory / name,
                target / name,
                ignore=shutil.ignore_patterns("image"),
                dirs_exist_ok=True,
            )
