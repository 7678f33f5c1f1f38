"""The keys of operator mode: operators and the resolver of account tokens.

What needs to understand tokens is in `operator_tokens`, which is imported when there are some.

Source: nats.docs "JWT Authentication"; texts of nats-server 2.15.1, tests/conformance/test_jwt_config.py.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pyjs.config.errors import Place, Refused
from pyjs.config.kinds import BOOL, DURATION, INT, STRING, STRINGS, read_map
from pyjs.config.options import OperatorOptions, ResolverOptions
from pyjs.config.table import Key, Kind, Reading, Table, read_block
from pyjs.wire.nkeys import OPERATOR, public_key

if TYPE_CHECKING:
    from pyjs.config.values import Value

MEMORY = re.compile(r"(MEM|MEMORY)\s*", re.IGNORECASE)
URL = re.compile(r'URL\(\s*"?([^\s"]*)"?\s*\)\s*', re.IGNORECASE)
RESOLVER_FORMS = 'write MEMORY, URL("https://host/jwt/v1/accounts/"), or { type: full, dir: "./jwt" }'


def _read_operators(reading: Reading, key: Key, value: Value, target: object) -> tuple[OperatorOptions, ...]:
    from pyjs.config.access.operator_tokens import read_operators  # few servers are in operator mode

    return read_operators(reading, key, value, target)


def _read_preload(reading: Reading, key: Key, value: Value, target: object) -> dict[str, str]:
    from pyjs.config.access.operator_tokens import read_preload  # few servers are in operator mode

    return read_preload(reading, key, value, target)


def _read_trusted(reading: Reading, key: Key, value: Value, target: object) -> object:
    keys = STRINGS.read(reading, key, value, target)
    assert isinstance(keys, tuple)
    for each in keys:
        if public_key(each, OPERATOR) is None:
            cause = f'trust key "{each}" required to be a valid public operator nkey'
            raise Refused(value.place, cause, "use the public key of an operator: O...")
    return keys


RESOLVER = Table(
    "resolver",
    (
        Key("type", STRING, "`memory`, `full` or `cache`.", attrs=("kind",)),
        Key("dir", STRING, "The directory with a file for each account."),
        Key("allow_delete", BOOL, "Accounts may be removed by a request."),
        Key("hard_delete", BOOL, "Remove files of removed accounts; otherwise they are renamed."),
        Key("limit", INT, "The most files."),
        Key("ttl", DURATION, "`cache`: how long an unused file stays."),
        Key("interval", DURATION, "`full`: how often changed files are looked for."),
        Key("timeout", DURATION, "How long fetching an account may take."),
    ),
)


def read_resolver(reading: Reading, key: Key, value: Value, target: object) -> ResolverOptions:
    """Read MEMORY, URL(...), or the map of a directory."""
    if isinstance(value.data, str):
        if MEMORY.match(value.data):
            return ResolverOptions()
        found = URL.match(value.data)
        if found is None:
            cause = "error parsing account resolver, should be MEM or  "
            cause += 'URL("url") or a map containing dir and type state=[FULL|CACHE])'
            raise Refused(value.place, cause, RESOLVER_FORMS)
        return _url_resolver(value.place, found[1])
    resolver = ResolverOptions(kind="", timeout_ns=2_000_000_000)
    found_before = len(reading.problems)
    read_block(reading, RESOLVER, read_map(key, value, 'type: full, dir: "./jwt"'), resolver)
    resolver.kind = {"mem": "memory"}.get(resolver.kind.lower(), resolver.kind.lower())
    if len(reading.problems) == found_before:
        cause = _directory_fault(resolver, value)
        if cause:
            raise Refused(value.place, cause, RESOLVER_FORMS)
    return resolver


def _url_resolver(place: Place, url: str) -> ResolverOptions:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Refused(place, f'error parsing account resolver url ["{url}"]', RESOLVER_FORMS)
    return ResolverOptions("url", url if url.endswith("/") else url + "/")


def _directory_fault(resolver: ResolverOptions, value: Value) -> str:
    given = {name.lower() for name in value.data} if isinstance(value.data, dict) else set()
    if resolver.kind == "memory":
        return ""
    if resolver.kind not in ("full", "cache"):
        return (
            'error parsing account resolver, should be MEM or  URL("url")'
            " or a map containing dir and type state=[FULL|CACHE])"
        )
    if not resolver.dir:
        return "dir has no value and needs to point to a directory"
    if resolver.kind == "cache" and resolver.allow_delete:
        return "CACHE does not accept allow_delete"
    if resolver.kind == "cache" and "interval" in given:
        return "CACHE does not accept sync"
    if resolver.kind == "cache" and "hard_delete" in given:
        return "CACHE does not accept hard_delete"
    if resolver.kind == "full" and resolver.ttl_ns:
        return "FULL does not accept ttl"
    if resolver.kind == "full" and "hard_delete" in given and not resolver.allow_delete:
        return "hard_delete has no effect without delete"
    if resolver.timeout_ns <= 0:
        return f"Fetch timeout {resolver.timeout_ns // 1_000_000_000}s is too smal"
    return ""


OPERATOR_KEYS = (
    Key(
        "operator",
        Kind("path or list of paths", _read_operators, "str | Sequence[str]"),
        "Tokens of operators, or the files that hold them: accounts and users come from tokens too.",
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
        'Where tokens of accounts are: `MEMORY`, `URL("...")`, or a directory.',
        ("account_resolver", "accounts_resolver"),
    ),
    Key(
        "resolver_preload",
        Kind("map of strings", _read_preload, "Mapping[str, str]"),
        "Tokens of accounts, by the public keys of these.",
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
        "The token of clients that send none; that of a bearer.",
        reloadable=True,
    ),
)
