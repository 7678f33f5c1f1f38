"""The users of the authorization block and of accounts. A user name belongs to only one account.

Source: nats.docs "Authorization"; behaviour of nats-server 2.15.1.
"""

from __future__ import annotations

from pyjs.config.access.permissions import PERMISSION_BLOCK
from pyjs.config.errors import Refused, suggestion
from pyjs.config.kinds import BOOL, STRING, STRINGS, fill
from pyjs.config.options import GLOBAL_ACCOUNT, AccountOptions, UserOptions
from pyjs.config.table import Key, Kind, Reading, Table, wrong_type
from pyjs.config.values import Value
from pyjs.wire.nkeys import USER as NKEY_USER
from pyjs.wire.nkeys import public_key

CONNECTION_TYPES = "STANDARD WEBSOCKET LEAFNODE LEAFNODE_WS MQTT MQTT_WS IN_PROCESS".split()


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
            "The permissions of the user; default: the default permissions of the block.",
            ("permission", "authorization"),
        ),
        Key(
            "allowed_connection_types",
            Kind("list of strings", _read_connection_types, "str | Sequence[str]"),
            "The kinds of connections that the user may use: STANDARD, WEBSOCKET, IN_PROCESS, ...",
            ("connection_types", "clients"),
            attrs=("connection_types",),
        ),
        Key("proxy_required", BOOL, "The user must connect through one of the trusted `proxies`."),
    ),
)


def _read_users(reading: Reading, key: Key, value: Value, target: object) -> tuple[UserOptions, ...]:
    if not isinstance(value.data, list):
        fix = "write users: [ {user: alice, password: secret} ]"
        raise wrong_type(key, value, "a list of users", fix)
    account = target.name if isinstance(target, AccountOptions) else GLOBAL_ACCOUNT
    return tuple(_read_user(reading, key, element, account) for element in value.data)


def _read_user(reading: Reading, key: Key, value: Value, account: str) -> UserOptions:
    found = len(reading.problems)
    user = fill(reading, USER, key, value, "user: alice, password: secret", UserOptions(account=account))
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
