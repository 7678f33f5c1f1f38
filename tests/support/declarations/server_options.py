"""The tables of docs/configuration.md and the keyword arguments of aio/keys.py, from the keys of pyjs.config."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path

from pyjs.base.gotext import duration_text
from pyjs.config import options
from pyjs.config.exchange import read
from pyjs.config.table import Key, Table
from pyjs.config.tables import TABLES, TOP

from .pages import ROOT, filled

PAGE = ROOT / "docs/configuration.md"
KEYS = ROOT / "src/pyjs/aio/keys.py"
INHERITING = (
    "accounts.*",
    "mappings.*",
    "users.*",
    "permissions",
    "proxies",
)  # a reload applies every key of these blocks
# The object that a block fills, with its defaults.
TARGETS: dict[str, object] = {
    "": options.Options(),
    "jetstream": options.JetStreamOptions(),
    "jetstream.limits": options.JetStreamLimits(),
    "jetstream.limits.batch": options.BatchLimits(),
    "authorization": options.AuthorizationOptions(),
    "authorization.auth_callout": options.CalloutOptions(),
    "proxies": options.ProxiesOptions(),
    "proxies.trusted.*": options.TrustedProxy(),
    "http_authorization": options.HttpLogin(),
    "tls": options.TlsOptions(),
    "cluster": options.ClusterOptions(),
    "cluster.authorization": options.ClusterLogin(),
    "websocket": options.WebSocketOptions(),
    "websocket.authorization": options.WebSocketLogins(),
    "resolver": options.ResolverOptions(),
    "accounts.*": options.AccountOptions(),
    "accounts.*.limits": options.AccountLimits(),
    "accounts.*.msg_trace": options.TraceDest(),
    "accounts.*.jetstream": options.AccountJetStreamOptions(),
    "accounts.*.exports.*": read.ExportBlock(),
    "accounts.*.exports.*.latency": read.LatencyBlock(),
    "accounts.*.imports.*": read.ImportBlock(),
    "accounts.*.imports.*.stream": read.RemoteBlock(),
    "mappings.*": read.DestinationBlock(),
    "users.*": options.UserOptions(),
    "permissions": options.PermissionOptions(),
    "permissions.allow_responses": options.ResponsePermission(),
}
# The name of a block's type, by the path of its table; "Keys" or "Options" follows.
BLOCKS = {
    "permissions.subjects": "Subjects",
    "permissions.allow_responses": "Responses",
    "permissions": "Permissions",
    "user": "User",
    "account.limits": "AccountLimits",
    "account.msg_trace": "MsgTrace",
    "account.exports": "Export",
    "account.exports.latency": "Latency",
    "account.imports": "Import",
    "account.imports.subject": "Remote",
    "mappings": "MapDestination",
    "account.jetstream": "AccountJetStream",
    "account": "Account",
    "authorization.auth_callout": "Callout",
    "authorization": "Authorization",
    "resolver": "Resolver",
    "proxies.trusted": "Proxy",
    "proxies": "Proxies",
    "tls.certs": "Certificate",
    "tls": "Tls",
    "websocket.authorization": "WebSocketAuthorization",
    "http_authorization": "HttpAuthorization",
    "cluster.authorization": "ClusterAuthorization",
    "cluster": "Cluster",
    "websocket": "WebSocket",
    "jetstream.limits": "JetStreamLimits",
    "jetstream.limits.batch": "JetStreamBatch",
    "jetstream": "JetStream",
}
SIZES = ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB"))
HEAD = '''"""The keys of the configuration as keyword arguments: their names and the Python types of their values.

Generated from the tables of pyjs.config, which check the values: `make declarations`. A value is written as in the
configuration file: a duration is text with a unit ("30s"), a size is a number of bytes, and in the block jetstream
also text ("10GB"); a path may be a pathlib.Path.
Long because it has every block of the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Literal, TypeAlias, TypedDict

Duration: TypeAlias = str
FilePath: TypeAlias = str | PathLike[str]
'''


def made() -> dict[Path, str]:
    """Return the text of every generated file."""
    tables = {f"keys of {path or 'the top level'}": table(path, of) for path, of in TABLES.items()}
    return {PAGE: filled(PAGE, tables), KEYS: "\n\n".join([HEAD, *map(_typed_dict, [*blocks(TOP), TOP])])}


def table(path: str, of: Table) -> str:
    """Return the keys of a block as a table of Markdown, and those that are refused."""
    lines = ["| Key | Value | Default | R | |", "|---|---|---|---|---|"]
    lines += [_row(path, key) for key in of.keys]
    if of.unsupported:
        lines += ["", "Refused by name, because they would have no effect on this server:", ""]
        lines += [f"- {_names(*row.names)}: {row.reason}" for row in of.unsupported]
    return "\n".join(lines) + "\n"


def _row(path: str, key: Key) -> str:
    reloadable = "R" if key.reloadable or path.startswith(INHERITING) else ""
    cells = (_names(key.name, *key.aliases), key.kind.name, default_text(path, key), reloadable, key.doc)
    return f"| {' | '.join(cells)} |"


def _names(name: str, *others: str) -> str:
    more = f" ({', '.join(f'`{other}`' for other in others)})" if others else ""
    return f"`{name}`{more}"


def default_text(path: str, key: Key) -> str:
    """Return the default of a key as the page shows it."""
    values = [attrgetter(attr)(TARGETS[path]) for attr in key.attrs]
    if key.kind.name == "host:port":
        host, port = values
        return f"`{host}:{port}`" if port else ""
    if isinstance(values[0], bool):
        return "`true`" if values[0] else "`false`"
    if key.kind.name.endswith("duration") or key.attrs[0].endswith("_ns"):
        return f"`{_duration(values[0])}`" if values[0] >= 0 else "`false`"
    if isinstance(values[0], int):
        return f"`{_size(values[0]) if key.kind.name == 'size' else values[0]}`"
    return f"`{values[0]}`" if isinstance(values[0], str) and values[0] else ""


def _duration(ns: int) -> str:
    text = duration_text(ns)
    return text.removesuffix("0s").removesuffix("0m") if text[-3:-1] in ("m0", "h0") else text


def _size(size: int) -> str:
    return next((f"{size // unit}{name}" for unit, name in SIZES if size > 0 and size % unit == 0), str(size))


def blocks(of: Table) -> list[Table]:
    """Return the tables of the blocks below a table, each after the tables of its own keys."""
    found: dict[str, Table] = {}
    for key in of.keys:
        if key.kind.table is not None and key.kind.table.path not in found:
            for each in (*blocks(key.kind.table), key.kind.table):
                found.setdefault(each.path, each)
    return list(found.values())


def _typed_dict(of: Table) -> str:
    return "\n".join(_typed_dict_lines(of)) + "\n"


def _typed_dict_lines(of: Table) -> Iterator[str]:
    yield f"class {BLOCKS.get(of.path, 'Config')}Keys(TypedDict, total=False):"
    yield f'    """{title(of)}"""'
    yield ""
    for key in of.keys:
        block = f"{BLOCKS[key.kind.table.path]}Keys" if key.kind.table else ""
        yield f"    {key.name}: {key.kind.python.replace('{}', block)}"
        yield f'    """{key.doc}"""'


def title(of: Table) -> str:
    """Return the description of a block in the docstring of its type."""
    where = {
        "": "The top level.",
        "account": "An entry of `accounts`.",
        "account.exports": "An entry of `exports`.",
        "account.imports": "An entry of `imports`.",
        "account.imports.subject": "The blocks `stream` and `service` of an import.",
        "mappings": "A destination of a mapping.",
        "permissions.subjects": "The blocks `publish` and `subscribe`.",
        "tls.certs": "An entry of `certs`.",
        "user": "An entry of `users`.",
    }
    return where.get(of.path, f"The block `{of.path.rpartition('.')[2]}`.")
