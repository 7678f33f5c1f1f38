"""The plan for one account: an action for each declared asset, and the order of the actions.

A plan depends only on the declared and the stored assets, so the server applies the plan that `pyjs-server plan`
shows. A plan never deletes an asset. Its actions are divided into waves. The actions of a wave may run at the same
time, after the actions of all earlier waves: a stream waits for its origins and for subjects that another stream
gives up, and a consumer waits for its stream.

Limits that only the server knows at the time of a request, such as free space for reserved bytes, are not checked.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from pyjs.declared.comparing import (
    Change,
    Contents,
    consumer_changes,
    consumer_loss,
    stream_changes,
    stream_loss,
)
from pyjs.declared.reading import checked, consumer_limits, first_taker
from pyjs.jetstream import errcodes
from pyjs.jetstream.config.choices import FILE, MEMORY
from pyjs.jetstream.config.declared import as_json, changed
from pyjs.jetstream.errcodes import ApiError
from pyjs.jetstream.rules import consumer as consumer_rules
from pyjs.jetstream.rules import stream as stream_rules
from pyjs.jetstream.rules.claims import Claims
from pyjs.subjects.overlap import SubjectTree

if TYPE_CHECKING:
    from collections.abc import Generator

    from pyjs.declared.assets import AccountAssets, ConsumerAsset, StreamAsset
    from pyjs.jetstream.config.consumer import ConsumerConfig
    from pyjs.jetstream.config.stream import StreamConfig

STEP = 16  # assets examined in one turn: two milliseconds
SUBJECTS_STEP = 1000  # subjects added or searched in one turn: two milliseconds
FREED_STEP = 500  # configurations freed in one turn: a millisecond
NAMED_MAX = 100  # refused streams for which the stream with their subjects is searched
LOSS_FIX = "; write allow_data_loss: true to allow it"


class Verb(Enum):
    """What an action in a plan does with a stream or consumer."""

    CREATE = "create"
    UPDATE = "update"
    SAME = "same"
    REFUSE = "refuse"  # it differs and cannot be changed


class StoredStream(NamedTuple):
    """A stored stream: its configuration and the size of its contents."""

    config: StreamConfig
    contents: Contents


@dataclass(slots=True)
class Stored:
    """The stored streams and consumers of the account."""

    streams: dict[str, StoredStream] = field(default_factory=dict)
    # stored streams that cannot be looked up now, each with the reason
    unavailable: dict[str, str] = field(default_factory=dict)
    # the consumers of each stream for which the file declares any
    consumers: dict[str, dict[str, ConsumerConfig]] = field(default_factory=dict)


@dataclass(slots=True)
class Action:
    """The action of a plan for one asset."""

    asset: StreamAsset | ConsumerAsset
    verb: Verb
    changes: tuple[Change, ...] = ()
    reason: str = ""  # the reason why the asset cannot be changed
    wave: int = 0
    config: dict[str, Any] = field(default_factory=dict)  # the body of the request


@dataclass(slots=True)
class Plan:
    """The actions of one account, in the order of the file, and the assets that are not in the file."""

    account: str
    actions: list[Action]
    others: list[str]  # streams and consumers that the file does not name


def make_plan(assets: AccountAssets, stored: Stored, now_ns: int) -> Generator[None, None, Plan]:
    """Return the plan for one account; yield between steps.

    `now_ns` is the wall time, from which the ages of messages are computed.
    """
    planner = _Planner(assets, stored, now_ns)
    actions = yield from planner.stream_actions()
    actions += yield from planner.consumer_actions()
    others = [
        f"stream {name}" for name in sorted({*stored.streams, *stored.unavailable} - assets.streams.keys())
    ]
    for stream, consumers in sorted(stored.consumers.items()):
        unnamed = [name for name in sorted(consumers) if (stream, name) not in assets.consumers]
        others += [f"consumer {stream} > {name}" for name in unnamed]
    yield from planner.end()
    return Plan(assets.account, actions, others)


def freed(table: dict[str, Any]) -> Generator[None, None, None]:
    """Empty `table` in steps, since freeing thousands of configurations at once would delay other work."""
    while table:
        for _ in range(min(len(table), FREED_STEP)):
            table.popitem()
        yield


class _Planner:
    """The state of `make_plan`: the actions so far, and the streams and limits as they are after the plan."""

    def __init__(self, assets: AccountAssets, stored: Stored, now_ns: int) -> None:
        self._assets = assets
        self._stored = stored
        self._now_ns = now_ns
        self._actions: dict[str, Action] = {}  # of streams
        self._wanted: dict[
            str, StreamConfig
        ] = {}  # the configuration of each declared stream after its action
        self._count = len(stored.streams) + len(stored.unavailable)  # of streams, after the plan
        self._added = 0  # subjects added in this step
        self._reserved = {FILE: 0, MEMORY: 0}  # bytes of all streams of the account, after the plan
        for each in stored.streams.values():
            self._reserved[each.config.storage] += max(each.config.max_bytes, 0)
        self._consumer_counts = {name: len(each) for name, each in stored.consumers.items()}  # after the plan

    def end(self) -> Generator[None, None, None]:
        """Free, in steps, the configurations that only the planner has."""
        return freed(self._wanted)

    # -- streams -------------------------------------------------------------------------------------------------

    def stream_actions(self) -> Generator[None, None, list[Action]]:
        for at, asset in enumerate(self._assets.streams.values()):
            if at % STEP == STEP - 1:
                yield
            self._actions[asset.name] = self._stream_action(asset)
        yield from self._order()
        return list(self._actions.values())

    def _stream_action(self, asset: StreamAsset) -> Action:
        name = asset.name
        if name in self._stored.unavailable:
            return Action(asset, Verb.REFUSE, reason=self._stored.unavailable[name])
        there = self._stored.streams.get(name)
        changes: tuple[Change, ...] = ()
        try:
            wanted = checked(self._assets, asset.config, self._find, overlapping=None)
            if there is None:
                self._check_count()
                self._check_room(wanted, 0)
                self._wanted[name] = wanted
                return Action(asset, Verb.CREATE, config=as_json(wanted))
            if there.config.same_as(wanted):
                self._wanted[name] = there.config
                return Action(asset, Verb.SAME)
            changes = stream_changes(there.config, wanted)
            wanted = stream_rules.check_update(there.config.with_required_level(), wanted)
            self._check_consumer_limits(there.config, wanted)
            self._check_room(wanted, max(there.config.max_bytes, 0))
        except ApiError as error:
            return Action(asset, Verb.REFUSE, changes, error.description)
        loss = (
            "" if asset.allow_data_loss else stream_loss(there.config, wanted, there.contents, self._now_ns)
        )
        if loss:
            return Action(asset, Verb.REFUSE, changes, loss + LOSS_FIX)
        self._wanted[name] = wanted
        return Action(asset, Verb.UPDATE, changes, config=as_json(wanted))

    def _check_room(self, config: StreamConfig, before: int) -> None:
        """Reserve `max_bytes` of a stream, of which `before` bytes are already reserved.

        In a cluster, nothing is checked, since a server does not know the room on the other servers.

        Raises:
            ApiError: the account or the server lacks room.
        """
        assets = self._assets
        if assets.is_clustered:
            return
        is_memory = config.storage == MEMORY
        owns = (assets.limits, assets.server)
        extra, reserved = max(max(config.max_bytes, 0) - before, 0), self._reserved[config.storage]
        need = extra if config.max_bytes > 0 else 1
        if any(0 <= (each.max_memory if is_memory else each.max_storage) < reserved + need for each in owns):
            code = errcodes.MEMORY_RESOURCES_EXCEEDED if is_memory else errcodes.STORAGE_RESOURCES_EXCEEDED
            raise code.error()
        self._reserved[config.storage] += max(config.max_bytes, 0) - before

    def _check_consumer_limits(self, old: StreamConfig, new: StreamConfig) -> None:
        """Raise ApiError if a stored consumer exceeds the new consumer limits of its stream."""
        if new.consumer_limits == old.consumer_limits:
            return
        longest, most = new.consumer_limits.inactive_threshold_ns, new.consumer_limits.max_ack_pending
        names = [
            name
            for name, config in self._stored.consumers.get(new.name, {}).items()
            if 0 < longest < config.inactive_threshold_ns or 0 < most < config.max_ack_pending
        ]
        if names:
            text = f"change to limits violates consumers: {', '.join(names)}"
            raise errcodes.STREAM_UPDATE.error(err=text)

    def _find(self, name: str) -> StreamConfig | None:
        """Return the configuration that the declared or stored stream `name` has after the plan, or None."""
        if name in self._wanted:
            return self._wanted[name]
        asset = self._assets.streams.get(name)
        if asset is not None:
            return asset.config
        there = self._stored.streams.get(name)
        return None if there is None else there.config

    def _check_count(self) -> None:
        """Count one more stream, or raise ApiError if the account already has the maximum number of streams."""
        limits = self._assets.limits
        if 0 < limits.max_streams <= self._count:
            raise errcodes.MAXIMUM_STREAMS_LIMIT.error()
        self._count += 1

    def _order(self) -> Generator[None, None, None]:
        """Set the waves of the streams; yield between steps.

        Refuse a stream that needs a subject which another stream keeps.
        """
        taken = SubjectTree()
        for name, there in self._stored.streams.items():
            yield from self._take(name, there.config.subjects, taken)
        waiting = {
            name: each for name, each in self._actions.items() if each.verb in (Verb.CREATE, Verb.UPDATE)
        }
        wave = refused = 0
        while waiting:
            ready, free = yield from self._ready(waiting, taken)
            blocked = [] if ready else [name for name in waiting if name not in free]
            for name in blocked:  # then no stream waits for an origin that is refused
                self._refuse_subjects(waiting.pop(name), is_searched=refused < NAMED_MAX)
                refused += 1
                yield
            # streams that are the origins of each other wait no longer
            for at, name in enumerate(ready or ([] if blocked else free)):
                if at % SUBJECTS_STEP == SUBJECTS_STEP - 1:
                    yield
                waiting.pop(name).wave = wave
                yield from self._give_up(name, taken)
            wave += 1

    def _ready(
        self, waiting: dict[str, Action], taken: SubjectTree
    ) -> Generator[None, None, tuple[list[str], list[str]]]:
        """Return the streams of the next wave, and all streams whose subjects are free; yield between steps.

        The subjects of the streams of the next wave are added to `taken`.
        """
        ready, free = [], []
        for at, name in enumerate(waiting):
            if at % STEP == STEP - 1:
                yield
            if not (yield from self._is_free(name, taken)):
                continue
            free.append(name)
            if not self._waits_for_origin(name, waiting):
                ready.append(name)
                yield from self._take(name, self._wanted[name].subjects, taken)
        return ready, free

    def _waits_for_origin(self, name: str, waiting: dict[str, Action]) -> bool:
        config = self._wanted[name]
        origins = [*((config.mirror,) if config.mirror else ()), *config.sources]
        return any(each.external is None and each.name in waiting and each.name != name for each in origins)

    def _is_free(self, name: str, taken: SubjectTree) -> Generator[None, None, bool]:
        had = set(self._subjects_of(name))
        for at, subject in enumerate(self._wanted[name].subjects):
            if at % SUBJECTS_STEP == SUBJECTS_STEP - 1:
                yield
            if subject not in had and (yield from taken.overlapping(subject, name)):
                return False
        return True

    def _subjects_of(self, name: str) -> tuple[str, ...]:
        """Return the subjects of the stored stream `name`; () if there is no such stream yet."""
        there = self._stored.streams.get(name)
        return () if there is None else there.config.subjects

    def _take(self, name: str, subjects: tuple[str, ...], taken: SubjectTree) -> Generator[None, None, None]:
        self._added += len(subjects)
        if self._added >= SUBJECTS_STEP:
            self._added = 0
            yield
        for at, subject in enumerate(subjects):
            if at % SUBJECTS_STEP == SUBJECTS_STEP - 1:
                yield
            taken.add(subject, name)

    def _give_up(self, name: str, taken: SubjectTree) -> Generator[None, None, None]:
        stays = set(self._wanted[name].subjects)
        for at, subject in enumerate(self._subjects_of(name)):
            if at % SUBJECTS_STEP == SUBJECTS_STEP - 1:
                yield
            if subject not in stays:
                taken.remove(subject, name)

    def _refuse_subjects(self, action: Action, *, is_searched: bool) -> None:
        config = self._wanted.pop(action.asset.name)
        stored = self._stored.streams
        # a stream that keeps the subjects, or else one that waits for another stream, as in an exchange
        after = (self._wanted.get(name, each.config) for name, each in stored.items())
        before = (each.config for each in stored.values())
        other = (first_taker(config, after) or first_taker(config, before)) if is_searched else ""
        text = errcodes.STREAM_SUBJECT_OVERLAP.error().description
        action.reason = f"{text}: {other}" if other else text
        action.verb, action.config = Verb.REFUSE, {}

    # -- consumers -----------------------------------------------------------------------------------------------

    def consumer_actions(self) -> Generator[None, None, list[Action]]:
        actions, claims = [], dict[str, Claims]()
        for at, asset in enumerate(self._assets.consumers.values()):
            if at % STEP == STEP - 1:
                yield
            actions.append(self._consumer_action(asset, claims))
        return actions

    def _consumer_action(self, asset: ConsumerAsset, claims: dict[str, Claims]) -> Action:
        stream = self._stream_of(asset)
        if isinstance(stream, str):
            return Action(asset, Verb.REFUSE, reason=stream)
        there = self._stored.consumers.get(asset.stream, {}).get(asset.name)
        changes: tuple[Change, ...] = ()
        try:
            wanted = self._wanted_consumer(asset, stream, there)
            if there is not None and consumer_rules.same_but_versions(there, wanted):
                return Action(asset, Verb.SAME)
            changes = () if there is None else consumer_changes(there, wanted)
            consumer_rules.check(wanted, stream, consumer_limits(self._assets))
            self._check_claims(stream, wanted, there, claims)
            if there is None:
                self._check_consumer_count(stream)
            else:
                consumer_rules.check_update(there, wanted, bound=False)
        except ApiError as error:
            return Action(asset, Verb.REFUSE, changes, error.description)
        body = {"stream_name": asset.stream, "config": as_json(wanted)}
        wave = self._wave_after(asset.stream)
        if there is None:
            return Action(asset, Verb.CREATE, wave=wave, config={**body, "action": "create"})
        found = self._stored.streams.get(asset.stream)
        messages = 0 if found is None else found.contents.messages
        loss = "" if asset.allow_data_loss else consumer_loss(stream, there, wanted, messages)
        if loss:
            return Action(asset, Verb.REFUSE, changes, loss + LOSS_FIX)
        return Action(asset, Verb.UPDATE, changes, wave=wave, config={**body, "action": "update"})

    def _stream_of(self, asset: ConsumerAsset) -> StreamConfig | str:
        """Return the configuration that the stream of `asset` has after the plan, or why there is no such stream."""
        if asset.stream in self._stored.unavailable:
            return self._stored.unavailable[asset.stream]
        if asset.stream in self._wanted:
            return self._wanted[asset.stream]
        there = self._stored.streams.get(asset.stream)
        return errcodes.STREAM_NOT_FOUND.error().description if there is None else there.config

    def _wanted_consumer(
        self, asset: ConsumerAsset, stream: StreamConfig, there: ConsumerConfig | None
    ) -> ConsumerConfig:
        config = asset.config
        if there is not None and config.pause_until_ns is None:
            config = changed(config, pause_until_ns=there.pause_until_ns)
        return consumer_rules.normalised(config, stream, consumer_limits(self._assets))

    def _check_claims(
        self,
        stream: StreamConfig,
        wanted: ConsumerConfig,
        there: ConsumerConfig | None,
        claims: dict[str, Claims],
    ) -> None:
        """Add the filters of a consumer to the claims on its workqueue stream.

        Raises:
            ApiError: the stream cannot have the consumer, for example because of overlapping filters.
        """
        if stream.retention != "workqueue":
            return
        known = claims.get(stream.name)
        if known is None:
            known = claims[stream.name] = Claims()
            for name, config in self._stored.consumers.get(stream.name, {}).items():
                known.put(name, config)
        if there is None:
            consumer_rules.check_workqueue(wanted, known.tree)
        else:
            consumer_rules.check_unshared(wanted, known.tree, wanted.durable_name)
        known.put(wanted.durable_name, wanted)

    def _check_consumer_count(self, stream: StreamConfig) -> None:
        """Count one more consumer of a stream, or raise ApiError if the stream already has the maximum number."""
        count, assets = self._consumer_counts.get(stream.name, 0), self._assets
        limits = (
            stream.max_consumers,
            assets.limits.max_consumers,
            assets.server.limits.default_max_consumers,
        )
        if next((limit for limit in limits if limit > 0), count + 1) <= count:
            raise errcodes.MAXIMUM_CONSUMERS_LIMIT.error()
        self._consumer_counts[stream.name] = count + 1

    def _wave_after(self, stream: str) -> int:
        action = self._actions.get(stream)
        return 0 if action is None or action.verb not in (Verb.CREATE, Verb.UPDATE) else action.wave + 1
