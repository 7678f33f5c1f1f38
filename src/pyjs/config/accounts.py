"""Logins and permissions: the configuration blocks authorization, accounts, users and permissions.

Knows nothing of connections. Reads the blocks into the objects of options.py and checks rules over several
keys: names are unique, a single user and a list exclude each other, users without permissions get the default
ones. Subjects are checked here; a subscribe entry may be "subject queue". Long because these rules need the users of
all blocks.

Source: nats.docs "Authorization", "Accounts"; behaviour of nats-server 2.15.1.
"""

from __future__ import annotations

from functools import partial

from pyjs.base.units import INT64_MAX
from pyjs.config import unsupported
from pyjs.config.errors import Place, Refused, suggestion
from pyjs.config.exchange.read import EXPORTS, IMPORTS, MAPPINGS, check_exchanges
from pyjs.config.kinds import BOOL, DURATION, INT, INT32_MAX, SIZE, STRING, STRINGS, Between, read_map
from pyjs.config.options import (
    GLOBAL_ACCOUNT,
    NS_PER_S,
    AccountJetStreamOptions,
    AccountLimits,
    AccountOptions,
    AuthorizationOptions,
    CalloutOptions,
    Options,
    PermissionOptions,
    ResponsePermission,
    SubjectPermissions,
    TraceDest,
    UserOptions,
)
from pyjs.config.table import Key, Kind, Reading, Table, read_block, wrong_type
from pyjs.config.values import Value, describe
from pyjs.wire.nkeys import ACCOUNT as NKEY_ACCOUNT
from pyjs.wire.nkeys import CURVE, public_key
from pyjs.wire.nkeys import USER as NKEY_USER

_limit = Between(-1, INT32_MAX, "use a number from 0, or -1 for no limit")
CONNECTION_TYPES = "STANDARD WEBSOCKET LEAFNODE LEAFNODE_WS MQTT MQTT_WS IN_PROCESS".split()
_size_limit = Between(-1, INT64_MAX, "use a size, or -1 for no limit")


# Permissions


def is_subject(text: str) -> bool:
    """Return whether `text` is a subject, with or without wildcards."""
    if not text or any(char in " \t\r\n\f" for char in text):
        return False
    tokens = text.split(".")
    return all(tokens) and ">" not in tokens[:-1]


def _read_subjects(
    reading: Reading, key: Key, value: Value, target: object, with_queue: bool
) -> SubjectPermissions | None:
    table = SUBSCRIBE if with_queue else PUBLISH
    allow = table.key_by_name["allow"].kind
    if isinstance(value.data, str | list):
        subjects = allow.read(reading, key, value, None)
        assert isinstance(subjects, tuple) or subjects is None
        return SubjectPermissions(allow=subjects)
    entries = read_map(key, value, "allow: [a, b], deny: c")
    if not entries:
        return None
    permissions = SubjectPermissions()
    read_block(reading, table, entries, permissions)
    permissions.deny = permissions.deny or ()
    return permissions


def _read_list(
    reading: Reading, key: Key, value: Value, target: object, with_queue: bool
) -> tuple[str, ...] | None:
    """Read subjects; an empty list means none given, as in nats-server, and causes a warning."""
    elements = value.data if isinstance(value.data, list) else [value]
    for element in elements:
        _check_subject(key, element, with_queue)
    if not elements and key.name != "deny":
        cause = f'"{key.name}" is an empty list, which allows every subject'
        reading.warn(value.place, cause, 'write deny: ">" to allow none, or leave it out')
    return tuple(str(element.data) for element in elements) or None


def _check_subject(key: Key, value: Value, with_queue: bool) -> None:
    if not isinstance(value.data, str):
        raise wrong_type(key, value, "a subject", "put it in quotes")
    words = value.data.split() if with_queue else [value.data]
    if len(words) in (1, 2) and all(is_subject(word) for word in words):
        return
    form = 'tokens joined by dots, as in "orders.*"'
    fix = f'write {form}, and for a queue "orders.* queue"' if with_queue else f"write {form}"
    raise Refused(value.place, f'"{key.name}" holds "{value.data}", which is no subject', fix)


def _read_responses(reading: Reading, key: Key, value: Value, target: object) -> ResponsePermission | None:
    if isinstance(value.data, bool):
        return ResponsePermission() if value.data else None
    responses = ResponsePermission()
    read_block(reading, RESPONSES, read_map(key, value, 'max: 1, expires: "2m"'), responses)
    return responses


def _subjects_table(with_queue: bool) -> Table:
    kind = Kind("list of subjects", partial(_read_list, with_queue=with_queue), "str | Sequence[str]")
    return Table(
        "permissions.subjects",
        (
            Key("allow", kind, "The allowed subjects; without them, all."),
            Key("deny", kind, "The forbidden subjects; they win over `allow`."),
        ),
    )


PUBLISH, SUBSCRIBE = _subjects_table(with_queue=False), _subjects_table(with_queue=True)
RESPONSES = Table(
    "permissions.allow_responses",
    (
        Key(
            "max",
            INT,
            "The most answers to one message; negative: no limit.",
            ("max_msgs", "max_messages", "max_responses"),
            attrs=("max_msgs",),
            zero_is_default=True,
        ),
        Key(
            "expires",
            DURATION,
            "How long a reply subject may be answered; negative: for ever.",
            ("expiration", "ttl"),
            zero_is_default=True,
        ),
    ),
)

PERMISSIONS = Table(
    "permissions",
    (
        Key(
            "publish",
            Kind("subjects", partial(_read_subjects, with_queue=False), "str | Sequence[str] | {}", PUBLISH),
            "The subjects that the user may publish to.",
            ("pub", "import"),
        ),
        Key(
            "subscribe",
            Kind("subjects", partial(_read_subjects, with_queue=True), "str | Sequence[str] | {}", SUBSCRIBE),
            "The subjects that the user may subscribe to, each alone or with a queue group.",
            ("sub", "export"),
        ),
        Key(
            "allow_responses",
            Kind("bool or map", _read_responses, "bool | {}", RESPONSES),
            "Answers to received messages are allowed on their reply subjects.",
            ("publish_allow_responses",),
        ),
    ),
)


def _read_permissions(reading: Reading, key: Key, value: Value, target: object) -> PermissionOptions:
    permissions = PermissionOptions()
    read_block(reading, PERMISSIONS, read_map(key, value, "publish: a, subscribe: b"), permissions)
    if permissions.allow_responses is not None:
        # allow_responses is an exception to denied publishes, so without a list nothing else may be published.
        publish = permissions.publish = permissions.publish or SubjectPermissions()
        publish.allow = publish.allow or ()
    return permissions


PERMISSION_BLOCK = Kind("map", _read_permissions, "{}", PERMISSIONS)


# Users


def _check_nkey(reading: Reading, key: Key, value: Value, data: object) -> None:
    if public_key(str(data), NKEY_USER) is None:
        raise Refused(
            value.place, "Not a valid public nkey for a user", "write the public key, U and 55 more letters"
        )


def _read_connection_types(reading: Reading, key: Key, value: Value, target: object) -> object:
    types = STRINGS.read(reading, key, value, target)
    assert isinstance(types, tuple)
    given = tuple(each.upper() for each in types)
    unknown = [each for each in given if each not in CONNECTION_TYPES]
    if unknown:
        shown = " ".join(f'"{each}"' for each in unknown)
        fix = suggestion(unknown[0], CONNECTION_TYPES, f"use {', '.join(CONNECTION_TYPES)}")
        raise Refused(value.place, f"invalid connection types [{shown}]", fix)
    return given


USER = Table(
    "user",
    (
        Key("user", STRING, "The name of the user.", ("username",)),
        Key("password", STRING, "The password, or its bcrypt hash.", ("pass",), secret=True),
        Key("nkey", STRING, "The public key of the user, in place of name and password.", check=_check_nkey),
        Key(
            "permissions",
            PERMISSION_BLOCK,
            "The permissions of the user; without them, the default permissions of the block.",
            ("permission", "authorization"),
        ),
        Key(
            "allowed_connection_types",
            Kind("list of strings", _read_connection_types, "str | Sequence[str]"),
            "The kinds of connections that the user may use: STANDARD, WEBSOCKET, IN_PROCESS, ...",
            ("connection_types", "clients"),
            attrs=("connection_types",),
        ),
    ),
    unsupported.USER,
)


def _read_users(reading: Reading, key: Key, value: Value, target: object) -> tuple[UserOptions, ...]:
    if not isinstance(value.data, list):
        fix = "write users: [ {user: alice, password: secret} ]"
        raise wrong_type(key, value, "a list of users", fix)
    account = target.name if isinstance(target, AccountOptions) else GLOBAL_ACCOUNT
    return tuple(_read_user(reading, key, element, account) for element in value.data)


def _read_user(reading: Reading, key: Key, value: Value, account: str) -> UserOptions:
    user = UserOptions(account=account)
    found = len(reading.problems)
    read_block(reading, USER, read_map(key, value, "user: alice, password: secret"), user)
    if user.nkey and (user.user or user.password):
        raise Refused(
            value.place, "Nkey users do not take usernames or passwords", "keep the nkey, or the other two"
        )
    if not (user.user or user.nkey) and len(reading.problems) == found:
        raise Refused(
            value.place, "this entry of users has no user", "add its name, user: alice for instance"
        )
    name = user.nkey or user.user
    seen = reading.user_places.setdefault(name, value.place)
    if name and seen != value.place:
        kind = "nkey" if user.nkey else "user"
        cause = f'{kind} "{name}" is defined twice, first at {seen}'
        raise Refused(value.place, cause, "rename one of them: a name belongs to one account")
    return user


USERS = Kind("list of users", _read_users, "Sequence[{}]", USER)


# The authorization block


def read_auth_timeout(reading: Reading, key: Key, value: Value, target: object) -> int:
    """Read a duration, or a number of seconds; neither causes a warning here."""
    data = value.data
    if isinstance(data, int | float) and not isinstance(data, bool):
        timeout_ns = int(data * NS_PER_S)
    else:
        read = DURATION.read(reading, key, value, target)
        assert isinstance(read, int)
        timeout_ns = read
    if timeout_ns < 0:
        raise Refused(value.place, '"timeout" is negative', "use a positive duration such as 2s")
    if timeout_ns > 60 * NS_PER_S:
        cause = f'"timeout" is {timeout_ns // NS_PER_S} seconds, more than a client should need'
        reading.warn(value.place, cause, 'keep it under "60s"; unquoted 1m is the number 1000000')
    return timeout_ns


def _read_key(reading: Reading, key: Key, value: Value, target: object) -> str:
    """Read the public key of an account, or an xkey."""
    text = str(STRING.read(reading, key, value, target))
    kind, name = (CURVE, "callout xkey") if key.name == "xkey" else (NKEY_ACCOUNT, "callout user")
    if public_key(text, kind) is None:
        shown = "xkey" if kind == CURVE else "account nkey"
        cause = f'Expected {name} to be a valid public {shown}, got "{text}"'
        raise Refused(value.place, cause, f"use a public key: {'X' if kind == CURVE else 'A'}...")
    return text


def _read_names(reading: Reading, key: Key, value: Value, target: object) -> object:
    if not isinstance(value.data, list):
        name = "auth_users" if key.name == "auth_users" else "allowed accounts"
        cause = f"Expected {name} field to be an array, got {describe(value)}"
        raise Refused(value.place, cause, f"write {key.name}: [a]")
    return STRINGS.read(reading, key, value, target)


CALLOUT_KEY = Kind("string", _read_key, "str")
CALLOUT_NAMES = Kind("list of strings", _read_names, "Sequence[str]")
CALLOUT = Table(
    "authorization.auth_callout",
    (
        Key("issuer", CALLOUT_KEY, "The public key of an account; the service signs its answers with it."),
        Key("account", STRING, "The account of the service.", ("acc",), zero_is_default=True),
        Key("auth_users", CALLOUT_NAMES, "Users that the service is not asked about.", ("users",)),
        Key("xkey", CALLOUT_KEY, "The public xkey of the service: requests are encrypted.", ("key",)),
        Key("allowed_accounts", CALLOUT_NAMES, "Accounts whose users it is asked about; without them, all."),
    ),
)


def _read_callout(reading: Reading, key: Key, value: Value, target: object) -> CalloutOptions:
    callout = CalloutOptions()
    found = len(reading.problems)
    read_block(reading, CALLOUT, read_map(key, value, "issuer: A..., auth_users: [auth]"), callout)
    if len(reading.problems) == found and not callout.issuer:
        cause = "Authorization callouts require an issuer to be specified"
        raise Refused(value.place, cause, "add issuer: A...")
    if len(reading.problems) == found and not callout.auth_users:
        cause = "Authorization callouts require authorized users to be specified"
        raise Refused(value.place, cause, "add auth_users: [auth]")
    return callout


AUTHORIZATION = Table(
    "authorization",
    (
        Key("user", STRING, "The name of the single user.", ("username",), reloadable=True),
        Key(
            "password",
            STRING,
            "The password of the single user, or its bcrypt hash.",
            ("pass",),
            reloadable=True,
            secret=True,
        ),
        Key(
            "token",
            STRING,
            "The token that every client must send, or its bcrypt hash.",
            reloadable=True,
            secret=True,
        ),
        Key(
            "timeout",
            Kind("duration", read_auth_timeout, "Duration | float"),
            "How long a client may take to authenticate; a number counts seconds.",
            reloadable=True,
            zero_is_default=True,
        ),
        Key("users", USERS, "The users of the global account.", reloadable=True),
        Key(
            "default_permissions",
            PERMISSION_BLOCK,
            "The permissions of users without their own.",
            ("default_permission", "permissions"),
            reloadable=True,
        ),
        Key(
            "auth_callout",
            Kind("map", _read_callout, "{}", CALLOUT),
            "A service that decides about clients.",
            ("auth_hook",),
        ),
    ),
    unsupported.AUTHORIZATION,
)


def read_authorization(reading: Reading, key: Key, value: Value, target: object) -> AuthorizationOptions:
    """Read the authorization block."""
    authorization = AuthorizationOptions()
    read_block(reading, AUTHORIZATION, read_map(key, value, "user: alice, password: secret"), authorization)
    _share_permissions(authorization.users, authorization.default_permissions)
    _check_authorization(reading, authorization, value.place)
    return authorization


def _check_authorization(reading: Reading, block: AuthorizationOptions, place: Place) -> None:
    if block.token and (block.user or block.password):
        raise Refused(place, "authorization has a user and a token", "keep one of the two")
    if block.password and not block.user:
        raise Refused(place, "authorization has a password but no user", "add the user that it belongs to")
    if block.users and (block.user or block.token):
        single = "user" if block.user else "token"
        raise Refused(
            place, f"authorization has a single {single} and a list of users", "move it into the list"
        )
    if block.default_permissions is not None and not block.users:
        cause = '"default_permissions" reach only the entries of users, and there are none'
        reading.warn(place, cause, "put the single user into users: [ {user: ..., password: ...} ]")


def _share_permissions(users: tuple[UserOptions, ...], permissions: PermissionOptions | None) -> None:
    """Set `permissions` on the users without permissions."""
    for user in users:
        if user.permissions is None:
            user.permissions = permissions


# The accounts block


ACCOUNT_LIMITS = Table(
    "account.limits",
    (
        Key(
            "max_connections",
            INT,
            "The most connections of the account; -1: no limit.",
            ("max_conn",),
            _limit,
        ),
        Key(
            "max_subscriptions",
            INT,
            "The most subscriptions of one connection; -1: no limit.",
            ("max_subs",),
            _limit,
        ),
        Key("max_payload", SIZE, "Bytes of the largest message; -1: no limit.", ("max_pay",), _limit),
    ),
    unsupported.ACCOUNT_LIMITS,
)

ACCOUNT_JETSTREAM = Table(
    "account.jetstream",
    (
        Key(
            "max_mem",
            SIZE,
            "Bytes of the account's memory streams together; -1: no limit.",
            ("max_memory", "mem", "memory"),
            _size_limit,
            attrs=("max_memory",),
        ),
        Key(
            "max_file",
            SIZE,
            "Bytes of the account's file streams together; -1: no limit.",
            ("max_store", "max_disk", "store", "disk"),
            _size_limit,
            attrs=("max_storage",),
        ),
        Key("max_streams", INT, "The most streams; -1: no limit.", ("streams",), _limit),
        Key("max_consumers", INT, "The most consumers of one stream; -1: no limit.", ("consumers",), _limit),
        Key(
            "max_bytes_required",
            BOOL,
            "Refuse streams without `max_bytes`.",
            ("max_stream_bytes", "max_bytes"),
        ),
        Key(
            "mem_max_stream_bytes",
            SIZE,
            "The largest `max_bytes` of one memory stream; -1: no limit.",
            ("memory_max_stream_bytes",),
            _size_limit,
        ),
        Key(
            "disk_max_stream_bytes",
            SIZE,
            "The largest `max_bytes` of one file stream; -1: no limit.",
            ("store_max_stream_bytes",),
            _size_limit,
        ),
        Key(
            "max_ack_pending", INT, "The largest `max_ack_pending` of a consumer; -1: no limit.", check=_limit
        ),
    ),
    unsupported.ACCOUNT_JETSTREAM,
)


def read_switch(key: Key, value: Value) -> bool:
    """Read true, false, "enabled" or "disabled"."""
    if isinstance(value.data, bool):
        return value.data
    words = {"enabled": True, "enable": True, "disabled": False, "disable": False}
    if not isinstance(value.data, str):
        raise wrong_type(key, value, "true, false or a map", f"write {key.name}: enabled")
    if value.data.lower() in words:
        return words[value.data.lower()]
    cause = f'"{key.name}" is {describe(value)}, which is neither enabled nor disabled'
    raise Refused(value.place, cause, suggestion(value.data, words, f"write {key.name}: enabled"))


def _read_account_jetstream(
    reading: Reading, key: Key, value: Value, target: object
) -> AccountJetStreamOptions | None:
    if isinstance(value.data, dict):
        limits = AccountJetStreamOptions()
        read_block(reading, ACCOUNT_JETSTREAM, read_map(key, value, ""), limits)
        return limits
    return AccountJetStreamOptions() if read_switch(key, value) else None


def _read_account_limits(reading: Reading, key: Key, value: Value, target: object) -> AccountLimits:
    limits = AccountLimits()
    read_block(reading, ACCOUNT_LIMITS, read_map(key, value, "max_connections: 100"), limits)
    return limits


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
            "Percent of the messages with a sampled `traceparent` that are traced.",
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
            "The permissions of users without their own.",
        ),
        Key(
            "limits",
            Kind("map", _read_account_limits, "{}", ACCOUNT_LIMITS),
            "Limits of the account's connections.",
        ),
        Key("exports", EXPORTS, "Streams and services that other accounts may import."),
        Key("imports", IMPORTS, "Streams and services of other accounts."),
        Key(
            "mappings",
            MAPPINGS,
            "Subjects that change when a client publishes, each with its destination or weighted ones.",
            ("maps",),
        ),
        Key(
            "msg_trace",
            Kind("subject or map", _read_msg_trace, "str | {}", MSG_TRACE),
            "The subject for traces of messages with a W3C `traceparent` header, or this and the sampling.",
            ("trace_dest",),
        ),
    ),
    unsupported.ACCOUNT,
)


def read_accounts(reading: Reading, key: Key, value: Value, target: object) -> dict[str, AccountOptions]:
    """Read the accounts block: a map of accounts, or a list of names."""
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
        _share_permissions(account.users, account.default_permissions)
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
