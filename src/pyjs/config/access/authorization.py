"""The block `authorization`: one user or a list, default permissions, and the authorization callout.

A block has a single user or a list of users, not both; users without permissions get the default permissions.

Source: nats.docs "Authorization", "Auth Callout"; behaviour of nats-server 2.15.1.
"""

from __future__ import annotations

from pyjs.config.access.permissions import PERMISSION_BLOCK, share_permissions
from pyjs.config.access.users import USERS
from pyjs.config.errors import Place, Refused
from pyjs.config.kinds import BOOL, DURATION, STRING, STRINGS, fill
from pyjs.config.options import NS_PER_S, AuthorizationOptions, CalloutOptions
from pyjs.config.table import Key, Kind, Reading, Table
from pyjs.config.values import Value, describe
from pyjs.wire.nkeys import ACCOUNT as NKEY_ACCOUNT
from pyjs.wire.nkeys import CURVE, public_key


def read_auth_timeout(reading: Reading, key: Key, value: Value, target: object) -> int:
    """Read a duration, or a number of seconds, and return it in nanoseconds.

    A duration of more than 60 seconds causes a warning.

    Raises:
        Refused: the value is negative, or is not a duration.
    """
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
    """Read a public account key or, for the key `xkey`, a public curve key; refuse any other string."""
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
        Key("issuer", CALLOUT_KEY, "The public key of the account that signs the answers of the service."),
        Key("account", STRING, "The account of the service.", ("acc",), zero_is_default=True),
        Key("auth_users", CALLOUT_NAMES, "Users that log in without the service.", ("users",)),
        Key(
            "xkey", CALLOUT_KEY, "The public xkey of the service; with it, requests are encrypted.", ("key",)
        ),
        Key(
            "allowed_accounts",
            CALLOUT_NAMES,
            "The accounts about whose users the service decides; empty: all.",
        ),
    ),
)


def _read_callout(reading: Reading, key: Key, value: Value, target: object) -> CalloutOptions:
    found = len(reading.problems)
    callout = fill(reading, CALLOUT, key, value, "issuer: A..., auth_users: [auth]", CalloutOptions())
    if len(reading.problems) == found and not callout.issuer:
        cause = "Authorization callouts require an issuer to be specified"
        raise Refused(value.place, cause, "add issuer: A...")
    if len(reading.problems) == found and not callout.auth_users:
        cause = "Authorization callouts require authorized users to be specified"
        raise Refused(value.place, cause, "add auth_users: [auth]")
    return callout


def single_login_keys(*, reloadable: bool) -> tuple[Key, ...]:
    """Return the rows of the keys `user`, `password`, `token` and `timeout` of a block."""
    return (
        Key("user", STRING, "The name of the single user.", ("username",), reloadable=reloadable),
        Key(
            "password",
            STRING,
            "The password of the single user, or its bcrypt hash.",
            ("pass",),
            reloadable=reloadable,
            secret=True,
        ),
        Key(
            "token",
            STRING,
            "The token that every client must send, or its bcrypt hash.",
            reloadable=reloadable,
            secret=True,
        ),
        Key(
            "timeout",
            Kind("duration", read_auth_timeout, "Duration | float"),
            "Maximum time for the authentication of a client; a number is in seconds.",
            reloadable=reloadable,
            zero_is_default=True,
        ),
    )


AUTHORIZATION = Table(
    "authorization",
    (
        *single_login_keys(reloadable=True),
        Key("users", USERS, "The users of the global account.", reloadable=True),
        Key(
            "default_permissions",
            PERMISSION_BLOCK,
            "The permissions of users that have no `permissions`.",
            ("default_permission", "permissions"),
            reloadable=True,
        ),
        Key(
            "auth_callout",
            Kind("map", _read_callout, "{}", CALLOUT),
            "A service that decides which clients may connect.",
            ("auth_hook",),
        ),
        Key(
            "proxy_required",
            BOOL,
            "Clients of the single user or token must connect through one of the trusted `proxies`.",
            reloadable=True,
        ),
    ),
)


def read_authorization(reading: Reading, key: Key, value: Value, target: object) -> AuthorizationOptions:
    """Read the block `authorization`, and give its default permissions to the users without permissions."""
    authorization = fill(
        reading, AUTHORIZATION, key, value, "user: alice, password: secret", AuthorizationOptions()
    )
    share_permissions(authorization.users, authorization.default_permissions)
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
    if block.proxy_required and not (block.user or block.token):
        cause = '"proxy_required" is about a single user or token, and authorization has none'
        raise Refused(place, cause, "move it into the entries of users")
    if block.default_permissions is not None and not block.users:
        cause = '"default_permissions" reach only the entries of users, and there are none'
        reading.warn(place, cause, "put the single user into users: [ {user: ..., password: ...} ]")
