import pytest
from tests.unit.monitor.conftest import Site

FIELDS = [
    "cid", "kind", "type", "ip", "port", "start", "last_activity", "rtt", "uptime", "idle", "pending_bytes",
    "in_msgs", "out_msgs", "in_bytes", "out_bytes", "subscriptions",
]  # fmt: skip


def test_without_clients_the_list_is_empty(site: Site) -> None:
    answer = site.json("/connz")

    assert list(answer) == ["server_id", "now", "num_connections", "total", "offset", "limit", "connections"]
    assert (answer["num_connections"], answer["total"], answer["limit"]) == (0, 0, 1024)
    assert answer["connections"] == []


def test_a_connection_shows_its_counters(site: Site) -> None:
    client = site.client("me")
    client.send(b"SUB foo 1\r\nPUB foo 5\r\nhello\r\n")
    site.fixture.advance(seconds=90)

    (entry,) = site.json("/connz")["connections"]

    assert list(entry) == [*FIELDS, "name"]
    assert (entry["kind"], entry["type"], entry["ip"], entry["port"]) == (
        "Client",
        "nats",
        "127.0.0.1",
        50000,
    )
    assert [entry[name] for name in FIELDS[11:]] == [1, 1, 5, 5, 1]
    assert (entry["name"], entry["uptime"]) == ("me", "1m30s")


def test_subscriptions_are_listed_on_demand(site: Site) -> None:
    client = site.client()
    client.send(b"SUB foo.* q 1\r\nSUB > 2\r\nUNSUB 2 9\r\nPUB bar 0\r\n\r\n")

    plain = site.json("/connz?subs=1")["connections"][0]
    detailed = site.json("/connz?subs=detail")["connections"][0]

    cid = client.session.cid
    assert plain["subscriptions_list"] == ["foo.*", ">"]
    assert "subscriptions_list_detail" not in plain
    assert detailed["subscriptions_list_detail"] == [
        {"subject": "foo.*", "qgroup": "q", "sid": "1", "msgs": 0, "cid": cid},
        {"subject": ">", "sid": "2", "msgs": 1, "max": 9, "cid": cid},
    ]


def test_a_closed_connection_keeps_its_state_and_reason(site: Site) -> None:
    client = site.client("gone")
    client.send(b"SUB foo 1\r\n")
    site.fixture.advance(seconds=5)
    client.session.close("Client Closed")

    answer = site.json("/connz?state=closed&subs=detail&auth=1")

    (entry,) = answer["connections"]
    assert list(entry)[7:9] == ["stop", "reason"]
    assert (entry["reason"], entry["uptime"], entry["subscriptions"]) == ("Client Closed", "5s", 1)
    detail = {"subject": "foo", "sid": "1", "msgs": 0, "cid": entry["cid"]}
    assert entry["subscriptions_list_detail"] == [{"account": "$G", "account_tag": "$G", **detail}]
    assert site.json("/connz")["connections"] == []
    assert site.json("/connz?state=any")["total"] == 1


def test_identity_is_shown_on_demand(two_accounts: Site) -> None:
    two_accounts.client(user="a")

    plain = two_accounts.json("/connz")["connections"][0]
    shown = two_accounts.json("/connz?auth=true")["connections"][0]

    assert "authorized_user" not in plain
    assert (shown["authorized_user"], shown["account"], shown["name_tag"]) == ("a", "A", "A")


def test_connections_are_chosen_by_id_account_and_user(two_accounts: Site) -> None:
    site = two_accounts
    a, b = site.client(user="a"), site.client(user="b")

    by_id = site.json(f"/connz?cid={b.session.cid}")

    assert [c["cid"] for c in by_id["connections"]] == [b.session.cid]
    assert by_id["limit"] == 1
    assert [c["cid"] for c in site.json("/connz?acc=A")["connections"]] == [a.session.cid]
    assert site.json("/connz?acc=A")["total"] == 1
    assert [c["cid"] for c in site.json("/connz?user=b")["connections"]] == [b.session.cid]
    assert site.json("/connz?cid=99")["connections"] == []
    assert site.json("/connz?mqtt_client=x")["connections"] == []


def test_an_unknown_account_has_no_list_at_all(site: Site) -> None:
    answer = site.json("/connz?acc=NOPE")

    assert answer["server_id"] == ""
    assert answer["connections"] is None


def test_pages_are_cut_from_the_sorted_list(site: Site) -> None:
    clients = [site.client() for _ in range(5)]

    page = site.json("/connz?offset=1&limit=2")

    assert [c["cid"] for c in page["connections"]] == [c.session.cid for c in clients[1:3]]
    assert (page["num_connections"], page["total"], page["offset"], page["limit"]) == (2, 5, 1, 2)
    assert site.json("/connz?offset=-3&limit=-1")["limit"] == 1024
    assert site.json("/connz?offset=9")["connections"] == []


@pytest.mark.parametrize("sort", ["subs", "msgs_from", "bytes_from", "msgs_to", "bytes_to", "last"])
def test_the_busiest_comes_first(site: Site, sort: str) -> None:
    clients = [site.client() for _ in range(3)]
    site.fixture.advance(milliseconds=1)
    clients[1].send(b"SUB foo 1\r\nPUB foo 5\r\nhello\r\n")

    cids = [c["cid"] for c in site.json(f"/connz?sort={sort}")["connections"]]

    assert cids[0] == clients[1].session.cid


@pytest.mark.parametrize(
    ("sort", "first"), [("cid", 0), ("start", 0), ("idle", 0), ("uptime", 2), ("rtt", 0)]
)
def test_the_oldest_or_newest_comes_first(site: Site, sort: str, first: int) -> None:
    clients = []
    for _ in range(3):
        clients.append(site.client())
        site.fixture.advance(milliseconds=10)

    cids = [c["cid"] for c in site.json(f"/connz?sort={sort}")["connections"]]

    assert cids[0] == clients[first].session.cid


def test_closed_connections_sort_by_their_end(site: Site) -> None:
    clients = [site.client() for _ in range(3)]
    for client, reason in zip(clients, ("Write Error", "Client Closed", "Parse Error"), strict=True):
        client.session.close(reason)
        site.fixture.advance(milliseconds=1)

    by_reason = [c["reason"] for c in site.json("/connz?state=closed&sort=reason")["connections"]]
    by_stop = [c["cid"] for c in site.json("/connz?state=closed&sort=stop")["connections"]]

    assert by_reason == ["Client Closed", "Parse Error", "Write Error"]
    assert by_stop == [c.session.cid for c in reversed(clients)]


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("sort=zz", "invalid sorting option: zz"),
        ("sort=stop", "sort by stop only valid on closed connections"),
        ("sort=reason&state=all", "sort by reason only valid on closed connections"),
        ("state=zz", "Error decoding state for zz"),
    ],
)
def test_what_makes_no_sense_is_refused(site: Site, query: str, text: str) -> None:
    assert site.refused(f"/connz?{query}") == text


def test_many_connections_are_reported_in_steps(site: Site) -> None:
    for _ in range(200):
        site.client()

    assert site.steps_of("/connz") > 3


def test_many_subscriptions_of_a_connection_are_reported_in_steps(site: Site) -> None:
    site.client().send(b"".join(b"SUB s.%d %d\r\n" % (number, number + 2) for number in range(5_000)))

    assert site.steps_of("/connz?subs=detail") > 5
    assert site.steps_of("/connz") == 1
