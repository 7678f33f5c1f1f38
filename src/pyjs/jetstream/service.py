"""JetStream of a server: one engine and one API router for each account, started and stopped together.

The top of the JetStream room, and the only part that knows which account has it. Reads the options once, at the
start.

Source: nats.docs "JetStream" and "Accounts".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pyjs.base.clock import Clock
from pyjs.base.log import Log
from pyjs.base.rng import Rng
from pyjs.base.timers import Timers
from pyjs.core.account import Account
from pyjs.core.auth import GLOBAL_ACCOUNT
from pyjs.jetstream.api.router import Router
from pyjs.jetstream.config import FILE, MEMORY
from pyjs.jetstream.engine import JetStream, Shared
from pyjs.jetstream.options import AccountLimits, JetStreamOptions, limits_from, options_from
from pyjs.jetstream.persist import AccountFiles
from pyjs.jetstream.usage import Usage
from pyjs.store.layout import file_name, lock_store

if TYPE_CHECKING:
    from pyjs.base.disk import Disk
    from pyjs.config.options import Options


class ServiceHost(Protocol):
    """The node, as JetStream sees it."""

    options: Options
    clock: Clock
    timers: Timers
    rng: Rng
    disk: Disk
    log: Log
    server_name: str
    accounts: dict[str, Account]


class JetStreamServer:
    """JetStream of one server."""

    def __init__(self, host: ServiceHost) -> None:
        self._host = host
        self.options: JetStreamOptions = options_from(host.options)
        self.shared = Shared(self.options, host.server_name, host.clock, host.timers, host.rng, host.log)
        self.accounts: dict[str, JetStream] = {}
        self._routers: list[Router] = []
        self._lock = -1  # holds the lock of the store directory

    @property
    def memory(self) -> Usage:
        """What memory streams of all accounts use and reserve."""
        return self.shared.usage[MEMORY]

    @property
    def storage(self) -> Usage:
        """What file streams of all accounts use and reserve."""
        return self.shared.usage[FILE]

    def start(self) -> None:
        """Recover every stream and begin to answer requests.

        Raises:
            StoreLocked: another server works on the store directory.
        """
        self._lock = lock_store(self._host.disk, self.options.store_dir)
        for name, account in self._host.accounts.items():
            limits = self._limits_of(name)
            engine = None if limits is None else self._start_account(account, limits)
            self._routers.append(Router(account, self.shared, engine))
            if engine is not None:
                engine.recover()
        self._report_strangers()

    def _report_strangers(self) -> None:
        """Name what is stored for accounts that this configuration does not have: it stays, and is not served."""
        known = {file_name(name) for name in self.accounts}
        for name in self._host.disk.list_dir(self.options.store_dir):
            if not name.startswith(".") and name not in known:
                path = f"{self.options.store_dir}/{name}"
                self._host.log.warn(f"  {path} is of no account with JetStream; its streams are not served")

    def stop(self) -> None:
        """Close every stream; what they hold is on disk."""
        for router in self._routers:
            router.close()
        for engine in self.accounts.values():
            engine.stop()
            engine.account.jetstream = None
        self.accounts.clear()
        if self._lock >= 0:
            self._host.disk.close_file(self._lock)
            self._lock = -1

    def _start_account(self, account: Account, limits: AccountLimits) -> JetStream:
        host = self._host
        files = AccountFiles(host.disk, self.options.store_dir, account.name, host.log, host.clock.now_ns)
        engine = JetStream(account, self.shared, limits, files)
        self.accounts[account.name] = engine
        account.jetstream = engine
        return engine

    def _limits_of(self, name: str) -> AccountLimits | None:
        """Return the limits of an account, None: it has no JetStream."""
        configured = self._host.options.accounts.get(name)
        if configured is not None and configured.jetstream is not None:
            return limits_from(configured.jetstream)
        system = self._host.options.system_account
        others = [each for each in self._host.options.accounts if each not in (GLOBAL_ACCOUNT, system)]
        if name == GLOBAL_ACCOUNT and not others:
            return AccountLimits()
        return None
