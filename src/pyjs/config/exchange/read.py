"""The blocks `exports`, `imports` and `mappings` of a file, read into declarations.

A refused declaration has nats-server's text as its cause, if nats-server refuses it too. Checks across accounts are
in check.py.

Source: nats.docs "Accounts"; behaviour of nats-server 2.15.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyjs.base.units import INT64_MAX
from pyjs.config.errors import Place, Refused
from pyjs.config.exchange.check import Check
from pyjs.config.exchange.declared import (
    CHUNKED,
    SINGLETON,
    STREAM,
    THRESHOLD_NS,
    Exchange,
    Export,
    Import,
    Latency,
    MapDestination,
    ServiceExport,
    ServiceImport,
    StreamExport,
    StreamImport,
    SubjectMapping,
)
from pyjs.config.kinds import BOOL, DURATION, INT, STRING, STRINGS, Between, fill, read_map
from pyjs.config.table import Key, Kind, Reading, Table, Unsupported, read_block, wrong_type
from pyjs.config.values import Value, describe
from pyjs.subjects.tokens import is_valid_subject, subject_has_wildcard
from pyjs.subjects.transform import TransformError, check_mapping

if TYPE_CHECKING:
    from collections.abc import Callable

_RESPONSES = {
    "single": SINGLETON, "singleton": SINGLETON, "stream": STREAM, "chunk": CHUNKED, "chunked": CHUNKED
}  # fmt: skip


@dataclass(slots=True)
class ExportBlock:
    """The values read from one entry of the block `exports`."""

    stream: str = ""
    service: str = ""
    accounts: tuple[str, ...] = ()
    account_token_position: int = 0
    response_type: str = SINGLETON
    response_threshold_ns: int = THRESHOLD_NS
    latency: Latency | None = None
    allow_trace: bool = False


@dataclass(slots=True)
class LatencyBlock:
    """The values read from the block `latency` of a service export."""

    subject: str = ""
    sampling: int = 100


@dataclass(slots=True)
class RemoteBlock:
    """The values read from the block `stream` or `service` of an import."""

    account: str = ""
    subject: str = ""


@dataclass(slots=True)
class ImportBlock:
    """The values read from one entry of the block `imports`."""

    stream: RemoteBlock | None = None
    service: RemoteBlock | None = None
    prefix: str = ""
    to: str = ""
    share: bool = False
    allow_trace: bool = False


@dataclass(slots=True)
class DestinationBlock:
    """The values read from one destination of a mapping."""

    destination: str = ""
    weight: int | None = None


# Exports


def _read_response_type(reading: Reading, key: Key, value: Value, target: object) -> str:
    text = STRING.read(reading, key, value, target)
    found = _RESPONSES.get(str(text).lower())
    if found is None:
        raise Refused(value.place, f'Unknown response type: "{text}"', "use singleton, stream or chunked")
    return found


def _read_sampling(reading: Reading, key: Key, value: Value, target: object) -> int:
    """Read a percentage from 1 to 100, or "headers", for which 0 is returned."""
    data = value.data
    if isinstance(data, str) and data.strip().lower() == "headers":
        return 0
    text = data.removesuffix("%") if isinstance(data, str) else data
    if isinstance(text, bool) or not isinstance(text, str | int):
        raise wrong_type(key, value, "a percentage", "write sampling: 50%, or headers")
    try:
        sampling = int(text)
    except ValueError:
        cause = f'Failed to parse latency sample "{data}"'
        raise Refused(value.place, cause, "write sampling: 50%, or headers") from None
    if not 1 <= sampling <= 100:
        cause = "bad sampling percentage, should be 1-100"
        raise Refused(value.place, cause, "write sampling: 50%, or headers")
    return sampling


LATENCY = Table(
    "account.exports.latency",
    (
        Key(
            "sampling",
            Kind("percentage", _read_sampling, "int | str"),
            "Percentage of requests to measure, or `headers` for requests whose tracing header asks for it.",
        ),
        Key("subject", STRING, "The subject of the samples, in the exporting account."),
    ),
)


def _read_latency(reading: Reading, key: Key, value: Value, target: object) -> Latency:
    if isinstance(value.data, str):
        return Latency(value.data)
    latency = fill(reading, LATENCY, key, value, "sampling: 50%, subject: latency", LatencyBlock())
    if not latency.subject:
        raise Refused(value.place, "Latency subject required, but missing", "add subject: latency.service")
    return Latency(latency.subject, latency.sampling)


EXPORT = Table(
    "account.exports",
    (
        Key("stream", STRING, "The subjects that other accounts may receive."),
        Key("service", STRING, "The subjects that other accounts may send requests to."),
        Key("accounts", STRINGS, "The accounts that may import the export; default: all."),
        Key(
            "account_token_position",
            INT,
            "The position in the subject of the `*` that stands for the name of the importing account.",
            check=Between(0, 255, "use the number of a token that is *"),
        ),
        Key(
            "response_type",
            Kind("response type", _read_response_type, "str"),
            "`singleton`: one response to each request; `stream`, `chunked`: several.",
            ("response",),
        ),
        Key(
            "response_threshold",
            DURATION,
            "Maximum time for a response.",
            ("threshold", "response_max_time", "response_time"),
            check=Between(1, INT64_MAX, "use a positive duration such as 2s"),
        ),
        Key(
            "latency",
            Kind("string or map", _read_latency, "str | {}", LATENCY),
            "Measure the duration of requests: the subject of the samples, or a map.",
        ),
        Key("allow_trace", BOOL, "Traces of requests include events in this account."),
    ),
)


def _list_of(
    kind: str, read_one: Callable[[Reading, Key, Value], object]
) -> Callable[..., tuple[object, ...]]:
    def read(reading: Reading, key: Key, value: Value, target: object) -> tuple[object, ...]:
        if not isinstance(value.data, list):
            cause = f"{kind} should be an array, found {describe(value)}"
            raise Refused(value.place, cause, f'write {key.name}: [ {{stream: "a.>"}} ]')
        found = []
        for index, element in enumerate(value.data):
            try:
                found.append(read_one(reading, key, element))
            except Refused as refused:
                reading.problems.append(refused.problem)
            name = getattr(target, "name", "")
            reading.places[f"{name}.{key.name}.{index}"] = element.place
        return tuple(found)

    return read


def _read_export(reading: Reading, key: Key, value: Value) -> Export:
    block, before = ExportBlock(), len(reading.problems)
    entries = read_map(key, value, 'stream: "a.>"')
    read_block(reading, EXPORT, entries, block)
    if bool(block.stream) == bool(block.service):
        _no_single_kind(reading, value.place, block.stream, before)
    if block.service:
        return ServiceExport(
            block.service,
            block.accounts,
            block.account_token_position,
            block.response_type,
            block.response_threshold_ns,
            block.latency,
            block.allow_trace,
        )
    for entry in entries.values():
        known = EXPORT.key_by_name.get(entry.key.lower())
        name = "" if known is None else known.name
        name = name if name == "allow_trace" else name.partition("_")[0]
        if name in ("response", "latency", "allow_trace"):
            cause = f"Detected {name} directive on non-service"
            raise Refused(entry.place, cause, "remove it, or export a service")
    return StreamExport(block.stream, block.accounts, block.account_token_position)


def _no_single_kind(reading: Reading, place: Place, stream: object, before: int) -> None:
    """Raise Refused for an entry that has both a stream and a service, or neither.

    An entry with neither is not refused if `reading` has more than `before` problems, since they explain it.
    """
    if stream:
        raise Refused(place, "this entry has a stream and a service", "make two entries of it")
    if len(reading.problems) == before:
        raise Refused(place, "this entry has neither stream nor service", 'add stream: "a.>" for instance')


# Imports


REMOTE = Table(
    "account.imports.subject",
    (
        Key("account", STRING, "The exporting account."),
        Key("subject", STRING, "The subject in the exporting account."),
    ),
)


def _read_remote(reading: Reading, key: Key, value: Value, target: object) -> RemoteBlock:
    remote = fill(reading, REMOTE, key, value, 'account: A, subject: "a.>"', RemoteBlock())
    if not remote.account or not remote.subject:
        raise Refused(
            value.place, "Expect an account name and a subject", 'write {account: A, subject: "a.>"}'
        )
    return remote


_REMOTE = Kind("map", _read_remote, "{}", REMOTE)

IMPORT = Table(
    "account.imports",
    (
        Key("stream", _REMOTE, "Account and subject of a stream export."),
        Key("service", _REMOTE, "Account and subject of a service export."),
        Key("prefix", STRING, "The prefix of the stream's subjects in this account."),
        Key(
            "to", STRING, "The subject in this account, with `$1` for the first `*` of the exported subject."
        ),
        Key("share", BOOL, "Send the client's address, name and user to the service."),
        Key("allow_trace", BOOL, "Traces of the stream's messages include events in this account."),
    ),
)


def _read_import(reading: Reading, key: Key, value: Value) -> Import:
    block, before = ImportBlock(), len(reading.problems)
    entries = read_map(key, value, 'stream: {account: A, subject: "a.>"}')
    read_block(reading, IMPORT, entries, block)
    if (block.stream is None) == (block.service is None):
        _no_single_kind(reading, value.place, block.stream, before)
    if block.service is not None:
        for entry in entries.values():
            if entry.key.lower() == "allow_trace":
                cause = "Detected allow_trace directive on a non-stream"
                raise Refused(entry.place, cause, "remove it; the export of the service has it")
        return ServiceImport(block.service.account, block.service.subject, block.to, block.share)
    remote = block.stream or RemoteBlock()
    if not block.prefix:
        return StreamImport(remote.account, remote.subject, block.to, block.allow_trace)
    if block.to:
        cause = "Stream import can not have a 'prefix' and a 'to' property"
        raise Refused(value.place, cause, "keep one of the two")
    if subject_has_wildcard(block.prefix.encode()):
        cause = f'Error adding stream import "{remote.subject}": stream import prefix can not contain wildcard tokens'
        raise Refused(value.place, cause, "use literal tokens")
    local = f"{block.prefix.removesuffix('.')}.{remote.subject}"
    return StreamImport(remote.account, remote.subject, local, block.allow_trace)


# Mappings


def _read_weight(reading: Reading, key: Key, value: Value, target: object) -> int:
    text = value.data.removesuffix("%") if isinstance(value.data, str) else value.data
    if isinstance(text, bool) or not isinstance(text, str | int):
        raise wrong_type(key, value, "a percentage", "write weight: 50%")
    try:
        weight = int(text)
    except ValueError:
        weight = -1
    if not 0 <= weight <= 100:
        raise Refused(value.place, f'Invalid weight "{text}" for mapping destination', "write weight: 50%")
    return weight


DESTINATION = Table(
    "mappings",
    (
        Key("destination", STRING, "The new subject of a message.", ("dest",)),
        Key(
            "weight",
            Kind("percentage", _read_weight, "int | str"),
            "Percentage of the messages that get this destination.",
        ),
    ),
    (Unsupported(("cluster",), "a subject has the same destinations in every cluster"),),
)


def _read_destination(reading: Reading, key: Key, value: Value) -> MapDestination:
    if isinstance(value.data, str):
        return MapDestination(value.data)
    block, before = DestinationBlock(), len(reading.problems)
    fill(reading, DESTINATION, key, value, "destination: b, weight: 100%", block)
    if block.weight is None and len(reading.problems) == before:
        cause = f'Missing weight for mapping destination "{block.destination}"'
        raise Refused(value.place, cause, "add weight: 100%")
    return MapDestination(block.destination, block.weight or 0)


def _read_mappings(reading: Reading, key: Key, value: Value, target: object) -> tuple[SubjectMapping, ...]:
    found = []
    for source, entry in read_map(key, value, '"a.*": "b.$1"').items():
        if entry.used:
            continue
        if not is_valid_subject(source.encode()):
            raise Refused(
                entry.place, f'Subject "{source}" is not a valid subject', 'write "a.*" for instance'
            )
        data = entry.value.data
        if isinstance(data, list) and any(isinstance(element.data, str) for element in data):
            raise wrong_type(key, entry.value, "a list of maps", "write [ {destination: b, weight: 100%} ]")
        elements = data if isinstance(data, list) else [entry.value]
        destinations = tuple(_read_destination(reading, key, element) for element in elements)
        cause = mapping_fault(source, destinations)
        if cause:
            what = f' to "{data}"' if isinstance(data, str) else ""
            cause = f'Error adding mapping for "{source}"{what} : {cause}'
            raise Refused(entry.place, cause, "see docs/security.md, Mappings")
        found.append(SubjectMapping(source, destinations))
    return tuple(found)


def mapping_fault(source: str, destinations: tuple[MapDestination, ...]) -> str:
    """Return the reason why `source` cannot be mapped to `destinations`, or "" if the mapping is valid."""
    seen: set[str] = set()
    for each in destinations:
        if each.subject in seen:
            return f'duplicate entry for "{each.subject}"'
        seen.add(each.subject)
        try:
            check_mapping(source, each.subject)
        except TransformError as error:
            return str(error)
        if not each.subject:
            return "invalid subject"
    total = sum(each.weight for each in destinations)
    return "total weight needs to be <= 100" if total > 100 else ""


# The kinds of the keys


EXPORTS = Kind("list of maps", _list_of("Exports", _read_export), "Sequence[{}]", EXPORT)
IMPORTS = Kind("list of maps", _list_of("Imports", _read_import), "Sequence[{}]", IMPORT)
MAPPINGS = Kind("map of subjects", _read_mappings, "Mapping[str, str | {} | Sequence[{}]]", DESTINATION)


def check_exchanges(reading: Reading, declared: dict[str, Exchange]) -> None:
    """Check exports and imports across all accounts, and add the problems to `reading`.

    Do nothing if `reading` already has problems.
    """
    if reading.problems:
        return  # nats-server does not check them in this case either
    for problem in Check(declared).run():
        place = reading.places[f"{problem.account}.{problem.kind}.{problem.index}"]
        fix = "see docs/security.md, Sharing subjects between accounts"
        reading.problems.append(Refused(place, problem.cause, fix).problem)
