"""The block `accounts`: the users, limits, JetStream, traces, exports and imports of each account.

Source: nats.docs "Accounts"; behaviour of nats-server 2.15.1.
"""

from __future__ import annotations

from pyjs.base.units import INT64_MAX
from pyjs.config import unsupported
from pyjs.config.access.permissions import PERMISSION_BLOCK, is_subject, share_permissions
from pyjs.config.access.users import USERS
from pyjs.config.declared import Block
from pyjs.config.errors import Place, Refused
from pyjs.config.exchange.read import EXPORTS, IMPORTS, MAPPINGS, check_exchanges
from pyjs.config.jetstream import DECLARED, DECLARED_BUCKETS, read_declared
from pyjs.config.kinds import (
    BOOL,
    INT,
    INT32_MAX,
    SIZE,
    STRING,
    Between,
    fill,
    map_kind,
    read_map,
    read_switch,
)
from pyjs.config.options import (
    GLOBAL_ACCOUNT,
    AccountJetStreamOptions,
    AccountLimits,
    AccountOptions,
    Options,
    TraceDest,
)
from pyjs.config.table import Key, Kind, Reading, Table, read_block, wrong_type
from pyjs.config.values import Value, describe

_limit = Between(-1, INT32_MAX, "use a number from 0, or -1 for no limit")
_size_limit = Between(-1, INT64_MAX, "use a size, or -1 for no limit")


ACCOUNT_LIMITS = Table(
    "account.limits",
    (
        Key(
            "max_connections",
            INT,
            "Maximum number of connections of the account; -1: no limit.",
            ("max_conn",),
            _limit,
        ),
        Key(
            "max_subscriptions",
            INT,
            "Maximum number of subscriptions of one connection; -1: no limit.",
            ("max_subs",),
            _limit,
        ),
        Key("max_payload", SIZE, "Maximum size of a message in bytes; -1: no limit.", ("max_pay",), _limit),
    ),
    unsupported.ACCOUNT_LIMITS,
)


def _read_streams(reading: Reading, key: Key, value: Value, target: object) -> Block:
    """Read the key `streams`: a map of declared streams, or a number.

    As in nats-server, a number is the limit `max_streams`; it is set on `target`.
    """
    assert isinstance(target, AccountJetStreamOptions)
    if isinstance(value.data, dict):
        return read_declared(reading, key, value, target)
    target.max_streams = _read_limit(reading, key, value, target)
    return target.declared.streams


def _read_consumers(reading: Reading, key: Key, value: Value, target: object) -> Block:
    """Read the key `consumers`: a map of declared consumers, or a number.

    As in nats-server, a number is the limit `max_consumers`; it is set on `target`.
    """
    assert isinstance(target, AccountJetStreamOptions)
    if isinstance(value.data, dict):
        return read_declared(reading, key, value, target)
    target.max_consumers = _read_limit(reading, key, value, target)
    return target.declared.consumers


def _read_limit(reading: Reading, key: Key, value: Value, target: object) -> int:
    limit = INT.read(reading, key, value, target)
    _limit(reading, key, value, limit)
    assert isinstance(limit, int)
    return limit


_STREAMS = Kind("map or int", _read_streams, f"int | {DECLARED.python}")
_CONSUMERS = Kind("map or int", _read_consumers, f"int | {DECLARED.python}")

ACCOUNT_JETSTREAM = Table(
    "account.jetstream",
    (
        Key(
            "max_mem",
            SIZE,
            "Maximum size of the account's memory streams in bytes; -1: no limit.",
            ("max_memory", "mem", "memory"),
            _size_limit,
            attrs=("max_memory",),
        ),
        Key(
            "max_file",
            SIZE,
            "Maximum size of the account's file streams in bytes; -1: no limit.",
            ("max_store", "max_disk", "store", "disk"),
            _size_limit,
            attrs=("max_storage",),
        ),
        Key("max_streams", INT, "Maximum number of streams; -1: no limit.", check=_limit),
        Key("max_consumers", INT, "Maximum number of consumers of one stream; -1: no limit.", check=_limit),
        Key(
            "max_bytes_required",
            BOOL,
            "Refuse streams without `max_bytes`.",
            ("max_stream_bytes", "max_bytes"),
        ),
        Key(
            "mem_max_stream_bytes",
            SIZE,
            "Maximum `max_bytes` of one memory stream; -1: no limit.",
            ("memory_max_stream_bytes",),
            _size_limit,
        ),
        Key(
            "disk_max_stream_bytes",
            SIZE,
            "Maximum `max_bytes` of one file stream; -1: no limit.",
            ("store_max_stream_bytes",),
            _size_limit,
        ),
        Key("max_ack_pending", INT, "Maximum `max_ack_pending` of a consumer; -1: no limit.", check=_limit),
        Key(
            "streams",
            _STREAMS,
            "Streams of the account that must exist, by name; a number is `max_streams`.",
            attrs=("declared.streams",),
        ),
        Key(
            "consumers",
            _CONSUMERS,
            "Consumers that must exist, by stream and name; a number is `max_consumers`.",
            attrs=("declared.consumers",),
        ),
        *DECLARED_BUCKETS,
    ),
    unsupported.ACCOUNT_JETSTREAM,
)


def _read_account_jetstream(
    reading: Reading, key: Key, value: Value, target: object
) -> AccountJetStreamOptions | None:
    if isinstance(value.data, dict):
        return fill(reading, ACCOUNT_JETSTREAM, key, value, "", AccountJetStreamOptions())
    return AccountJetStreamOptions() if read_switch(key, value) else None


def _check_trace_dest(reading: Reading, key: Key, value: Value, target: object) -> None:
    assert isinstance(value.data, str)
    if not is_subject(value.data) or {"*", ">"} & {*value.data.split(".")}:
        cause = f'"{key.name}" is {describe(value)}, which is not a subject to publish to'
        raise Refused(value.place, cause, "write a subject without wildcards")


def _read_sampling(reading: Reading, key: Key, value: Value, target: object) -> int:
    data = value.data
    if isinstance(data, str):
        text = data.removesuffix("%")
        data = int(text) if text.isdecimal() and text.isascii() else data
    if isinstance(data, bool) or not isinstance(data, int) or not 1 <= data <= 100:
        cause = f'"sampling" is {describe(value)}, which is not a percentage from 1 to 100'
        raise Refused(value.place, cause, "write sampling: 100")
    return data


MSG_TRACE = Table(
    "account.msg_trace",
    (
        Key("dest", STRING, "The subject to which the traces go.", check=_check_trace_dest),
        Key(
            "sampling",
            Kind("percentage", _read_sampling, "int | str"),
            "Percentage of the messages with a sampled `traceparent` that are traced.",
        ),
    ),
)


def _read_msg_trace(reading: Reading, key: Key, value: Value, target: object) -> TraceDest:
    trace = TraceDest()
    if isinstance(value.data, str):
        _check_trace_dest(reading, key, value, target)
        trace.dest = value.data
        return trace
    read_block(reading, MSG_TRACE, read_map(key, value, "dest: traces"), trace)
    if not trace.dest:
        reading.warn(
            value.place, '"sampling" has no effect without a "dest"', "add the subject of the traces"
        )
    return trace


ACCOUNT = Table(
    "account",
    (
        Key("users", USERS, "The users of the account."),
        Key(
            "jetstream",
            Kind("bool or map", _read_account_jetstream, "bool | {}", ACCOUNT_JETSTREAM),
            "JetStream in this account: on, off, or its limits.",
        ),
        Key(
            "default_permissions",
            PERMISSION_BLOCK,
            "The permissions of users that have no `permissions`.",
        ),
        Key(
            "limits",
            map_kind(ACCOUNT_LIMITS, "max_connections: 100", AccountLimits),
            "Limits of the account's connections.",
        ),
        Key("exports", EXPORTS, "Streams and services that other accounts may import."),
        Key("imports", IMPORTS, "Streams and services of other accounts."),
        Key(
            "mappings",
            MAPPINGS,
            "New subjects for messages that clients publish: one for each subject, or several with weights.",
            ("maps",),
        ),
        Key(
            "msg_trace",
            Kind("subject or map", _read_msg_trace, "str | {}", MSG_TRACE),
            "Trace messages with a W3C `traceparent` header: the subject of the traces, or a map.",
            ("trace_dest",),
        ),
    ),
    unsupported.ACCOUNT,
)


def read_accounts(reading: Reading, key: Key, value: Value, target: object) -> dict[str, AccountOptions]:
    """Read the block `accounts`, a map of accounts or a list of names; return the accounts by name."""
    assert isinstance(target, Options)
    accounts: dict[str, AccountOptions] = {}
    if isinstance(value.data, list):
        for element in value.data:
            if not isinstance(element.data, str):
                raise wrong_type(key, element, "the name of an account", "put it in quotes")
            _add_account(accounts, element.data, element.place)
        return accounts
    for name, entry in read_map(key, value, "A { users: [ {user: alice, password: secret} ] }").items():
        if entry.used:
            continue
        account = _add_account(accounts, name, entry.place)
        block = Key(name, key.kind, "")
        read_block(reading, ACCOUNT, read_map(block, entry.value, "users: []"), account)
        share_permissions(account.users, account.default_permissions)
    check_exchanges(reading, {name: account.exchange() for name, account in accounts.items()})
    return accounts


def _add_account(accounts: dict[str, AccountOptions], name: str, place: Place) -> AccountOptions:
    if name == GLOBAL_ACCOUNT:
        fix = "name users without an account in authorization { users: [] }"
        raise Refused(place, f'"{name}" is a reserved account', fix)
    if name in accounts or not name:
        raise Refused(place, f'the account "{name}" is named twice', "remove one of them")
    accounts[name] = AccountOptions(name)
    return accounts[name]
