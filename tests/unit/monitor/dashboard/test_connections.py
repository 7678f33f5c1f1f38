"""The list of connections, and one connection."""

from __future__ import annotations

from tests.unit.monitor.dashboard.conftest import Dash


def names(page: dict[str, list[dict[str, str]]]) -> list[str]:
    return [row.get("name", "") for row in page["connections"]]


def test_open_connections_are_sorted_searched_and_cut(dash: Dash) -> None:
    dash.client("beta").send(b"PUB a 1\r\nx\r\n")
    gamma = dash.client("gamma")

    assert names(dash.view("connections")) == ["tester", "beta", "gamma"]
    assert names(dash.view("connections?sort=-msgs_from&limit=1")) == ["beta"]
    assert names(dash.view("connections?search=GAM")) == ["gamma"]
    assert names(dash.view(f"connections?search={gamma.session.cid}")) == ["gamma"]
    page = dash.view("connections?search=nobody")
    assert (page["total"], page["of"]) == (0, 3)


def test_closed_connections_have_the_reason_and_its_meaning(dash: Dash) -> None:
    dash.client("left").session.close("Client Closed")
    dash.client("bad").send(b"nonsense\r\n")

    rows = dash.view("connections?closed=true")["connections"]

    assert [row.get("name") for row in rows] == ["bad", "left"]
    assert (rows[1]["reason"], rows[1]["text"]) == ("Client Closed", "The client closed the connection.")
    assert names(dash.view("connections?closed=true&search=client+closed")) == ["left"]


def test_one_connection_has_its_first_subscriptions(dash: Dash) -> None:
    client = dash.client("many")
    for number in range(250):
        client.send(b"SUB s.%d q %d\r\n" % (number, number))

    found = dash.view(f"connection?cid={client.session.cid}")

    assert (found["connection"]["name"], found["connection"]["subscriptions"]) == ("many", 250)
    assert len(found["subscriptions"]) == 200
    assert found["subscriptions"][0]["subject"] == "s.0"


def test_a_connection_that_is_not_there_is_refused(dash: Dash) -> None:
    assert dash.refusal("connection?cid=999") == "there is no open connection with cid 999"
    assert dash.refusal(f"connection?cid={1 << 64}").startswith("Error decoding uint64 for 'cid'")
