"""JetStream of a server: one engine and one API router for each account, started and stopped together.

This module is the top of the package, and the only part that knows which accounts have JetStream. It reads the
options at the start and after each reload. So while the server runs, an account may get JetStream, lose it (its files
stay) or get other limits.

Source: nats.docs "JetStream" and "Accounts".
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyjs.base.clock import Clock
from pyjs.base.log import Log
from pyjs.base.rng import Rng
from pyjs.base.timers import Timers
from pyjs.config.options import AccountJetStreamOptions
from pyjs.core.account import Account
from pyjs.core.auth.users import GLOBAL_ACCOUNT
from pyjs.core.faults import Faults
from pyjs.core.sink import Sink, Turn
from pyjs.jetstream.admission import Admission
from pyjs.jetstream.api.subscriptions import ApiSubscriptions
from pyjs.jetstream.config.choices import FILE, MEMORY
from pyjs.jetstream.files.metadata import MetadataWriter
from pyjs.jetstream.manage.engine import JetStream, Shared
from pyjs.jetstream.stream.limits import Usage
from pyjs.store.format.layout import file_name, lock_store, refuse_foreign, streams_directory
from pyjs.store.format.workers import check_names, check_workers, take_over
from pyjs.store.open_files import OpenFiles

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Protocol

    from pyjs.base.disk import Disk
    from pyjs.base.timers import Timer
    from pyjs.config.options import Options
    from pyjs.jetstream.manage.persist import AccountFiles, Stores
    from pyjs.jetstream.manage.reopening import Mender
    from pyjs.jetstream.manage.scrub import Scrubber
    from pyjs.jetstream.member.member_node import MemberNode
    from pyjs.jetstream.spread.spread_node import SpreadNode
    from pyjs.store.format.layout import StoreLock

    class ServiceHost(Protocol):
        """The parts of the node that JetStream uses."""

        options: Options
        clock: Clock
        timers: Timers
        rng: Rng
        disk: Disk
        log: Log
        faults: Faults
        server_name: str
        accounts: dict[str, Account]
        system_account: Account | None
        turn_state: Turn


SCRUB_AFTER_NS = 10_000_000_000  # ns after the start, which itself reads other files first
# Importing blocks the loop for some milliseconds, so the first clients should be connected by then.
LOAD_AFTER_NS = 100_000_000


class JetStreamServer:
    """The JetStream part of one server, with an engine and an API for each account."""

    def __init__(
        self, host: ServiceHost, member: MemberNode | None = None, spread: SpreadNode | None = None
    ) -> None:
        """Create the parts of JetStream.

        `member` connects the server to a JetStream cluster, and `spread` to the other workers.
        """
        self._host = host
        self._disk = host.disk
        self.options = replace(host.options.jetstream)  # a copy, since a reload changes some of them
        self.shared = Shared(
            self.options,
            host.options.limits.max_payload,
            host.options.feature_flags.get("js_ack_fc_v2", False),
            host.server_name,
            host.clock,
            host.timers,
            host.rng,
            host.log,
            host.faults,
            MetadataWriter(host.turn_state, host.disk, self.options.store_dir),
            Admission(
                self.options,
                host.clock,
                host.timers,
                host.rng,
                host.log,
                host.server_name,
                lambda: host.system_account,
            ),
            member,
            spread,
        )
        self.accounts: dict[str, JetStream] = {}
        if spread is not None:
            spread.begin(self.shared, self.accounts)
        self._mender: Mender | None = None  # None: nothing has failed
        self._apis: dict[str, ApiSubscriptions] = {}
        self._stores: Stores | None = None  # None: no stream was stored or recovered
        # Shared by all streams and consumers.
        self.open_files = OpenFiles(host.disk, host.disk.open_files_max)
        self.scrubber: Scrubber | None = None  # None: not begun, or switched off
        self._scrub_timer: Timer | None = None
        self._load_timer: Timer | None = None
        self._lock: StoreLock | None = None  # held on the store directory

    def mend(self, owner: object) -> None:
        """Close or reopen a stream or consumer after an unexpected exception in its work."""
        if self._mender is None:
            # Imported lazily: needed only after a fault.
            from pyjs.jetstream.manage.reopening import Mender

            self._mender = Mender(self.accounts)
        self._mender.mend(owner)

    def expire(self, consumers: list[Sink]) -> None:
        """Remove consumers that were unused for their `inactive_threshold`."""
        # cheap: the module was imported with the first consumer
        from pyjs.jetstream.manage.consumers import expire_all

        expire_all(self.accounts, consumers)

    def end_turn(self) -> None:
        """Report the changes of this turn to other servers or workers."""
        if self.shared.member is not None:
            self.shared.member.end_turn()
        elif self.shared.spread is not None:
            self.shared.spread.end_turn()

    @property
    def used(self) -> tuple[int, int]:
        """The bytes that memory streams and file streams use, without the streams of other workers."""
        if self.shared.spread is None:
            return self.memory.used, self.storage.used
        own = self.shared.spread.usage.own()
        return own.memory, own.storage

    @property
    def memory(self) -> Usage:
        """The memory that the memory streams of all accounts use and reserve."""
        return self.shared.usage[MEMORY]

    @property
    def storage(self) -> Usage:
        """The space that the file streams of all accounts use and reserve."""
        return self.shared.usage[FILE]

    def start_steps(self) -> Iterator[None]:
        """Recover every stream, then answer requests. A step reads one segment, one consumer, or some messages.

        No turn may run before the last step. To cancel, close the iterator and call `stop`: the files are then in the
        same state as after a kill at this moment.

        Raises, at any step:
            StoreForeign: the store directory is that of a nats-server.
            StoreLocked: another server uses the store directory.
            StoreShared: a worker that is no longer started has streams, or two workers have streams of the same name.
            OSError: the store directory cannot be used.
        """
        refuse_foreign(self._disk, self.options.store_dir)
        self._lock = lock_store(self._disk, self.options.store_dir)
        self._check_workers()
        member = self.shared.member
        if member is not None:
            yield from member.recover_steps(self._disk, self.shared, self.accounts)
        yield from self._apply_to_accounts()
        self._log_unserved_accounts()
        if member is not None:
            member.begin()
        if self.shared.spread is not None:
            self.shared.spread.opened()
        if self.options.scrub_rate:
            begin_at_ns = self._host.clock.now_ns() + SCRUB_AFTER_NS
            self._scrub_timer = self._host.timers.at(begin_at_ns, self._begin_scrubbing)
        self._load_timer = self._host.timers.at(self._host.clock.now_ns() + LOAD_AFTER_NS, self._load_apis)

    def _check_workers(self) -> None:
        """With `spread_workers`, take over the streams of workers that are not started; without it, refuse them.

        Raises:
            StoreLocked, StoreShared, OSError: a worker has streams that this start would not serve.
        """
        worker, root = self._host.options.worker, self.options.store_dir
        if worker is not None and worker.number > 1:
            return
        if not self.options.spread_workers:
            check_workers(self._disk, root, 1)
            return
        if count := take_over(self._disk, root, 1 if worker is None else worker.count):
            self._host.log.info(
                f"  {count} streams of workers that are not started were moved to the first worker"
            )
        check_names(self._disk, root)

    def _load_apis(self) -> None:
        for api in self._apis.values():
            api.load()

    def _begin_scrubbing(self) -> None:
        # Imported lazily: not needed to start.
        from pyjs.jetstream.manage.scrub import Scrubber

        self.scrubber = Scrubber(self.shared, self.accounts, self._disk, self._host.turn_state)
        self.scrubber.begin_pass()

    def clock_stepped(self) -> Iterator[None]:
        """Recompute all timers for wall times, in steps; called after the wall clock has been set."""
        for engine in list(self.accounts.values()):
            for stream in list(engine.streams.values()):
                stream.clock_stepped()
                for consumer in list(stream.consumers.values()):
                    consumer.clock_stepped()
                yield

    def apply_options(self) -> None:
        """Apply the limits of reloaded options, and turn JetStream on or off for accounts accordingly."""
        new = self._host.options.jetstream
        self.options.max_memory, self.options.max_storage = new.max_memory, new.max_storage
        self.options.request_queue_limit = new.request_queue_limit
        self.options.info_queue_limit = new.info_queue_limit
        self.shared.max_payload = self._host.options.limits.max_payload
        self.memory.max, self.storage.max = new.max_memory, new.max_storage
        for _ in self._apply_to_accounts():
            pass

    def apply_account(self, account: Account) -> None:
        """Start or stop JetStream of one account, or change its limits, according to the options."""
        for _ in self._apply_to(account):
            pass

    def _apply_to_accounts(self) -> Iterator[None]:
        """Start or stop JetStream of each account, or change its limits, according to the options.

        The work is done in steps.
        """
        for account in list(self._host.accounts.values()):
            yield from self._apply_to(account)

    def _apply_to(self, account: Account) -> Iterator[None]:
        limits, engine = self._limits_of(account.name), self.accounts.get(account.name)
        if limits is None or engine is None:
            yield from self._switch(account, limits)
        else:
            engine.change_limits(limits)

    def _switch(self, account: Account, limits: AccountJetStreamOptions | None) -> Iterator[None]:
        """Start JetStream of an account, or stop it if `limits` is None.

        The work is done in steps.
        """
        engine = self.accounts.get(account.name)
        api = self._apis.get(account.name)
        if api is not None and engine is None and limits is None:
            return
        if api is not None:
            api.close()
        if engine is not None:
            self._stop_account(engine)
        engine = None if limits is None else self._start_account(account, limits)
        self._apis[account.name] = ApiSubscriptions(
            account, self.shared, engine, lambda: self._host.system_account
        )
        directory = streams_directory(self.options.store_dir, account.name)
        if engine is not None and self._disk.list_dir(directory):
            yield from engine.recover_steps()

    def _log_unserved_accounts(self) -> None:
        """Log each stored account that has no JetStream in this configuration.

        Its files stay, but are not served.
        """
        known = {file_name(name) for name in self.accounts}
        for name in self._disk.list_dir(self.options.store_dir):
            if not name.startswith(".") and name not in known:
                path = f"{self.options.store_dir}/{name}"
                self._host.log.warn(f"  {path} is of no account with JetStream; its streams are not served")

    @property
    def is_changing(self) -> bool:
        """Whether changes of metadata, or the log of a cluster, are being written."""
        member = self.shared.member
        return self.shared.metadata.pending > 0 or (member is not None and member.is_busy)

    def begin_stop(self) -> None:
        """Refuse changes of metadata from now on; call `stop` when `is_changing` has become False."""
        self.shared.metadata.close()
        if self.shared.member is not None:
            self.shared.member.begin_stop()

    def stop(self) -> None:
        """Close every stream and make its messages durable; `is_changing` must be False."""
        self.begin_stop()
        self.shared.metadata.finish_now()
        for timer in (self._scrub_timer, self._load_timer):
            if timer is not None:
                timer.cancel()
        if self.scrubber is not None:
            self.scrubber.stop()
        for api in self._apis.values():
            api.close()
        for engine in list(self.accounts.values()):
            self._stop_account(engine)
        if self._stores is not None:
            self._stores.logs.sync.sync_now()
        if self.shared.member is not None:
            self.shared.member.stop()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _start_account(self, account: Account, limits: AccountJetStreamOptions) -> JetStream:
        engine = JetStream(account, self.shared, limits, lambda: self._open_files(account.name))
        self.accounts[account.name] = engine
        account.jetstream = engine
        if self.shared.spread is not None:
            self.shared.spread.directory.account_opened(engine)
        return engine

    def _open_files(self, account: str) -> AccountFiles:
        # Imported lazily with the first stream: a server without streams does not need it.
        from pyjs.jetstream.manage.persist import AccountFiles

        if self._stores is None:
            self._stores = self._opened_stores()
        return AccountFiles(self._stores, account)

    def _opened_stores(self) -> Stores:
        from pyjs.jetstream.files.removals import Removals
        from pyjs.jetstream.manage.persist import Stores
        from pyjs.store.segment.view import ViewCache
        from pyjs.store.state.consumer_state import OpenLogs
        from pyjs.store.state.log_sync import LogSync

        host, options, key_ring = self._host, self.options, None
        turn = host.turn_state
        sync = LogSync(host.disk, lambda logs: turn.unsynced.append(logs), options.sync_always)
        logs = OpenLogs(host.disk, self.open_files, sync=sync)
        if options.key:
            from pyjs.store.crypt.keys import ALGORITHMS, KeyRing

            key_ring = KeyRing(options.key, ALGORITHMS[options.cipher], host.rng.randbytes, options.prev_key)
        removals = Removals(host.disk, host.log, turn)
        root, now_ns = options.store_dir, host.clock.now_ns
        return Stores(
            host.disk, root, host.log, now_ns, self.open_files, logs, ViewCache(), key_ring, removals
        )

    def _stop_account(self, engine: JetStream) -> None:
        if self.shared.spread is not None:
            self.shared.spread.directory.account_closed(engine)
        engine.stop()
        engine.account.jetstream = None
        del self.accounts[engine.account.name]

    def _limits_of(self, name: str) -> AccountJetStreamOptions | None:
        """Return the JetStream limits of an account, or None if it has no JetStream."""
        options = self._host.options
        limits = options.jetstream_of(name)
        if limits is None and name == GLOBAL_ACCOUNT and name in self.accounts and not options.operator_keys:
            return AccountJetStreamOptions()  # $G still has its streams after a reload that adds accounts
        return limits
