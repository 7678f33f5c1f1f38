"""Each key of each table changes the attribute that it names, or is refused by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass

import pytest
from tests.support.nkeys import Nkey
from tests.unit.config.conftest import Load, Refusal

from pyjs.config.options import Options
from pyjs.config.table import Key, Table
from pyjs.config.tables import TABLES
from pyjs.testing.jwt import Key as Key_
from pyjs.testing.jwt import account_token, operator_token, user_token
from pyjs.wire.xkeys import CurveKeyPair

OPERATOR, ACCOUNT, USER = (
    Key_(kind, bytes([number]) * 32) for number, kind in enumerate(("operator", "account", "user"), 1)
)
O_KEY, A_KEY = OPERATOR.public, ACCOUNT.public
MEMORY = "resolver: MEMORY"
TRUSTED = f"\ntrusted_keys: {O_KEY}\n"

# How a key of each table is written in a file, and where its target is found afterwards.
WRITE = {
    "": "{}",
    "jetstream": "jetstream {{ {} }}",
    "jetstream.limits": "jetstream {{ limits {{ {} }} }}",
    "jetstream.limits.batch": "jetstream {{ limits {{ batch {{ {} }} }} }}",
    "authorization": "authorization {{ {} }}",
    "proxies": "proxies {{ {} }}",
    "proxies.trusted.*": f"proxies {{{{ trusted: [ {{{{ key: {O_KEY}, {{}} }}}} ] }}}}",
    "authorization.auth_callout": (
        f"authorization {{{{ auth_callout {{{{ issuer: {A_KEY}, auth_users: [a], {{}} }}}} }}}}"
    ),
    "resolver": f"trusted_keys: {O_KEY}\nresolver {{{{ type: full, dir: jwt, allow_delete: true, {{}} }}}}",
    "http_authorization": "http_authorization {{ token: z, {} }}",
    "tls": "tls {{ certs: [{{ cert_file: c, key_file: k }}], {} }}",
    "cluster": "cluster {{ name: a, port: 6222, {}\n}}",
    "cluster.authorization": "cluster {{ port: 6222, authorization {{ {} }} }}",
    "websocket": "websocket {{ {}\n}}",
    "websocket.authorization": "websocket {{ authorization {{ {} }} }}",
    "accounts.*": "accounts {{ A {{ {} }} }}",
    "accounts.*.limits": "accounts {{ A {{ limits {{ {} }} }} }}",
    "accounts.*.msg_trace": "accounts {{ A {{ msg_trace {{ dest: elsewhere, {} }} }} }}",
    "accounts.*.jetstream": "accounts {{ A {{ jetstream {{ {} }} }} }}",
    "accounts.*.exports.*": "accounts {{ A {{ exports: [ {{ {} }} ] }} }}",
    "accounts.*.exports.*.latency": "accounts {{ A {{ exports: [ {{ service: s, latency {{ {} }} }} ] }} }}",
    "accounts.*.imports.*": "accounts {{ A {{ imports: [ {{ {} }} ] }} }}",
    "accounts.*.imports.*.stream": "accounts {{ A {{ imports: [ {{ stream {{ {} }} }} ] }} }}",
    "mappings.*": "mappings {{ a {{ {} }} }}",
    "users.*": "authorization {{ users: [ {{ {} }} ] }}",
    "permissions": "authorization {{ users: [ {{ user: a, permissions {{ {} }} }} ] }}",
    "permissions.allow_responses": (
        "authorization {{ users: [ {{ user: a, permissions {{ allow_responses {{ {} }} }} }} ] }}"
    ),
}

# A value that differs from the default, by key or else by the name of the kind.
VALUE = {
    "workers": "3",
    "log_format": "json",
    "operator": f"{operator_token(OPERATOR)}\n{MEMORY}",
    "trusted_keys": f"{O_KEY}\n{MEMORY}",
    "resolver": f'URL("http://127.0.0.1:1/"){TRUSTED}',
    "resolver_preload": f"{{ {A_KEY}: {account_token(OPERATOR, ACCOUNT)} }}{TRUSTED}{MEMORY}",
    "resolver_pinned_accounts": f"[{A_KEY}]{TRUSTED}{MEMORY}",
    "default_sentinel": (
        f"{user_token(ACCOUNT, USER, bearer_token=True)}\noperator: {operator_token(OPERATOR)}\n{MEMORY}"
    ),
    "resolver/type": "cache\nallow_delete: false",
    "ttl": '"77s"\ntype: cache\nallow_delete: false',
    "proxies": f"{{ trusted: [ {{ key: {O_KEY} }} ] }}",
    "trusted": f"[ {{ key: {O_KEY} }} ]",
    "proxies.trusted.*/key": A_KEY,
    "authorization/proxy_required": "true, token: t",
    "users.*/proxy_required": "true, user: u",
    "auth_callout": f"{{ issuer: {A_KEY}, auth_users: [a] }}",
    "issuer": Key_("account", b"i" * 32).public,
    "xkey": CurveKeyPair(b"x" * 32).public,
    "allowed_connection_types": "[WEBSOCKET], user: a",
    "no_auth_user": 'alice\nauthorization { users: [{user: alice, password: "b"}] }',
    "system_account": "OPS\naccounts { OPS {} }",
    "authorization": "{ token: a }",
    "http_authorization": "{ token: a }",
    "http_authorization/user": "a, password: b",
    "http_authorization/healthz_open": "false",
    "cluster": "{ port: -1 }",
    "cluster/routes": '["nats://u:p@10.0.0.1:6222"]',
    "cluster/authorization": "{ user: a, password: b }",
    "cluster.authorization/password": "a",
    "websocket": "{ port: -1, no_tls: true }",
    "websocket/listen": '"127.0.0.2:7422"\nno_tls: true',
    "websocket/port": "77\nno_tls: true",
    "websocket/no_auth_user": "word",
    "tls": "{ cert_file: c, key_file: k }",
    "cert_file": "a, key_file: b",
    "key_file": "b, cert_file: a",
    "certs": "[{ cert_file: a, key_file: b }, { cert_file: c, key_file: d }]",
    "https": '"127.0.0.9:1"\ntls { cert_file: c, key_file: k }',
    "https_port": "1\ntls { cert_file: c, key_file: k }",
    "tls/timeout": "77",
    "handshake_first": "auto",
    "pinned_certs": f"[{'0a' * 32}]",
    "min_version": '"1.3"',
    "cipher_suites": "[TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]",
    "curve_preferences": "[X25519]",
    "accounts": "{ B {} }",
    "streams": "{ S { subjects: s } }",
    "consumers": "{ S { c {} } }",
    "kv": "{ b {} }",
    "object_store": "{ b {} }",
    "jetstream": "enabled",
    "cipher": "aes",
    "password": "a\nuser: b",
    "nkey": Nkey("owner").public,
    "users.*/user": "b",
    "users.*/permissions": "{ publish: a }, user: a",
    "users": '[{user: u, password: "p"}]',
    "default_permissions": '{ publish: a }\nusers: [{user: u, password: "p"}]',
    "permissions": "{ publish: a }",
    "limits": "{ max_ack_pending: 7 }",
    "batch": "{ max_msgs: 7 }",
    "accounts.*/limits": "{ max_payload: 7 }",
    "accounts.*/jetstream": "true",
    "msg_trace": "{ dest: traces }",
    "sampling": '"7%"',
    "accounts.*/exports": "[{stream: a}]",
    "accounts.*/imports": "[{stream: {account: A, subject: a}}], exports: [{stream: a}]",
    "mappings": "{a: b}",
    "accounts.*/default_permissions": "{ publish: a }",
    "allow_responses": "true",
    "sync_interval": "always",
    "max_pending": "100MB",
    "host:port": "127.0.0.2:7422",
    "int": "77",
    "size": "77",
    "string": "word",
    "path": "word",
    "list of strings": "[x, y]",
    "map of strings": "{a: b}",
    "map of bools": "{js_ack_fc_v2: true}",
    "duration": '"77s"',
    "subjects": "a",
}


def rows() -> Iterator[tuple[str, Table, Key, str]]:
    for path, table in TABLES.items():
        for key in table.keys:
            for name in (key.name, *key.aliases):
                yield path, table, key, name


def unsupported_rows() -> Iterator[tuple[str, str]]:
    for path, table in TABLES.items():
        for name in table.reason_by_name:
            yield path, name


# Blocks that together become one value: tests/unit/config/exchange/test_exchange_read.py.
JOINT = ("accounts.*.exports", "accounts.*.imports", "mappings.*")
ROWS = [row for row in rows() if not row[0].startswith(JOINT)]
REFUSED = list(unsupported_rows())


def value_of(path: str, key: Key, default: object) -> str:
    """Return a value for `key` that is not its default."""
    if key.kind.name == "bool" and f"{path}/{key.name}" not in VALUE:
        return "false" if default is True else "true"
    for name in (f"{path}/{key.name}", key.name, key.kind.name):
        if name in VALUE:
            return VALUE[name]
    raise AssertionError(f"no sample for {key.name}")


def target_of(options: Options, path: str) -> object:
    """Return the object that the table at `path` fills in."""
    if path.startswith("accounts.*"):
        return attribute(options.accounts["A"], path.removeprefix("accounts.*").lstrip("."))
    if path.startswith(("users.*", "permissions")):
        return attribute(options.authorization.users[0], path.removeprefix("users.*"))
    if path == "proxies.trusted.*":
        return options.proxies.trusted[0]
    return attribute(options, "monitoring.login" if path == "http_authorization" else path)


def attribute(target: object, attr: str) -> object:
    for step in attr.split(".") if attr else ():
        target = getattr(target, step)
    return target


def content(data: object) -> object:
    """Return `data` in a form whose equality means equal contents."""
    if not is_dataclass(data):
        return data
    return {each.name: content(getattr(data, each.name)) for each in fields(data)}


@pytest.mark.parametrize(
    ("path", "table", "key", "name"), ROWS, ids=[f"{path}/{name}" for path, _, _, name in ROWS]
)
def test_a_key_changes_the_attributes_that_it_names(
    load: Load, path: str, table: Table, key: Key, name: str
) -> None:
    # given
    empty = {"authorization": "user: a", "users.*": "user: z"}.get(path, "")
    before = target_of(load(WRITE[path].format(empty)), path)
    defaults = [content(attribute(before, attr)) for attr in key.attrs]
    value = value_of(path, key, defaults[0])
    # when
    options = load(WRITE[path].format(f"{name}: {value}"))
    # then
    changed = [content(attribute(target_of(options, path), attr)) for attr in key.attrs]
    kept = {"sync_interval_ns"} if value == "always" else set()
    for attr, old, new in zip(key.attrs, defaults, changed, strict=True):
        assert old != new or attr in kept


@pytest.mark.parametrize(("path", "name"), REFUSED, ids=[f"{path}/{name}" for path, name in REFUSED])
def test_a_key_that_would_change_nothing_is_refused_by_name(refusal: Refusal, path: str, name: str) -> None:
    assert f'"{name}" is not supported yet: ' in refusal(WRITE[path].format(f"{name}: 1"))


def test_no_name_stands_twice_in_a_table() -> None:
    for table in TABLES.values():
        names = [name for key in table.keys for name in (key.name, *key.aliases)]
        names += [name for row in table.unsupported for name in row.names]
        assert sorted(names) == sorted(set(names))


def test_keys_are_compared_without_case(load: Load) -> None:
    assert load("PORT: 5\nJetStream { Store_Dir: x }").port == 5


def test_every_attribute_of_options_is_set_by_some_key() -> None:
    set_by_keys = {attr.split(".")[0] for key in TABLES[""].keys for attr in key.attrs}
    not_from_keys = {"config_path", "config_digest", "flags", "warnings", "worker"}
    assert {each.name for each in fields(Options)} == set_by_keys | not_from_keys


def test_every_key_says_what_it_is_for() -> None:
    for path, table in TABLES.items():
        assert [key.name for key in table.keys if not key.doc.endswith(".")] == [], path
