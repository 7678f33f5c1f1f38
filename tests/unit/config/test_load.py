from __future__ import annotations

import pytest
from tests.unit.config.conftest import Load, Refusal

from pyjs.config.errors import ConfigError
from pyjs.config.load import Change, changes, load_options, reload_options
from pyjs.config.options import NS_PER_S, Options, is_bcrypt


def test_without_a_file_the_defaults_hold() -> None:
    options = load_options(None, lambda path: "", {}, {})
    assert (options.host, options.port, options.monitoring.http_port) == ("0.0.0.0", 4222, 0)
    assert (options.limits.max_payload, options.limits.max_pending) == (1 << 20, 64 << 20)
    assert (options.config_path, options.config_digest, options.warnings.mistakes) == (None, "", ())
    assert options.jetstream.sync_interval_ns == NS_PER_S
    assert not options.jetstream.enabled
    assert list(options.users()) == []


def test_a_file_sets_path_and_digest(load: Load) -> None:
    options = load("port: 4222")
    assert options.config_path == "server.conf"
    assert options.config_digest == "sha256:797533ebd0dfba7d34a0f9337ecf147e442871f48ddfd07ed751575a5737267e"


def test_the_digest_is_about_content_only(load: Load) -> None:
    assert load("port: 1024 # x\nhost: a").config_digest == load("{'host' = 'a', port 1KB}").config_digest


@pytest.mark.parametrize(
    "line",
    [
        "port: 0",
        'host: ""',
        "listen: 0",
        "listen: ':4222'",
        "max_payload: 0",
        "max_pending: 0",
        "max_control_line: 0",
        "ping_max: 0",
        'ping_interval: "0"',
        'write_deadline: "0s"',
        'lame_duck_grace_period: "0s"',
        "max_closed_clients: 0",
        "jetstream {enabled: false, sync: '0s', limits {default_max_consumers: 0}}",
        "authorization {timeout: 0}",
        'system_account: ""',
    ],
)
def test_nothing_stands_for_the_default(load: Load, line: str) -> None:
    options, default = load(line), Options()
    assert changes(default, options) == []


def test_max_connections_of_nothing_refuses_everyone(load: Load) -> None:
    assert load("max_connections: 0").limits.max_connections == -1
    assert load("max_connections: -5").limits.max_connections == -1
    assert load("max_subscriptions: -1").limits.max_subscriptions == 0


@pytest.mark.parametrize(
    ("line", "host", "port"),
    [
        ("listen: 5222", "0.0.0.0", 5222),
        ("listen: 127.0.0.1:-1", "127.0.0.1", -1),
        ('listen: "[::1]:4222"', "::1", 4222),
        ("listen: localhost:1\nport: 2", "localhost", 2),
        ("net: a\nport: 3", "a", 3),
        ('host: "::"', "::", 4222),
    ],
)
def test_an_address_is_taken_apart(load: Load, line: str, host: str, port: int) -> None:
    options = load(line)
    assert (options.host, options.port) == (host, port)


@pytest.mark.parametrize(
    "advertise", ["example.com", "example.com:4222", "[::1]:4222", "[::1]", "10.0.0.1:1", "a:0"]
)
def test_client_advertise_takes_a_host_with_or_without_port(load: Load, advertise: str) -> None:
    assert load(f'client_advertise: "{advertise}"').client_advertise == advertise


def test_tags_are_lower_case_and_once(load: Load) -> None:
    assert load('server_tags: [" Foo", bar, BAR]').server_tags == ("foo", "bar")
    assert load("server_tags: One").server_tags == ("one",)


def test_metadata_is_a_map_of_strings(load: Load) -> None:
    assert load("server_metadata { zone: a, Rack: b }").server_metadata == {"zone": "a", "Rack": "b"}


def test_trace_verbose_implies_trace(load: Load) -> None:
    assert load("trace_verbose: true").log.trace


# JetStream


@pytest.mark.parametrize(
    ("text", "enabled"),
    [
        ("jetstream: true", True),
        ("jetstream: false", False),
        ("jetstream: ENABLED", True),
        ("jetstream: disabled", False),
        ("jetstream {}", True),
        ("jetstream {enabled: false, domain: x}", False),
        ("store_dir: x", False),
    ],
)
def test_jetstream_is_switched_in_each_way(load: Load, text: str, enabled: bool) -> None:
    assert load(text).jetstream.enabled is enabled


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1G", 10**9),
        ("1GB", 1 << 30),
        ('"1G"', 1 << 30),
        ('"1GB"', 1 << 30),
        ('"512"', 512),
        ('""', 0),
        ("0", 0),
    ],
)
def test_a_storage_size_may_be_quoted_and_then_a_letter_counts_in_1024s(
    load: Load, text: str, size: int
) -> None:
    assert load(f"jetstream {{max_file: {text}}}").jetstream.max_storage == size


@pytest.mark.parametrize(
    ("text", "interval_ns", "always"),
    [
        ("sync: 10s", 10 * NS_PER_S, False),
        ("sync_interval: always", NS_PER_S, True),
        ("sync_interval: Always", NS_PER_S, True),
        ("sync_always: true", NS_PER_S, True),
        ("sync_always: true, sync_interval: 5s", 5 * NS_PER_S, True),
        ("sync_interval: 5s, sync_always: true", 5 * NS_PER_S, True),
    ],
)
def test_sync_is_an_interval_or_always(load: Load, text: str, interval_ns: int, always: bool) -> None:
    jetstream = load(f"jetstream {{{text}}}").jetstream
    assert (jetstream.sync_interval_ns, jetstream.sync_always) == (interval_ns, always)


def test_the_store_directory_may_stand_at_the_top(load: Load) -> None:
    jetstream = load("jetstream {max_mem: 1}\nstore_dir: x").jetstream
    assert (jetstream.enabled, jetstream.store_dir, jetstream.max_memory) == (True, "x", 1)
    assert load("store_dir: x\njetstream {max_mem: 1}").jetstream.store_dir == "x"


# Warnings


@pytest.mark.parametrize(
    ("text", "ns"),
    [("30", 30 * NS_PER_S), ("2m", 120 * NS_PER_S), ("2M", 120 * NS_PER_S), ("0", 120 * NS_PER_S)],
)
def test_a_bare_number_is_taken_for_a_duration_with_a_warning(load: Load, text: str, ns: int) -> None:
    options = load(f"ping_interval: {text}")
    assert options.limits.ping_interval_ns == ns
    assert len(options.warnings.mistakes) == 1
    assert options.warnings.mistakes[0].startswith(
        'server.conf:1:16: "ping_interval" is a number without unit'
    )


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "config has no values or is empty"),
        ("authorization {timeout: 61}", "61 seconds, more than a client should need"),
        ("authorization {user: a, permissions {publish: x}}", "reach only the entries of users"),
        ("accounts {A {default_permissions {publish: []}}}", "allows every subject"),
    ],
)
def test_what_is_probably_not_meant_is_warned_about(load: Load, text: str, cause: str) -> None:
    warnings = load(text).warnings.mistakes
    assert len(warnings) == 1
    assert cause in warnings[0]


@pytest.mark.parametrize(
    ("text", "noted"),
    [
        (
            "port: 1\nport: 2",
            'server.conf:2:1: "port" is set twice in this block, first at server.conf:1:1, ',
        ),
        (
            "port: 1\nPort: 2",
            'server.conf:2:1: "Port" is set twice in this block, first as "port" at server.conf:1:1, ',
        ),
        (
            "net: a\nhost: b",
            'server.conf:2:1: "host" is set twice in this block, first as "net" at server.conf:1:1, ',
        ),
        ("jetstream {max_mem: 1G}\njetstream {max_file: 1G}", 'server.conf:2:1: "jetstream" is set twice'),
    ],
)
def test_a_key_that_is_set_twice_is_noted_and_the_last_one_counts(load: Load, text: str, noted: str) -> None:
    options = load(text)
    assert [text[: len(noted)] for text in options.warnings.repeated] == [noted]
    assert options.warnings.repeated[0].endswith("the last one counts; remove one of the two")
    assert options.warnings.mistakes == ()


@pytest.mark.parametrize(
    "text", ["include 'base'\nport: 2", "Port: 1\ninclude 'base'", "accounts {a {}, A {}}"]
)
def test_keys_over_an_include_and_names_in_other_case_are_not_noted(load: Load, text: str) -> None:
    assert load(text, files={"base": "port: 1"}).warnings.repeated == ()


# Flags


def test_flags_win_over_the_file(load: Load) -> None:
    text = "port: 1\nstore_dir: a\ndebug: true\nhttp: 127.0.0.1:2"
    options = load(text, flags={"port": 5, "store_dir": "b", "debug": False, "http_port": 0})
    assert (options.port, options.jetstream.store_dir, options.log.debug) == (5, "b", False)
    assert (options.monitoring.host, options.monitoring.http_port) == ("127.0.0.1", 0)


def test_a_token_flag_replaces_the_user_of_the_file_and_the_other_way(load: Load) -> None:
    token = load("authorization {user: a, password: b}", flags={"auth": "t"}).authorization
    assert (token.user, token.password, token.token) == ("", "", "t")
    user = load("authorization {token: t}", flags={"user": "a", "pass": "b"}).authorization
    assert (user.user, user.password, user.token) == ("a", "b", "")


def test_a_user_flag_beside_users_of_the_file_is_refused(load: Load) -> None:
    with pytest.raises(ConfigError, match="cannot be used together"):
        load("authorization {users [{user: a}]}", flags={"user": "b"})


# The system account


def test_without_system_account_its_name_is_empty(load: Load) -> None:
    assert load("no_system_account: true").system_account == ""
    assert load("no_system_account: false").system_account == "$SYS"


def test_the_system_account_may_be_one_of_the_file(load: Load) -> None:
    assert load("accounts {OPS {}}\nsystem: OPS").system_account == "OPS"
    assert "$SYS" in load('accounts {"$SYS" {users [{user: a}]}}').accounts


# Reload


def test_a_reload_reads_the_file_again_under_the_same_flags() -> None:
    texts = {"f": "port: 1\nmax_payload: 1KB"}
    options = load_options("f", lambda path: texts[path], {}, {"port": 9})
    texts["f"] = "port: 2\nmax_payload: 2KB"
    again = reload_options(options, lambda path: texts[path], {})
    assert again.port == 9
    assert changes(options, again) == [Change("max_payload", 1024, 2048, True)]


def test_a_reload_without_a_file_is_refused() -> None:
    with pytest.raises(
        ConfigError, match="can only reload config when a file is provided using -c or --config"
    ):
        reload_options(Options(), lambda path: "", {})


def test_a_change_says_whether_a_running_server_can_take_it(load: Load) -> None:
    old = load("port: 1\njetstream {max_mem: 10, max_file: 10, domain: a}\nauthorization {token: a}")
    new = load("port: 2\njetstream {max_mem: 20, max_file: 5, domain: b}\nauthorization {token: b}")
    assert changes(old, new) == [
        Change("port", 1, 2, False),
        Change("jetstream.max_memory", 10, 20, True),
        Change("jetstream.max_storage", 10, 5, False),
        Change("jetstream.domain", "a", "b", False),
        Change("authorization.token", "***", "***", True),
    ]


def test_another_port_of_the_monitoring_pages_is_a_change(load: Load) -> None:
    old = load("http: '127.0.0.1:8222'\ndebug: false")
    new = load("http: '127.0.0.1:8223'\ndebug: true")
    assert changes(old, new) == [
        Change("debug", old=False, new=True, reloadable=True),
        Change("http_port", 8222, 8223, False),
    ]
    assert [change.name for change in changes(old, load("http_base_path: /x"))] == [
        "http",
        "http_port",
        "https",
        "http_base_path",
    ]


def test_a_change_of_users_or_accounts_hides_what_they_hold(load: Load) -> None:
    old = load('accounts {A {users [{user: a, password: "b"}]}}')
    new = load('accounts {A {users [{user: a, password: "c"}]}}')
    assert changes(old, new) == [Change("accounts", "***", "***", True)]


def test_a_change_of_the_login_of_the_monitoring_pages_hides_its_password(load: Load) -> None:
    old = load("http_authorization {user: a, password: b}")
    new = load("http_authorization {user: a, password: b, replay: true}")
    assert changes(old, new) == [Change("http_authorization", "***", "***", False)]


# Secrets


def test_a_plain_password_is_noticed_wherever_it_stands(load: Load) -> None:
    hashed = "$2a$11$" + "a" * 53
    assert load("authorization {token: abc}").has_plain_password()
    assert load("accounts {A {users [{user: a, password: b}]}}").has_plain_password()
    assert load("authorization {user: a, password: b}").has_plain_password()
    assert not load(f"authorization {{user: a, password: {hashed}}}").has_plain_password()
    assert not load("port: 1").has_plain_password()


@pytest.mark.parametrize("secret", ["$2a$11$x", "$2b$04$x", "$2y$10$x"])
def test_bcrypt_is_known_by_its_start(secret: str) -> None:
    assert is_bcrypt(secret)
    assert not is_bcrypt(secret[1:])
    assert not is_bcrypt("$2a$xx$")
    assert not is_bcrypt("$2a$\u00b2\u00b2$")


def test_an_unknown_name_that_a_variable_uses_is_no_error(load: Load, refusal: Refusal) -> None:
    assert load("mine: 5\njetstream {its: 7, max_mem: $its}\nport: $mine").port == 5
    assert 'unknown field "mine"' in refusal("mine: 5\nport: 5")
