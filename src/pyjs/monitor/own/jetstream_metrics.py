"""The JetStream metrics of the official exporter, and additional metrics of this server's streams and consumers.

Source of the names and labels: prometheus-nats-exporter, collector/jsz.go. The file
tests/unit/monitor/own/exporter_names.txt lists the names that the exporter created from nats-server's pages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyjs.jetstream.config.choices import FILE, MEMORY
from pyjs.jetstream.consumer.consumer import Consumer
from pyjs.jetstream.manage.stream_info import inflow_report, know_lag
from pyjs.monitor.own.consumer_reading import is_searched, prepare
from pyjs.monitor.own.exposition import Family, escaped, extended, labels
from pyjs.monitor.own.samples import CONSUMER_FORMS, SIGNED

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable
    from typing import Any

    from pyjs.jetstream.manage.engine import JetStream
    from pyjs.jetstream.stream.stream import Stream
    from pyjs.monitor.own.exposition import Page
    from pyjs.monitor.state import Monitored

    Steps = Generator[None, None, None]

STEP = 256  # weight of the reads between two yields: about a third of a millisecond
WEIGHT = 8  # of an account, a stream, or a consumer with filters
CONSUMER_WEIGHT = 1
DESCRIPTION_MAX = 128  # characters of a consumer's description
UINT64 = 1 << 64  # nats-server shows "no limit", -1, as an unsigned number

SERVER = (
    ("server_jetstream_disabled", "Whether JetStream is off."),
    ("server_max_memory", "The most memory that streams may use, in bytes."),
    ("server_max_storage", "The most disk space that streams may use, in bytes."),
    ("server_total_streams", "The streams of all accounts."),
    ("server_total_consumers", "The consumers of all streams."),
    ("server_total_messages", "The messages in all streams."),
    ("server_total_message_bytes", "The bytes of these messages."),
)
ACCOUNT = (
    ("account_max_storage", "The disk space that the account may use, in bytes."),
    ("account_max_memory", "The memory that the account may use, in bytes."),
    ("account_storage_used", "The disk space that the account uses, in bytes."),
    ("account_memory_used", "The memory that the account uses, in bytes."),
)
STREAM = (
    ("stream_total_messages", "The messages in the stream."),
    ("stream_total_bytes", "The bytes of these messages."),
    ("stream_first_seq", "The sequence of the first message."),
    ("stream_last_seq", "The sequence of the last message."),
    ("stream_consumer_count", "The consumers of the stream."),
    ("stream_subject_count", "The subjects of the stored messages."),
    ("stream_limit_bytes", "The limit max_bytes; -1: none."),
    ("stream_limit_messages", "The limit max_msgs; -1: none."),
)
CONSUMER = (
    ("consumer_delivered_consumer_seq", "The number of deliveries."),
    ("consumer_delivered_stream_seq", "The sequence of the last message that was delivered."),
    ("consumer_num_ack_pending", "The deliveries that wait for an acknowledgement."),
    ("consumer_num_redelivered", "The messages that were delivered more than once and are not acknowledged."),
    ("consumer_num_waiting", "The pull requests that wait for messages."),
    ("consumer_num_pending", "The messages that were never delivered."),
    ("consumer_ack_floor_stream_seq", "The sequence up to which everything is acknowledged."),
    ("consumer_ack_floor_consumer_seq", "The number of the delivery up to which everything is acknowledged."),
)
# Families of server and account to which each worker of a server contributes.
SUMMED = (
    "server_total_streams",
    "server_total_consumers",
    "server_total_messages",
    "server_total_message_bytes",
    "account_storage_used",
    "account_memory_used",
)
LAST_DELIVERY = ("consumer_last_delivery_seconds", "The time since the last delivery.")
LAST_ACK = ("consumer_last_ack_seconds", "The time since the last acknowledgement.")
LAG = Family(
    "pyjs_consumer_lag_seconds", "gauge", "The age of the oldest message that was not delivered yet; 0: none."
)
UNACKED = Family(
    "pyjs_consumer_oldest_unacked_seconds",
    "gauge",
    "The time since the last delivery of the oldest message without an acknowledgement; 0: none.",
)
SOURCE = (
    ("stream_source_lag", "The messages that the source has and the stream lacks."),
    ("stream_source_active_duration_ns", "The time since the source was heard, in ns; -1: never."),
)
MIRROR = (
    ("stream_mirror_lag", "The messages that the origin has and the mirror lacks."),
    ("stream_mirror_active_duration_ns", "The time since the origin was heard, in ns; -1: never."),
)


class Names(NamedTuple):
    """The families of metrics with one prefix."""

    server: tuple[Family, ...]
    account: tuple[Family, ...]
    stream: tuple[Family, ...]
    consumer: tuple[Family, ...]
    source: tuple[Family, ...]
    mirror: tuple[Family, ...]


def names_of(prefix: str) -> Names:
    """Return the families of the exporter's metrics with the given prefix, and the additional families."""

    def family(row: tuple[str, str]) -> Family:
        return Family(f"{prefix}_{row[0]}", "gauge", row[1])

    return Names(
        tuple(map(family, SERVER)),
        tuple(map(family, ACCOUNT)),
        tuple(map(family, STREAM)),
        (*map(family, CONSUMER), LAG, UNACKED, family(LAST_DELIVERY), family(LAST_ACK)),
        tuple(map(family, SOURCE)),
        tuple(map(family, MIRROR)),
    )


class JetStreamMetrics:
    """The JetStream samples of one server, which `steps` adds to a page."""

    def __init__(self, monitored: Monitored, page: Page, prefix: str) -> None:
        self._monitored = monitored
        self._page = page
        self._names = names_of(prefix)
        self._streams = page.table(self._names.stream, SIGNED * len(STREAM))
        self._consumers = page.table(self._names.consumer, CONSUMER_FORMS)
        self._read = 0  # weight of the accounts, streams and consumers read since the last yield

    def steps(self, server: str) -> Steps:
        """Add all samples to the page; yield between steps.

        `server` is the value of the labels `server_id` and `server_name`.
        """
        node, page, names = self._monitored.node, self._page, self._names
        jetstream = node.jetstream
        shared = None if jetstream is None else jetstream.shared
        member = None if shared is None else shared.member
        meta = {} if shared is None or member is None else member.reports.meta(shared.admission)
        leader = str(meta.get("leader", ""))
        of_server = labels(
            server_id=server,
            server_name=server,
            cluster=str(meta.get("name", "")),
            domain="" if jetstream is None else jetstream.options.domain,
            meta_leader=leader,
            is_meta_leader=_flag(member is None or leader == node.server_name),
        )
        worker = self._monitored.options.worker
        if jetstream is None and worker is not None and worker.number > 1:
            return  # the first worker has the streams
        if jetstream is None:
            page.rows(names.server).append((of_server, (1, 0, 0, 0, 0, 0, 0)))
            return
        accounts = list(jetstream.accounts.values())
        totals = yield from self._totals(accounts)
        limits = jetstream.options.max_memory, jetstream.options.max_storage
        page.rows(names.server).append((of_server, (0, *limits, *totals)))
        for js in accounts:
            yield from self._account(js, of_server)

    def _totals(self, accounts: list[JetStream]) -> Generator[None, None, tuple[int, int, int, int]]:
        """Return the numbers of streams, consumers, messages and bytes of all accounts; yield between steps."""
        streams = consumers = msgs = size = 0
        for js in accounts:
            yield from self._rest()
            for stream in list(js.streams.values()):
                yield from self._rest()
                streams += 1
                consumers += len(stream.consumers)
                msgs += stream.store.msgs
                size += stream.store.bytes
        return streams, consumers, msgs, size

    def _rest(self, weight: int = WEIGHT) -> Steps:
        """Add `weight` to the weight of the reads since the last yield, and yield if it reaches STEP."""
        self._read += weight
        if self._read >= STEP:
            self._read = 0
            yield

    def _account(self, js: JetStream, of_server: str) -> Steps:
        yield from self._rest()
        name = js.account.name
        of_account = extended(of_server, account=name, account_name=name, account_id=name)
        limits = js.limits.max_storage % UINT64, js.limits.max_memory % UINT64
        used = js.usage[FILE].used, js.usage[MEMORY].used
        self._page.rows(self._names.account).append((of_account, (*limits, *used)))
        for stream in list(js.streams.values()):
            yield from self._stream(js, stream, of_account)

    def _stream(self, js: JetStream, stream: Stream, of_account: str) -> Steps:
        store, config = stream.store, stream.config
        leader, group = self._led_by(js, stream)
        is_leader = _flag(leader == self._monitored.node.server_name)
        # without the closing brace, since the labels of consumers follow
        of_stream = (
            f'{of_account[:-1]},stream_name="{escaped(stream.name)}",stream_leader="{escaped(leader)}",'
            f'is_stream_leader="{is_leader}",stream_raft_group="{group}"'
        )
        head = of_stream.encode()
        held = store.msgs, store.bytes, store.first_seq, store.last_seq
        counts = len(stream.consumers), store.catalogue.num_subjects()
        values = (*held, *counts, config.max_bytes, config.max_msgs)
        self._streams.add(head, b"}", values)
        if js.inflows:
            yield from know_lag(js, stream)
            self._inflow(js, stream, of_stream + "}")
        yield from self._rest()
        led_by = "" if js.shared.member is None else escaped(leader)
        for consumer in list(stream.consumers.values()):
            if not isinstance(consumer, Consumer) or consumer.closed:  # only the leader has it open
                continue
            self._read += CONSUMER_WEIGHT
            if self._read >= STEP or consumer.filters:
                yield from self._before(consumer)
                if consumer.closed:
                    continue
            self._consumer(consumer, led_by, head)

    def _before(self, consumer: Consumer) -> Steps:
        """Yield if a step is complete; if the next read of `consumer` is a search, first prepare this read."""
        if is_searched(consumer):
            yield from prepare(consumer)
            yield from self._rest(STEP)
        else:
            yield from self._rest()

    def _led_by(self, js: JetStream, stream: Stream) -> tuple[str, str]:
        """Return the name of the stream's leader, and the name of its replicated group or "" without a group."""
        member = js.shared.member
        if member is None:
            return self._monitored.node.server_name, ""
        return member.reports.led_by(js, stream)

    def _inflow(self, js: JetStream, stream: Stream, of_stream: str) -> None:
        """Add the lag and the activity of a mirror, or of each source."""
        report = inflow_report(js, stream)
        for kind, families, rows in (
            ("source", self._names.source, report.get("sources", ())),
            ("mirror", self._names.mirror, [report["mirror"]] if "mirror" in report else ()),
        ):
            for named, values in _merged(kind, rows):
                self._page.rows(families).append((extended(of_stream, **named), values))

    def _consumer(self, consumer: Consumer, leader: str, of_stream: bytes) -> None:
        tail = (
            f',consumer_name="{escaped(consumer.name)}",consumer_leader="{leader}",is_consumer_leader="true",'
            f'consumer_desc="{escaped(consumer.config.description[:DESCRIPTION_MAX])}"}}'
        )
        self._consumers.add_consumer(of_stream, tail.encode(), consumer, consumer.turn.now)


def _merged(kind: str, rows: Iterable[dict[str, Any]]) -> list[tuple[dict[str, str], tuple[int, int]]]:
    """Return the labels and values of mirrors or sources.

    Sources that differ only in their filters have the same labels. They become one row, which has the largest lag and
    the shortest time since a source was active.
    """
    merged: dict[tuple[str, str, str], tuple[int, int]] = {}
    for row in rows:
        external = row.get("external") or {}
        key = row["name"], external.get("api", ""), external.get("deliver", "")
        lag, active = merged.get(key, (0, -1))
        heard = [each for each in (active, row["active"]) if each >= 0]
        merged[key] = max(lag, row["lag"]), min(heard, default=-1)
    names = f"{kind}_name", f"{kind}_api", f"{kind}_deliver"
    return [(dict(zip(names, key, strict=True)), values) for key, values in merged.items()]


def _flag(value: bool) -> str:
    return "true" if value else "false"
