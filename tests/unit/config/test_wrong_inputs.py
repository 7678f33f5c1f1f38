"""Wrong configurations and the required contents of their messages: the place, the cause and the fix."""

from __future__ import annotations

import re

import pytest
from tests.unit.config.conftest import Refusal

# (file, line:column, words of the cause, words of the suggested fix)
WRONG = [
    # Names
    ("prot: 4222", "1:1", 'unknown field "prot"', 'did you mean "port"?'),
    ("port: 1\nmax_paylod: 1MB", "2:1", 'unknown field "max_paylod"', 'did you mean "max_payload"?'),
    ("zzzz: 1", "1:1", 'unknown field "zzzz"', "remove it"),
    ("jetstream {\n  store_dr: x\n}", "2:3", 'unknown field "store_dr"', 'did you mean "store_dir"?'),
    (
        "jetstream {limits {max_ack_pendin: 1}}",
        "1:20",
        'unknown field "max_ack_pendin"',
        '"max_ack_pending"?',
    ),
    ("jetstream {limits {q: 1}}", "1:20", 'unknown field "q"', "the keys here are max_ack_pending"),
    ("authorization {pasword: x}", "1:16", 'unknown field "pasword"', 'did you mean "password"?'),
    ("accounts {A {user: []}}", "1:14", 'unknown field "user"', 'did you mean "users"?'),
    ("jetstream {batch{max_msgs: 1}}", "1:12", 'the key "batch{max_msgs" holds a bracket', "put a space"),
    ("clutser {}", "1:1", 'unknown field "clutser"', 'did you mean "cluster"?'),
    # Features that do not exist yet
    (
        "cluster {port: 1, pool_size: 5}",
        "1:19",
        '"pool_size" is not supported yet: between two servers, small messages have one connection',
        "remove it",
    ),
    (
        "max_payload: 65MB\nmax_pending: 90MB\ncluster {name: T, port: 6222}",
        "1:1",
        "max_payload (68157440) is more than a route carries",
        "lower it to 64MB",
    ),
    ('cluster {routes: ["nats://h:1"]}', "1:10", "routes need a cluster port", "add port: 6222"),
    (
        'cluster {port: 1, routes: ["http://u:pw@h:1"]}',
        "1:28",
        "is no address of a route",
        "write nats://host:6222",
    ),
    ("cluster {port: 1, routes: [5]}", "1:28", '"routes" expects addresses', "write nats://host:6222"),
    (
        "cluster {port: 1}\njetstream: true",
        "1:1",
        "jetstream cluster requires `server_name` to be set",
        "add server_name: n1",
    ),
    ('cluster {port: 1, name: "a b"}', "1:25", "cluster name cannot contain spaces", "use letters"),
    ("tls {cert_file: x}", "1:5", "missing 'key_file' in TLS configuration", "write tls { cert_file: "),
    ("jetstream {key: a, cipher: ase}", "1:28", 'Unknown cipher type: "ase"', 'did you mean "aes"?'),
    ("jetstream {key: 12}", "1:17", '"key" expects a string, found a number', "put it in quotes"),
    ("jetstream {tpm {}}", "1:12", '"tpm" is not supported yet', "remove it"),
    ("accounts {A {nkey: x}}", "1:14", '"nkey" is not supported yet', "remove it"),
    # Types
    ("port: abc", "1:7", '"port" expects a whole number, found the string "abc"', "write a number"),
    ('port: "4222"', "1:7", '"port" expects a whole number', "remove the quotes"),
    ("port: [1]", "1:7", "found a list", "write a number"),
    ("debug: 1", "1:8", '"debug" expects true or false, found the number 1', "debug: true"),
    ('debug: "true"', "1:8", '"debug" expects true or false', "remove the quotes"),
    ("server_name: 5", "1:14", '"server_name" expects a string, found the number 5', "put it in quotes"),
    ("server_name: true", "1:14", "found true", "put it in quotes"),
    ("server_name: 1.5", "1:14", "found the number 1.5", "put it in quotes"),
    ("server_name: 2024-01-02T03:04:05Z", "1:14", "found a date", "put it in quotes"),
    ("server_name {}", "1:13", "found a map", "put it in quotes"),
    ('max_payload: "1MB"', "1:14", '"max_payload" expects a size in bytes', "remove the quotes"),
    (
        "max_payload: 1kbb",
        "1:14",
        '"max_payload" expects a size in bytes, found the string "1kbb"',
        "the units are KB, MB, GB and TB",
    ),
    ("jetstream {max_mem: big}", "1:21", '"max_mem" expects a size in bytes', "max_mem: 10GB"),
    ("jetstream {max_mem: []}", "1:21", '"max_mem" expects a size in bytes, found a list', "max_mem: 10GB"),
    ("jetstream: 5", "1:12", '"jetstream" expects true, false or a map', "jetstream: enabled"),
    ("jetstream: enabeld", "1:12", "neither enabled nor disabled", 'did you mean "enabled"?'),
    ("jetstream {limits: 5}", "1:20", '"limits" expects a map', "write limits {"),
    ("server_tags: 5", "1:14", '"server_tags" expects a string or a list of strings', "[a, b]"),
    ("server_tags: [1]", "1:15", '"server_tags" expects a string, found the number 1', "put it in quotes"),
    ("server_metadata: x", "1:18", '"server_metadata" expects a map', "server_metadata {"),
    ("server_metadata {a: 1}", "1:21", "expects a string", "put it in quotes"),
    # Durations
    ("write_deadline: 1d", "1:17", "'d' is no unit in \"1d\"", "24h"),
    ("ping_interval: soon", "1:16", '"ping_interval" is no duration', "the units are"),
    ("ping_interval: true", "1:16", '"ping_interval" expects a duration', '"30s"'),
    ("ping_interval: 9999999999999", "1:16", "too long", '"30s"'),
    ('ping_interval: "-1s"', "1:16", "the shortest is 0s", "positive duration"),
    ("lame_duck_duration: 60", "1:21", '"lame_duck_duration" expects a duration', '"60s"'),
    ("lame_duck_duration: 2m", "1:21", "found the number 2m", 'write "2m" in quotes'),
    ("lame_duck_duration: 10s", "1:21", "is 10s, the shortest is 30s", "use 30s or more"),
    ("jetstream {sync: alway}", "1:18", "neither a duration nor always", 'did you mean "always"?'),
    # Ranges
    ("port: 99999", "1:7", '"port" is 99999, the largest is 65535', "use a port from 1 to 65535"),
    ("port: -2", "1:7", '"port" is -2, the smallest is -1', "use a port from 1 to 65535"),
    ("http: 127.0.0.1:99999", "1:7", '"http" is 99999', "use a port from 1 to 65535"),
    ("max_payload: 3GB", "1:14", "the largest is 2147483647", "use a number"),
    ("max_sub_tokens: 256", "1:17", "the largest is 255", "1 to 255"),
    ("max_sub_tokens: 0", "1:17", "the smallest is 1", "1 to 255"),
    ("max_pending: 9EB", "1:14", "9EB is too large", "write a smaller number"),
    ("log_size_limit: -1", "1:17", "the smallest is 0", "use a positive size"),
    ("server_name: 'a b'", "1:14", "server name cannot contain spaces", "use - or _"),
    ("jetstream {domain: a.b}", "1:20", '"domain" is "a.b", which is no name', "leave out"),
    # Addresses
    ("listen: foo", "1:9", '"listen" expects host:port, found "foo"', "127.0.0.1:4222"),
    ("listen: foo:bar", "1:9", '"listen" has the port "bar"', "use a port"),
    ('listen: "::1"', "1:9", '"listen" expects host:port', '"[::1]:4222"'),
    ("listen: true", "1:9", '"listen" expects host:port or a port, found true', "127.0.0.1:4222"),
    ("client_advertise: a:b:c", "1:19", "is no host or host:port", '"[::1]:4222"'),
    ("client_advertise: a:99999", "1:19", "is no host or host:port", "example.com:4222"),
    ("client_advertise: a:\u00b2", "1:19", "is no host or host:port", "example.com:4222"),
    (
        'client_advertise: ":4222"',
        "1:19",
        '"client_advertise" is ":4222", which is no host',
        "example.com:4222",
    ),
    ('cluster {port: 1, advertise: "[x]y:1"}', "1:30", '"advertise" is "[x]y:1", which is no', "[::1]:4222"),
    ('cluster {port: 1, advertise: "a b:1"}', "1:30", '"advertise" is "a b:1", which is no', "example.com"),
    (
        'websocket {port: 1, no_tls: true, advertise: ":1"}',
        "1:46",
        '"advertise" is ":1", which is',
        "example",
    ),
    ("cluster {port: 1, advertise: a:b}", "1:30", '"advertise" is "a:b", which is no', "example.com:4222"),
    ("websocket {port: 1, no_tls: true, advertise: a:b}", "1:46", "is no host or host:port", "example.com"),
    # Users
    ("authorization: []", "1:16", '"authorization" expects a map, found a list', "user: alice"),
    ("authorization {password: 12345}", "1:26", '"password" expects a string, found a number', "quotes"),
    ("authorization {user: a, token: b}", "1:15", "a user and a token", "keep one"),
    ("authorization {password: b}", "1:15", "a password but no user", "add the user"),
    ("authorization {token: a, users [{user: b}]}", "1:15", "a single token and a list", "into the list"),
    ("authorization {users {user: a}}", "1:22", '"users" expects a list of users, found a map', "users: [ {"),
    ("authorization {users [a]}", "1:23", '"users" expects a map', "user: alice"),
    ("authorization {users [{password: b}]}", "1:23", "has no user", "add its name"),
    ("authorization {users [{user: a}, {user: a}]}", "1:34", 'user "a" is defined twice', "rename"),
    ('authorization {timeout: "x"}', "1:25", '"timeout" is no duration', "the units are"),
    ("authorization {timeout: -1}", "1:25", '"timeout" is negative', "2s"),
    ("authorization {user: a}\naccounts {A {users [{user: b}]}}", "1:1", "cannot be used together", "list"),
    ("no_auth_user: bob", "1:1", 'no_auth_user: "bob" is no user', "define that user"),
    ("authorization {users [{user: bob}]}\nno_auth_user: bib", "2:1", "is no user", 'did you mean "bob"?'),
    # Permissions
    (
        "authorization {users [{user: a, permissions: b}]}",
        "1:46",
        '"permissions" expects a map',
        "publish: a",
    ),
    ("authorization {permissions {publish: {alow: a}}, users []}", "1:39", '"alow"', 'did you mean "allow"?'),
    ('authorization {permissions {publish: "a b"}, users []}', "1:38", "is no subject", "tokens joined by"),
    ('authorization {permissions {subscribe: "a b c"}, users []}', "1:40", "is no subject", "queue"),
    ("authorization {permissions {publish: a..b}, users []}", "1:38", "is no subject", "tokens joined by"),
    ('authorization {permissions {publish: ">.a"}, users []}', "1:38", "is no subject", "tokens joined by"),
    ("authorization {permissions {publish: [5]}, users []}", "1:39", "expects a subject", "quotes"),
    ("authorization {permissions {publish: 5}, users []}", "1:38", '"publish" expects a map', "allow: ["),
    ("authorization {permissions {allow_responses: 5}, users []}", "1:46", "expects a map", "max: 1"),
    (
        "authorization {permissions {allow_responses {expires: 5}}, users []}",
        "1:55",
        "expects a duration",
        '"5s"',
    ),
    # Accounts
    ("accounts: A", "1:11", '"accounts" expects a map', "A { users"),
    ("accounts {A: 5}", "1:14", '"A" expects a map', "users: []"),
    ("accounts [A, A]", "1:14", 'the account "A" is named twice', "remove one"),
    ("accounts [5 ]", "1:11", "expects the name of an account", "quotes"),
    ("accounts {$G: {}}", "1:11", '"$G" is a reserved account', "authorization"),
    ('accounts {A {jetstream {max_mem: "1G"}}}', "1:34", '"max_mem" expects a size', "remove the quotes"),
    ("accounts {A {limits {max_conn: x}}}", "1:32", "expects a whole number", "write a number"),
    ("accounts {A {limits {max_conn: -2}}}", "1:32", "the smallest is -1", "-1 for no limit"),
    ("system_account: X", "1:1", 'system_account "X" is no account', "add accounts { X: {} }"),
    ("accounts {SYS {}}\nsystem_account: SIS", "2:1", "is no account", 'did you mean "SYS"?'),
    ('accounts {"$SYS" {jetstream: true}}', "1:1", "JetStream is enabled in the system account", "remove"),
    ("no_system_account: true\nsystem_account: $SYSTEM", "2:17", "variable reference", "set SYSTEM"),
    ('system_account: "$SYS"\nno_system_account: true', "1:1", "no_system_account is true", "keep one"),
    # Conflicts between options
    ("lame_duck_duration: 30s\nlame_duck_grace_period: 30s", "2:1", "is not shorter than", "lower"),
    ("max_payload: 64MB\nmax_pending: 1MB", "1:1", "is higher than max_pending", "lower max_payload"),
    ("max_pending: 1KB", "1:1", "is higher than max_pending", "raise max_pending"),
    ("jetstream {store_dir: a}\nstore_dir: b", "2:12", "Duplicate 'store_dir'", "keep one"),
    ("jetstream {store_dir: a, store: b}", "1:33", "Duplicate 'store_dir'", "keep one"),
    # Syntax
    ("port 1 2", "1:8", "the value before this ends", "in quotes"),
    ("port", "1:5", '"port" has no value', "write its value"),
    ("port: 1 }", "1:9", "this } closes nothing", "remove it"),
    ("jetstream {", "1:11", "is never closed", "add the missing }"),
    ('server_name: "a', "1:14", "has no end", "close it"),
    ("port: $PORT", "1:7", "variable reference for 'PORT' can not be found", "set PORT"),
    ("include other.conf", "1:1", "open other.conf: no such file", "give a path"),
]


@pytest.mark.parametrize(("text", "place", "cause", "fix"), WRONG, ids=[text[:40] for text, *_ in WRONG])
def test_a_message_says_where_what_and_what_to_do(
    refusal: Refusal, text: str, place: str, cause: str, fix: str
) -> None:
    message = refusal(text)
    first = message.splitlines()[0]
    assert re.match(r"server\.conf:\d+:\d+: .+; .+", first)
    assert first.startswith(f"server.conf:{place}: ")
    told_cause, _, told_fix = first.rpartition("; ")
    assert cause in told_cause
    assert fix in told_fix


def test_all_problems_are_told_at_once_in_the_order_of_the_file(refusal: Refusal) -> None:
    message = refusal("prot: 1\njetstream { max_mem: x\n domain: a.b }\nport: 99999\nping_interval: 5")
    assert [line.split(" ")[0] for line in message.splitlines()] == [
        "server.conf:1:1:",
        "server.conf:2:22:",
        "server.conf:3:10:",
        "server.conf:4:7:",
        "server.conf:5:16:",
    ]


def test_a_secret_is_never_repeated(refusal: Refusal) -> None:
    message = refusal("authorization {user: a, password: 918273, token: 645342 }")
    assert "918273" not in message
    assert "645342" not in message


def test_a_problem_in_an_included_file_names_that_file(refusal: Refusal) -> None:
    assert refusal("include sub/a.conf", {"sub/a.conf": "\nport: x"}).startswith("sub/a.conf:2:7: ")
