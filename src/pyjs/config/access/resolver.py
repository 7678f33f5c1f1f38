"""The key `resolver`: the source of account tokens.

Source: nats.docs "JWT Authentication"; texts of nats-server 2.15.1, tests/conformance/test_jwt_config.py.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pyjs.config.errors import Place, Refused
from pyjs.config.kinds import BOOL, DURATION, INT, STRING, fill
from pyjs.config.options import ResolverOptions
from pyjs.config.table import Key, Reading, Table

if TYPE_CHECKING:
    from pyjs.config.values import Value

MEMORY = re.compile(r"(MEM|MEMORY)\s*", re.IGNORECASE)
URL = re.compile(r'URL\(\s*"?([^\s"]*)"?\s*\)\s*', re.IGNORECASE)
RESOLVER_FORMS = 'write MEMORY, URL("https://host/jwt/v1/accounts/"), or { type: full, dir: "./jwt" }'

RESOLVER = Table(
    "resolver",
    (
        Key("type", STRING, "`memory`, `full` or `cache`.", attrs=("kind",)),
        Key("dir", STRING, "The directory with a file for each account."),
        Key("allow_delete", BOOL, "Allow the removal of accounts by requests."),
        Key("hard_delete", BOOL, "Delete the files of removed accounts; otherwise they are renamed."),
        Key("limit", INT, "Maximum number of files; 0: no limit, or 1000 for `cache`."),
        Key("ttl", DURATION, "`cache`: time after which an unused file is removed."),
        Key("interval", DURATION, "`full`: time between two checks of the directory for changed files."),
        Key("timeout", DURATION, "Maximum time to fetch an account."),
    ),
)


def read_resolver(reading: Reading, key: Key, value: Value, target: object) -> ResolverOptions:
    """Read the key `resolver`: the text MEMORY or URL(...), or a map that describes a directory."""
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
    fill(reading, RESOLVER, key, value, 'type: full, dir: "./jwt"', resolver)
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
