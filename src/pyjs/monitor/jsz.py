"""/jsz: JetStream usage and limits of the server and its accounts, with streams and consumers if requested.

Source: monitoring section of nats.docs; paging, field order and omitted fields as seen on nats-server 2.15.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pyjs.base.gotext import time_text
from pyjs.jetstream.config.choices import FILE, MEMORY
from pyjs.jetstream.config.declared import as_json
from pyjs.jetstream.consumer.consumer import Consumer
from pyjs.jetstream.consumer.info import consumer_info, know_pending
from pyjs.jetstream.manage.stream_info import inflow_report, know_lag, stream_state
from pyjs.monitor.arguments import Arguments
from pyjs.monitor.json_text import JsonDict, filled, pretty_piece
from pyjs.node import API_LEVEL

if TYPE_CHECKING:
    from collections.abc import Generator

    from pyjs.jetstream.manage.engine import JetStream, Shared
    from pyjs.jetstream.stream.stream import Stream
    from pyjs.monitor.state import Monitored

LIMIT = 1024
STREAMS_STEP = 16  # streams and consumers reported between two yields, in about half a millisecond
CONSUMERS_STEP = 16
CONSUMER_DEPTH = 6  # levels of JSON around a consumer: answer, account_details, its account and so on
STATS = ("memory", "storage", "reserved_memory", "reserved_storage", "accounts", "ha_assets")
OPTIONAL = ("sync_always", "domain", "unique_tag", "strict")  # fields shown only if they are set
TOTALS = ("streams", "consumers", "messages", "bytes", "total")
UINT64 = 1 << 64  # as in nats-server, -1 (no limit) is shown as an unsigned number


class Led(NamedTuple):
    """The restrictions to leaders that a request for /jsz sets."""

    metadata: bool = False  # only the leader of the metadata group answers
    streams: bool = False  # streams led by another server are left out


ANYBODY = Led()


@dataclass(frozen=True, slots=True)
class JszOptions:
    """The options of a request for /jsz."""

    account: str = ""
    accounts: bool = False
    streams: bool = False
    consumers: bool = False
    config: bool = False
    raft: bool = False
    offset: int = 0
    limit: int = LIMIT
    led: Led = ANYBODY


def jsz_options(arguments: Arguments) -> JszOptions:
    """Return the options of a request for /jsz, read from its arguments.

    The argument `consumers` also requests the streams. A request for streams also requests all accounts, unless `acc`
    names one account.

    Raises:
        BadArgument: an argument is invalid; the error message is that of nats-server.
    """
    accounts, streams, consumers = (arguments.flag(name) for name in ("accounts", "streams", "consumers"))
    # checked only: it selects consumers of mirrors and sources, which this server does not have
    arguments.flag("direct-consumers")
    config = arguments.flag("config")
    offset = max(arguments.integer("offset"), 0)
    limit = arguments.integer("limit")
    leader_only = arguments.flag("leader-only")
    raft = arguments.flag("raft")
    led = Led(leader_only, arguments.flag("stream-leader-only"))
    streams = streams or consumers
    account = arguments.text("acc")
    accounts = accounts or (streams and not account)
    return JszOptions(
        account,
        accounts,
        streams,
        consumers,
        config,
        raft,
        offset,
        limit or LIMIT,
        led,
    )


class NotLeader(Exception):
    """Raised when only the leader of the metadata group may answer, and this server is not that leader."""


def jsz(monitored: Monitored, options: JszOptions, now_ns: int) -> Generator[None, None, JsonDict]:
    """Return the body of /jsz: the totals and the requested accounts; yield between steps.

    Raises:
        NotLeader: only the leader may answer, and this server is not the leader.
    """
    head: JsonDict = {"server_id": monitored.node.server_id, "now": time_text(now_ns)}
    jetstream = monitored.node.jetstream
    member = None if jetstream is None else jetstream.shared.member
    if options.led.metadata and (jetstream is None or (member is not None and not member.machine.leads)):
        raise NotLeader("filtered response: not leader")
    if jetstream is None:
        stats: JsonDict = dict.fromkeys(STATS, 0) | {"api": {"level": 0, "total": 0, "errors": 0}}
        disabled: JsonDict = {"disabled": True, "config": {"max_memory": 0, "max_storage": 0}}
        return stats | head | disabled | dict.fromkeys(TOTALS, 0)
    answer = jetstream_stats(monitored) | head
    answer["config"] = jetstream_config(monitored)
    answer["limits"] = jetstream_limits(monitored)
    accounts = jetstream.accounts
    answer |= _totals(accounts, options)
    if member is not None:
        answer |= filled({"log_damages": member.log_damages})
        answer["meta_cluster"] = member.reports.meta(jetstream.shared.admission)
    if chosen := _chosen(accounts, options):
        answer["account_details"] = details = []
        for name in chosen:
            details.append((yield from account_detail(monitored, accounts[name], options)))
    if jetstream.scrubber is not None:
        answer["scrub"] = jetstream.scrubber.report()
    answer["total"] = len(accounts)
    return answer


def jetstream_block(monitored: Monitored) -> JsonDict:
    """Return the field `jetstream` of /varz: limits, usage and, in a cluster, the metadata group."""
    jetstream = monitored.node.jetstream
    assert jetstream is not None
    member = jetstream.shared.member
    return {
        "config": jetstream_config(monitored),
        "stats": jetstream_stats(monitored),
        **({} if member is None else {"meta": member.reports.meta(jetstream.shared.admission)}),
        "limits": jetstream_limits(monitored),
    }


def jetstream_stats(monitored: Monitored) -> JsonDict:
    """Return the usage and the counters of JetStream, which must be enabled."""
    jetstream = monitored.node.jetstream
    assert jetstream is not None
    shared, (memory, storage) = jetstream.shared, jetstream.used
    return {
        "memory": memory,
        "storage": storage,
        "reserved_memory": jetstream.memory.reserved,
        "reserved_storage": jetstream.storage.reserved,
        "accounts": len(jetstream.accounts),
        "ha_assets": _num_groups(shared),
        "api": _api_stats(shared),
    }


def _api_stats(shared: Shared) -> JsonDict:
    """Return the numbers of API requests; `inflight`, of those that wait, is left out if it is 0."""
    stats: JsonDict = {"level": API_LEVEL, "total": shared.api_total, "errors": shared.api_errors}
    inflight = shared.admission.inflight
    return stats | ({"inflight": inflight} if inflight else {})


def _num_groups(shared: Shared) -> int:
    """Return the number of replicated groups on this server: the metadata group, and one for each stream."""
    return 0 if shared.replicated is None else 1 + len(shared.replicated.machines())


def jetstream_config(monitored: Monitored) -> JsonDict:
    """Return the limits, the store directory and further JetStream options in effect."""
    jetstream = monitored.node.jetstream
    assert jetstream is not None
    options = jetstream.options
    config: JsonDict = {
        "max_memory": options.max_memory,
        "max_storage": options.max_storage,
        "store_dir": options.store_dir,
        "sync_interval": options.sync_interval_ns,
    }
    return config | filled({name: getattr(options, name) for name in OPTIONAL})


def jetstream_limits(monitored: Monitored) -> JsonDict:
    """Return the limits that are set for options of streams and consumers, and the default of max_consumers."""
    jetstream = monitored.node.jetstream
    assert jetstream is not None
    options = jetstream.options
    bounds: JsonDict = {
        "max_request_batch": options.limits.max_request_batch,
        "max_ack_pending": options.limits.max_ack_pending,
        "max_ha_assets": options.limits.max_ha_assets,
        "max_duplicate_window": options.limits.duplicate_window_ns,
    }
    return filled(bounds) | {"default_max_consumers": options.limits.default_max_consumers}


def _totals(accounts: dict[str, JetStream], options: JszOptions) -> JsonDict:
    streams = [stream for account in accounts.values() for stream in account.streams.values()]
    led = [
        stream
        for account in accounts.values()
        for stream in account.streams.values()
        if options.raft and leads(account, stream)
    ]
    consumers = sum(len(stream.consumers) for stream in streams)
    totals: JsonDict = {"streams": len(streams)}
    if led:
        totals["streams_leader"] = len(led)
    totals["consumers"] = consumers
    led_consumers = sum(len(stream.consumers) for stream in led)
    if led_consumers:
        totals["consumers_leader"] = led_consumers
    totals["messages"] = sum(stream.store.msgs for stream in streams)
    totals["bytes"] = sum(stream.store.bytes for stream in streams)
    return totals | _damage(accounts, streams)


def leads(account: JetStream, stream: Stream) -> bool:
    """Return whether this server leads a stream; it always leads a stream that is not replicated."""
    replicated = account.shared.replicated
    return replicated is None or not replicated.is_replica(stream) or replicated.leads(stream)


def _damage(accounts: dict[str, JetStream], streams: list[Stream]) -> JsonDict:
    """Return the numbers of lost and repaired messages, and the paths of files set aside; {} without damage.

    These fields do not exist in nats-server.
    """
    losses = [lost for stream in streams if (lost := stream.store.lost) is not None]
    damage: JsonDict = {}
    if losses:
        damage["lost_msgs"] = sum(messages for messages, _, _ in losses)
        damage["lost_bytes"] = sum(size for _, _, size in losses)
    repaired = next((account.shared.repaired for account in accounts.values()), 0)
    if repaired:
        damage["repaired_msgs"] = repaired
    set_aside = [path for account in accounts.values() for path in account.damaged()]
    return damage | {"damaged": [*set_aside]} if set_aside else damage


def _chosen(accounts: dict[str, JetStream], options: JszOptions) -> list[str]:
    if options.account in accounts:
        return [options.account]
    if not options.accounts:
        return []
    names = sorted(accounts)
    # nats-server 2.15.1 shows all accounts if the limit is negative, and ignores the offset then
    return names[options.offset : options.offset + options.limit] if options.limit > 0 else names


def account_detail(
    monitored: Monitored, account: JetStream, options: JszOptions
) -> Generator[None, None, JsonDict]:
    """Return usage and counters of one account and, if requested, its streams; yield between steps."""
    detail: JsonDict = {
        "name": account.account.name,
        "id": account.account.name,
        "memory": account.usage[MEMORY].used,
        "storage": account.usage[FILE].used,
        "reserved_memory": account.limits.max_memory % UINT64,
        "reserved_storage": account.limits.max_storage % UINT64,
        "accounts": 0,
        "ha_assets": 0,
        "api": {"level": 0, "total": account.api_total, "errors": account.api_errors},
    }
    if options.streams and account.streams:
        detail["stream_detail"] = streams = []
        for stream in list(account.streams.values()):
            if options.led.streams and not leads(account, stream):
                continue
            streams.append((yield from _stream_detail(monitored, account, stream, options)))
            if len(streams) % STREAMS_STEP == 0:
                yield
    return detail


def _cluster_of(monitored: Monitored, account: JetStream, stream: Stream) -> JsonDict:
    member = account.shared.member
    if member is None:
        return {"leader": monitored.node.server_name}
    fields: JsonDict = member.reports.stream(account, stream)
    return fields


def _stream_detail(
    monitored: Monitored, account: JetStream, stream: Stream, options: JszOptions
) -> Generator[None, None, JsonDict]:
    """Return a stream and, if requested, its consumers; yield between steps.

    Only the leader of the stream reports the consumers.
    """
    detail: JsonDict = {
        "name": stream.name,
        "created": time_text(stream.created_ns),
        "cluster": _cluster_of(monitored, account, stream),
    }
    if options.config:
        detail["config"] = as_json(stream.config)
    detail["state"] = stream_state(stream)
    member, groups = account.shared.member, []
    if options.consumers and stream.consumers:
        detail["consumer_detail"] = consumers = []
        for consumer in list(stream.consumers.values()):
            if not isinstance(consumer, Consumer):
                continue  # only the leader has it open
            yield from know_pending(consumer)
            if consumer.closed:
                continue  # it was deleted between two steps
            shown = consumer_info(
                consumer,
                monitored.node.clock.now_ns(),
                listed=True,
                config=options.config,
                cluster=None if member is None else member.reports.consumer(account, consumer),
            )
            if "cluster" in shown and "raft_group" in shown["cluster"]:
                groups.append({"name": consumer.name, "raft_group": shown["cluster"]["raft_group"]})
            consumers.append(pretty_piece(shown, CONSUMER_DEPTH))
            if len(consumers) % CONSUMERS_STEP == 0:
                yield
    yield from know_lag(account, stream)
    detail |= inflow_report(account, stream)
    return detail | (_groups_of(detail, groups) if options.raft else {})


def _groups_of(detail: JsonDict, consumers: list[JsonDict]) -> JsonDict:
    """Return the group names of a stream and its consumers, or {} if the stream has a single replica."""
    cluster = detail["cluster"]
    assert isinstance(cluster, dict)
    if "raft_group" not in cluster:
        return {}
    return filled({"stream_raft_group": cluster["raft_group"], "consumer_raft_groups": [*consumers]})
