"""The declared assets of a configuration, read from its blocks and checked by the rules of the API.

Two streams with the same name or with overlapping subjects, and an asset that no server would accept, are problems of
the file. Problems that depend on stored streams are found later (planning.py).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import orjson

from pyjs.config.errors import ConfigError, Problem
from pyjs.config.options import GLOBAL_ACCOUNT, AccountJetStreamOptions, Options
from pyjs.config.values import ConfigMap, describe
from pyjs.declared.assets import AccountAssets, ConsumerAsset, StreamAsset
from pyjs.declared.values import PROBLEMS_MAX, Reader
from pyjs.jetstream import errcodes
from pyjs.jetstream.config.bucket import HISTORY_MAX, KeyValueConfig, ObjectStoreConfig
from pyjs.jetstream.config.consumer import ConsumerConfig
from pyjs.jetstream.config.consumer_requests import read_create
from pyjs.jetstream.config.declared import from_json, struct_of
from pyjs.jetstream.config.json_strict import Struct
from pyjs.jetstream.config.stream import StreamConfig
from pyjs.jetstream.config.stream_requests import read_stream
from pyjs.jetstream.errcodes import ApiError
from pyjs.jetstream.rules import consumer as consumer_rules
from pyjs.jetstream.rules import stream as stream_rules
from pyjs.models import config as models
from pyjs.subjects.overlap import SubjectTree, at_once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from pyjs.config.declared import Block, DeclaredBlocks
    from pyjs.config.errors import Place
    from pyjs.config.values import Entry
    from pyjs.models.base import Options as Model

LOSS = "allow_data_loss"
_BUCKET = re.compile(r"[a-zA-Z0-9_-]+")
_NAMED = ("name", "durable_name")  # options whose value is the key of the entry


def _fields(of: type[Any]) -> Struct:
    found = struct_of(of)
    return Struct(found.name, {name: kind for name, kind in found.fields.items() if name not in _NAMED})


STREAM, CONSUMER = _fields(StreamConfig), _fields(ConsumerConfig)
KEY_VALUE, OBJECT_STORE = _fields(KeyValueConfig), _fields(ObjectStoreConfig)
ANY_STREAM = StreamConfig(num_replicas=stream_rules.REPLICAS_MAX)


def read_assets(options: Options) -> tuple[AccountAssets, ...]:
    """Return the declared assets of each account that has any.

    Raises:
        ConfigError: an asset is invalid; the message states the place, cause and fix of each problem.
    """
    problems: list[Problem] = []
    found = [
        _AccountReader(account, blocks, options, limits, problems).read()
        for account, blocks, limits in _declared(options, problems)
    ]
    if problems:
        raise ConfigError(problems[:PROBLEMS_MAX])
    return tuple(found)


def _declared(
    options: Options, problems: list[Problem]
) -> Iterator[tuple[str, DeclaredBlocks, AccountJetStreamOptions]]:
    """Yield each account that declares assets, with its blocks and limits; add problems to `problems`."""
    own = options.jetstream.declared
    if own:
        place, limits = _first_place(own), options.jetstream_of(GLOBAL_ACCOUNT)
        if not options.jetstream.enabled:
            problems.append(
                Problem(place, "assets are declared, and JetStream is disabled", "remove enabled: false")
            )
        elif limits is None:
            cause = f"assets are declared for the global account {GLOBAL_ACCOUNT}, which has no JetStream"
            fix = "declare them in the block jetstream of an account"
            problems.append(Problem(place, cause, fix))
        else:
            yield GLOBAL_ACCOUNT, own, limits
    for name, account in options.accounts.items():
        if account.jetstream is None or not account.jetstream.declared:
            continue
        place = _first_place(account.jetstream.declared)
        if not options.jetstream.enabled:
            cause = f'assets are declared for the account "{name}", and the server has no JetStream'
            problems.append(Problem(place, cause, "add jetstream { store_dir: ./data }"))
        elif options.operator_keys:
            cause = "assets cannot be declared in a server with operators, whose accounts come from tokens"
            problems.append(Problem(place, cause, "remove them, and create them with a client"))
        else:
            yield name, account.jetstream.declared, account.jetstream


def _first_place(blocks: DeclaredBlocks) -> Place:
    every = (blocks.streams, blocks.consumers, blocks.kv, blocks.object_store)
    return next(entry.place for block in every for entry in block.entries.values())


class _AccountReader:
    """A reader of the blocks of one account."""

    def __init__(
        self,
        account: str,
        blocks: DeclaredBlocks,
        options: Options,
        limits: AccountJetStreamOptions,
        problems: list[Problem],
    ) -> None:
        self._blocks = blocks
        self._problems = problems
        self._reader = Reader(problems)
        # workers are one server, although there are routes between them
        is_clustered = bool(options.cluster.port or options.cluster.routes) and options.worker is None
        self._assets = AccountAssets(account, options.jetstream, limits, is_clustered)

    def read(self) -> AccountAssets:
        """Read and check the blocks; return the assets, and add problems to the list of problems."""
        blocks = self._blocks
        self._read_streams("stream", blocks.streams, STREAM, models.StreamConfig, _stream)
        self._read_streams("kv", blocks.kv, KEY_VALUE, models.KeyValueConfig, _key_value)
        self._read_streams(
            "object_store", blocks.object_store, OBJECT_STORE, models.ObjectStoreConfig, _object_store
        )
        self._check_streams()
        for stream, entry in _entries(blocks.consumers):
            for name, inner in _entries_of(self._map(entry, "bakery { ack_policy: explicit }")):
                self._read_consumer(stream, name, inner)
        return self._assets

    def _note(self, place: Place, cause: str, fix: str) -> None:
        if len(self._problems) < PROBLEMS_MAX:
            self._problems.append(Problem(place, cause, fix))

    def _map(self, entry: Entry, example: str) -> ConfigMap:
        if isinstance(entry.value.data, ConfigMap):
            return entry.value.data
        found = describe(entry.value)
        fix = f"write {entry.key} {{ {example} }}"
        self._note(entry.value.place, f'"{entry.key}" expects a map, found {found}', fix)
        return ConfigMap()

    def _read_streams(
        self,
        kind: str,
        block: Block,
        struct: Struct,
        model: type[Model],
        make: Callable[[str, dict[str, Any]], StreamConfig],
    ) -> None:
        for name, entry in _entries(block):
            entries, allowed = self._without_loss(self._map(entry, "..."))
            given = self._reader.read(entries, entry.place, struct, model)
            if given is None:
                continue
            try:
                config = make(name, given)
            except ApiError as error:
                self._note(entry.place, f'{kind} "{name}": {error.description}', "change the entry")
                continue
            first = self._assets.streams.get(config.name)
            if first is not None:
                cause = f'the stream "{config.name}" is declared twice, first at {first.place}'
                self._note(entry.place, cause, "remove one of the two")
            else:
                self._assets.streams[config.name] = StreamAsset(kind, name, config, entry.place, allowed)

    def _without_loss(self, entries: ConfigMap) -> tuple[ConfigMap, bool]:
        """Return the entries without `allow_data_loss`, and the value of `allow_data_loss`; False is its default."""
        rest, allowed = ConfigMap(), False
        for entry in entries.values():
            if entry.key.lower() != LOSS:
                rest.put(entry)
            elif isinstance(entry.value.data, bool):
                allowed = entry.value.data
            else:
                cause = f'"{entry.key}" expects true or false, found {describe(entry.value)}'
                self._note(entry.value.place, cause, f"write {LOSS}: true")
        return rest, allowed

    def _check_streams(self) -> None:
        """Check the streams by the rules of the API, and that no two streams have overlapping subjects."""
        tree, owners = SubjectTree(), self._assets.streams
        for asset in owners.values():
            if len(self._problems) >= PROBLEMS_MAX:
                return
            try:
                config = checked(self._assets, asset.config, self._find)
            except ApiError as error:
                self._note(
                    asset.place, f'{asset.kind} "{asset.shown_name}": {error.description}', "change the entry"
                )
                continue
            if any(at_once(tree.overlapping(subject, asset.name)) for subject in config.subjects):
                other = first_taker(config, (each.config for each in owners.values()))
                where = f", at {owners[other].place}" if other in owners else ""
                cause = f'the subjects of "{asset.name}" overlap with those of the stream "{other}"{where}'
                self._note(asset.place, cause, "give each subject to one stream")
                continue
            for subject in config.subjects:
                tree.add(subject, asset.name)

    def _find(self, name: str) -> StreamConfig | None:
        found = self._assets.streams.get(name)
        return None if found is None else found.config

    def _read_consumer(self, stream: str, name: str, entry: Entry) -> None:
        entries, allowed = self._without_loss(self._map(entry, "ack_policy: explicit"))
        given = self._reader.read(entries, entry.place, CONSUMER, models.ConsumerConfig)
        if given is None:
            return
        body = {"stream_name": stream, "config": {**given, "name": name, "durable_name": name}}
        try:
            config = read_create(_json(body), strict=True).config
            declared = self._assets.streams.get(stream)
            # nothing is known of a stream that the file does not declare
            of = ANY_STREAM if declared is None else declared.config
            limits = consumer_limits(self._assets)
            consumer_rules.check(consumer_rules.normalised(config, of, limits), of, limits)
            if len(name) > consumer_rules.NAME_SIZE_MAX:
                raise errcodes.CONSUMER_NAME_TOO_LONG.error(max=consumer_rules.NAME_SIZE_MAX)
        except ApiError as error:
            self._note(entry.place, f'consumer "{stream} > {name}": {error.description}', "change the entry")
            return
        self._assets.consumers[stream, name] = ConsumerAsset(stream, config, entry.place, allowed)


def checked(
    assets: AccountAssets,
    config: StreamConfig,
    find: Callable[[str], StreamConfig | None],
    overlapping: str | None = stream_rules.NOT_SEARCHED,
) -> StreamConfig:
    """Check a stream by the rules of the API; return its configuration with the defaults that the server fills in.

    `overlapping` is None if the subjects of `config` are known not to overlap with each other.

    Raises:
        ApiError: a rule is violated.
    """
    stream_rules.check_create(config)
    errcodes.MAXIMUM_CONSUMERS_LIMIT.raise_if(0 < assets.limits.max_consumers < config.max_consumers)
    config = stream_rules.check(config, assets.server, assets.limits, find=find, overlapping=overlapping)
    if config.mirror is not None or config.sources:
        from pyjs.jetstream.rules import sources as source_rules

        source_rules.check_filters(config)
    if not assets.is_clustered:
        stream_rules.check_single_server(config)
    return config


def consumer_limits(assets: AccountAssets) -> consumer_rules.ConsumerLimits:
    """Return the limits of the server and the account for options of consumers."""
    server, account = assets.server.limits, assets.limits
    return consumer_rules.ConsumerLimits(
        server.max_ack_pending, server.max_request_batch, max(account.max_ack_pending, 0)
    )


def first_taker(config: StreamConfig, others: Iterator[StreamConfig]) -> str:
    """Return the name of the first of `others` whose subjects overlap with those of `config`, or "" if none do."""
    tree = SubjectTree()
    for subject in config.subjects:
        tree.add(subject, config.name)
    for other in others:
        subjects = other.subjects or (() if other.mirror or other.sources else (other.name,))
        if other.name != config.name and any(
            at_once(tree.overlapping(each, other.name)) for each in subjects
        ):
            return other.name
    return ""


def _entries(block: Block) -> Iterator[tuple[str, Entry]]:
    return _entries_of(block.entries)


def _entries_of(entries: ConfigMap) -> Iterator[tuple[str, Entry]]:
    """Yield the entries that declare assets, with their names; entries that are used as variables are left out."""
    for name, entry in entries.items():
        if not entry.used:
            yield name, entry


def _stream(name: str, given: dict[str, Any]) -> StreamConfig:
    return read_stream(_json({**given, "name": name}), strict=True).config


def _json(fields: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(fields)
    except TypeError:  # the other values have been checked
        raise errcodes.invalid_config("the name is not valid UTF-8") from None


def _key_value(name: str, given: dict[str, Any]) -> StreamConfig:
    _check_bucket(name)
    config = from_json(KeyValueConfig, given)
    if not 1 <= config.history <= HISTORY_MAX:
        raise errcodes.invalid_config(f"history is {config.history}, and must be from 1 to {HISTORY_MAX}")
    if config.mirror is not None and config.sources:
        raise errcodes.invalid_config("a bucket has a mirror or sources, not both")
    return config.stream(name)


def _object_store(name: str, given: dict[str, Any]) -> StreamConfig:
    _check_bucket(name)
    return from_json(ObjectStoreConfig, given).stream(name)


def _check_bucket(name: str) -> None:
    if not _BUCKET.fullmatch(name):
        raise errcodes.invalid_config("the name of a bucket has only letters, digits, _ and -")
