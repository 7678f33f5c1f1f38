"""The keys of operator mode.

`operator_tokens` decodes tokens; it is imported only if the file has tokens.

Source: nats.docs "JWT Authentication"; texts of nats-server 2.15.1, tests/conformance/test_jwt_config.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.config.access.resolver import RESOLVER, read_resolver
from pyjs.config.errors import Refused
from pyjs.config.kinds import STRING, STRINGS
from pyjs.config.table import Key, Kind, Reading
from pyjs.wire.nkeys import OPERATOR, public_key

if TYPE_CHECKING:
    from pyjs.config.options import OperatorOptions
    from pyjs.config.values import Value


def _read_operators(reading: Reading, key: Key, value: Value, target: object) -> tuple[OperatorOptions, ...]:
    # imported lazily: few servers are in operator mode
    from pyjs.config.access.operator_tokens import read_operators

    return read_operators(reading, key, value, target)


def _read_preload(reading: Reading, key: Key, value: Value, target: object) -> dict[str, str]:
    # imported lazily: few servers are in operator mode
    from pyjs.config.access.operator_tokens import read_preload

    return read_preload(reading, key, value, target)


def _read_trusted(reading: Reading, key: Key, value: Value, target: object) -> object:
    keys = STRINGS.read(reading, key, value, target)
    assert isinstance(keys, tuple)
    for each in keys:
        if public_key(each, OPERATOR) is None:
            cause = f'trust key "{each}" required to be a valid public operator nkey'
            raise Refused(value.place, cause, "use the public key of an operator: O...")
    return keys


OPERATOR_KEYS = (
    Key(
        "operator",
        Kind("path or list of paths", _read_operators, "str | Sequence[str]"),
        "JWTs of operators, or paths of files with them. JWTs then also define accounts and users.",
        ("operators", "roots", "root", "root_operators", "root_operator"),
        attrs=("operators",),
    ),
    Key(
        "trusted_keys",
        Kind("list of strings", _read_trusted, "str | Sequence[str]"),
        "Public keys of operators, in place of their tokens.",
        ("trusted",),
    ),
    Key(
        "resolver",
        Kind("resolver", read_resolver, "str | {}", RESOLVER),
        'The source of the tokens of accounts: `MEMORY`, `URL("...")`, or a directory.',
        ("account_resolver", "accounts_resolver"),
    ),
    Key(
        "resolver_preload",
        Kind("map of strings", _read_preload, "Mapping[str, str]"),
        "Tokens of accounts, by the public key of each account.",
        reloadable=True,
    ),
    Key(
        "resolver_pinned_accounts",
        STRINGS,
        "The only accounts whose users may connect.",
        reloadable=True,
    ),
    Key(
        "default_sentinel",
        STRING,
        "The bearer token that the server uses for clients that send no token.",
        reloadable=True,
    ),
)
