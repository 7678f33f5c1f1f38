"""The rows of the benchmark table, each with the work that the driver does for it.

`msgs` is only the start of the calibration. A row with `latency` is evaluated by its p50 and p99, the others by their
rate.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table: a kind of work."""

    name: str
    about: str
    arguments: tuple[str, ...]
    msgs: int = 20_000
    msgs_max: int = 20_000_000  # limits disk space, memory and the time to fill a stream
    latency: bool = False
    sync_always: bool = False
    config: str = ""  # additional configuration of the server; doors.py replaces its {names}
    quiet: str = ""  # CONNECT of a client that sends pings meanwhile: its waits are the latencies of the row


def _row(name: str, about: str, arguments: str, **more: int | bool | str) -> Row:
    return Row(name, about, tuple(arguments.split()), **more)  # type: ignore[arg-type]


_TLS = 'tls {{ cert_file: "{cert}", key_file: "{key}" }}'
_PERMISSIONS = """
accounts {{ LOAD {{ jetstream: enabled, users: [{{ user: load, password: pw, permissions: {{
  publish: {{ allow: ["bench.>", "load.>", "$JS.>", "_INBOX.>"], deny: ["bench.secret.>"] }}
  subscribe: {{ allow: ["bench.>", "load.>", "_INBOX.>"], deny: ["bench.secret.>"] }}
}} }}] }} }}
"""
_AS_USER = "--user load --password pw"
_WS = 'websocket {{ listen: "127.0.0.1:{ws_port}", no_tls: true, compression: true }}'
_JWT = "{operator}"
_IMPORTS = """
accounts {{
  HOME {{ jetstream: enabled, users: [{{ user: home, password: pw }}]
    exports: [{{ stream: "bench.pubsub" }}, {{ service: "bench.service" }}, {{ service: "load.>" }}] }}
  AWAY {{ users: [{{ user: away, password: pw }}]
    imports: [{{ stream: {{ account: HOME, subject: "bench.pubsub" }} }}
      {{ service: {{ account: HOME, subject: "bench.service" }} }}
      {{ service: {{ account: HOME, subject: "load.>" }} }}] }}
}}
"""
_FROM_HOME = "--user home --far-user away --password pw"
_FROM_AWAY = "--user away --far-user home --password pw"
# The password of "slow" is "secret"; its cost is that of `nats server passwd`.
_SLOW = """
authorization {{ users: [
  {{ user: slow, password: "$2a$11$V1TZ2NrOhcHZtJZAAWXAV.E.IgoC/8CxVGNNPGg2V.JyEVqrIbk4G" }}
  {{ user: quiet, password: quiet }}
] }}
"""
_QUIET = 'CONNECT {"verbose":false,"user":"quiet","pass":"quiet"}'

ROWS = (
    _row("pub-16", "core publish, no subscriber, 16 B", "pub --size 16", msgs=200_000, msgs_max=80_000_000),
    _row(
        "pub-128", "core publish, no subscriber, 128 B", "pub --size 128", msgs=200_000, msgs_max=60_000_000
    ),
    _row("pub-1k", "core publish, no subscriber, 1 KiB", "pub --size 1024", msgs=100_000),
    _row("pub-150k", "core publish, 150,000 subjects", "pub --subjects 150000", msgs=150_000),
    _row(
        "pub-new",
        "core publish, each to a new subject",
        "pub --size 16 --fresh",
        msgs=200_000,
        msgs_max=10_000_000,
    ),
    _row(
        "1-1-new",
        "the same, to a subscriber of all",
        "pubsub --size 16 --fresh",
        msgs=100_000,
        msgs_max=10_000_000,
    ),
    _row("1-1", "1 publisher to 1 subscriber", "pubsub", msgs=100_000),
    _row("1-10", "1 publisher to 10 subscribers", "pubsub --subscribers 10", msgs=10_000),
    _row("1-1-tls", "the same, both under TLS", "pubsub --tls", msgs=100_000, config=_TLS),
    _row(
        "1-1-perm",
        "the same, of users with allow and deny lists",
        f"pubsub {_AS_USER}",
        msgs=100_000,
        config=_PERMISSIONS,
    ),
    _row("1-1-ws", "the same, both over WebSocket", "pubsub --ws", msgs=100_000, config=_WS),
    _row("1-1-wsz", "the same, compressed", "pubsub --deflate", msgs=50_000, config=_WS),
    _row("1-1-jwt", "the same, logged in with a token", "pubsub --creds {creds}", msgs=100_000, config=_JWT),
    _row(
        "1-1-import",
        "the same, across a stream import",
        f"pubsub {_FROM_HOME}",
        msgs=100_000,
        config=_IMPORTS,
    ),
    _row("reqrep", "request/reply, 1 outstanding", "reqrep", msgs=2_000, latency=True),
    _row("reqrep-4x64", "request/reply, 4 x 64 outstanding", "reqrep --connections 4 --window 64"),
    _row(
        "reqrep-import",
        "request/reply across an import, 1 outstanding",
        f"reqrep {_FROM_AWAY}",
        msgs=2_000,
        latency=True,
        config=_IMPORTS,
    ),
    _row(
        "reqrep-4x64-import",
        "the same, 4 x 64 outstanding",
        f"reqrep --connections 4 --window 64 {_FROM_AWAY}",
        config=_IMPORTS,
    ),
    _row("jspub-1", "JetStream async, 1 publisher", "jspub"),
    _row("jspub-tls", "JetStream async under TLS", "jspub --tls", config=_TLS),
    _row("jspub-perm", "JetStream async of a user with lists", f"jspub {_AS_USER}", config=_PERMISSIONS),
    _row("jspub-ws", "JetStream async over WebSocket", "jspub --ws", config=_WS),
    _row("jspub-wsz", "the same, compressed", "jspub --deflate", config=_WS),
    _row("jspub-jwt", "JetStream async, logged in with a token", "jspub --creds {creds}", config=_JWT),
    _row("jspub-import", "JetStream async across a service import", f"jspub {_FROM_AWAY}", config=_IMPORTS),
    _row("jspub-4", "JetStream async, 4 publishers", "jspub --publishers 4"),
    _row("jspub-1k", "JetStream async, 1 KiB", "jspub --size 1024", msgs_max=2_000_000),
    _row(
        "jspub-64k",
        "JetStream async, 64 KiB",
        "jspub --size 65536 --window 64",
        msgs=1_000,
        msgs_max=60_000,
    ),
    _row("jspub-id", "JetStream async, Nats-Msg-Id", "jspub --msg-id", msgs_max=5_000_000),
    _row("jspub-150k", "JetStream async, 150,000 subjects", "jspub --subjects 150000", msgs=150_000),
    _row(
        "jspub-new",
        "JetStream async, each to a new subject",
        "jspub --size 16 --fresh",
        msgs_max=10_000_000,
    ),
    _row("jspub-mem", "JetStream async, memory storage", "jspub --storage memory", msgs_max=2_000_000),
    _row("jssync-1", "JetStream sync, 1 connection", "jssync", msgs=2_000, latency=True),
    _row("jssync-16", "JetStream sync, 16 connections", "jssync --connections 16", msgs=4_000, latency=True),
    _row("pull-ack", "pull 500, explicit ack", "pull", msgs_max=3_000_000),
    _row("pull-none", "pull 500, ack none", "pull --ack none", msgs_max=5_000_000),
    _row("mirror", "a mirror catching up, 128 B", "mirror --subjects 1000", msgs=50_000, msgs_max=3_000_000),
    _row("source", "a source catching up, 128 B", "source --subjects 1000", msgs=50_000, msgs_max=3_000_000),
    _row("direct-1", "direct get, 1 connection", "direct --subjects 1000", msgs=2_000, latency=True),
    _row(
        "direct-16",
        "direct get, 16 connections",
        "direct --subjects 1000 --connections 16",
        msgs=4_000,
        latency=True,
    ),
    *(
        _row(
            f"always-{window}",
            f"sync always, async, window {window}",
            f"jspub --window {window}",
            msgs=500,
            msgs_max=3_000_000,
            sync_always=True,
        )
        for window in (64, 256)
    ),
    _row(
        "always-async",
        "sync always, async, window 500",
        "jspub --window 500",
        msgs=500,
        msgs_max=3_000_000,
        sync_always=True,
    ),
    _row(
        "always-sync-16",
        "sync always, 16 sync connections",
        "jssync --connections 16",
        msgs=200,
        latency=True,
        sync_always=True,
    ),
    _row(
        "handshakes", "full TLS handshakes, 8 at once", "shake --tls --connections 8", msgs=300, config=_TLS
    ),
    _row(
        "quiet-shakes",
        "a quiet client during 1,000 of them",
        "shake --tls --connections 8",
        msgs=1_000,
        msgs_max=1_000,
        latency=True,
        config="allow_non_tls: true\n" + _TLS,
        quiet='CONNECT {"verbose":false}',
    ),
    _row(
        "quiet-bcrypt",
        "a quiet client during 100 wrong bcrypt logins a second",
        "refused --user slow --password wrong --rate 100 --connections 200 --timeout 120",
        msgs=200,
        msgs_max=200,
        latency=True,
        config=_SLOW,
        quiet=_QUIET,
    ),
)
