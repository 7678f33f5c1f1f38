from tests.unit.monitor.conftest import Site

from pyjs.config.options import AccountOptions, ConnectionLimits, Options, UserOptions


def test_an_idle_server_shows_its_identity_and_limits(site: Site) -> None:
    answer = site.json("/varz")

    assert list(answer)[:8] == [
        "server_id", "server_name", "version", "proto", "git_commit", "go", "host", "port",
    ]  # fmt: skip
    assert answer["server_id"] == site.node.server_id
    assert "auth_required" not in answer
    assert (answer["max_connections"], answer["ping_interval"], answer["auth_timeout"]) == (
        65536,
        120 * 10**9,
        2,
    )
    assert (answer["mem"], answer["cores"], answer["cpu"]) == (12345, 4, 2.5)
    assert answer["jetstream"] == answer["cluster"] == {}
    assert answer["system_account"] == "$SYS"


def test_counters_include_closed_connections(site: Site) -> None:
    client = site.client()
    client.send(b"SUB foo 1\r\nPUB foo 5\r\nhello\r\n")
    client.session.close("Client Closed")
    site.client().send(b"PUB foo 3\r\nabc\r\n")
    site.fixture.advance(seconds=61)

    answer = site.json("/varz")

    assert (answer["connections"], answer["total_connections"], answer["uptime"]) == (1, 2, "1m1s")
    assert [answer[name] for name in ("in_msgs", "in_bytes", "out_msgs", "out_bytes")] == [2, 8, 1, 5]
    assert answer["in_client_msgs"] == answer["in_msgs"]


def test_slow_and_stale_clients_are_counted(site: Site) -> None:
    site.node.slow_consumers, site.node.stale_connections, site.node.stalled_clients = 3, 2, 1

    answer = site.json("/varz")

    assert (answer["slow_consumers"], answer["stale_connections"], answer["stalled_clients"]) == (3, 2, 1)
    assert answer["slow_consumer_stats"]["clients"] == 3
    assert answer["stale_connection_stats"]["clients"] == 2


def test_what_is_configured_is_shown(two_accounts: Site) -> None:
    assert two_accounts.json("/varz")["auth_required"] is True


def test_a_user_for_clients_without_credentials_does_not_end_authentication() -> None:
    user = UserOptions(user="u", password="pw", account="A")
    options = Options(no_auth_user="u", accounts={"A": AccountOptions(name="A", users=(user,))})

    assert Site(options).json("/varz")["auth_required"] is True


def test_tags_and_metadata_are_shown_only_when_there_are_any() -> None:
    options = Options(
        server_tags=("a", "b"),
        server_metadata={"k": "v"},
        limits=ConnectionLimits(max_subscriptions=7),
        system_account="",
    )

    answer = Site(options).json("/varz")

    assert (answer["tags"], answer["metadata"], answer["max_subscriptions"]) == (["a", "b"], {"k": "v"}, 7)
    assert "system_account" not in answer


def test_unexpected_failures_are_counted_once_there_are_some(site: Site) -> None:
    before = site.json("/varz")
    site.node.faults.report("commit", "a commit", ZeroDivisionError(), 0)

    assert "pyjs_faults" not in before
    assert site.json("/varz")["pyjs_faults"] == {"commit": 1}
