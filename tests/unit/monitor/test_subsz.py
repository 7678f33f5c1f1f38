import json

import pytest
from tests.unit.monitor.conftest import Site

from pyjs.monitor.json_text import pretty_json

FIELDS = [
    "server_id", "now", "num_subscriptions", "num_cache", "num_inserts", "num_removes", "num_matches",
    "cache_hit_rate", "max_fanout", "avg_fanout", "total", "offset", "limit",
]  # fmt: skip


def test_the_numbers_count_every_account(two_accounts: Site) -> None:
    a, b = two_accounts.client(user="a"), two_accounts.client(user="b")
    before = two_accounts.json("/subsz")
    a.send(b"SUB foo 1\r\nSUB foo 2\r\nPUB foo 0\r\n\r\nPUB foo 0\r\n\r\nPUB foo 0\r\n\r\n")
    b.send(b"SUB bar 1\r\nUNSUB 1\r\n")

    after = two_accounts.json("/subsz")

    assert list(after) == FIELDS
    changes = {name: after[name] - before[name] for name in FIELDS[2:7]}
    assert changes == {
        "num_subscriptions": 2, "num_cache": 1, "num_inserts": 3, "num_removes": 1, "num_matches": 3,
    }  # fmt: skip
    assert after["max_fanout"] == 2
    assert 0 < after["cache_hit_rate"] < 1


def test_subscriptions_are_listed_on_demand(site: Site) -> None:
    client = site.client()
    client.send(b"SUB foo.* q 1\r\nSUB bar 2\r\n")

    answer = site.json("/subsz?subs=1&acc=$G&test=foo.x")

    assert answer["total"] == 1
    assert answer["subscriptions_list"] == [
        {
            "account": "$G", "account_tag": "$G", "subject": "foo.*", "qgroup": "q", "sid": "1", "msgs": 0,
            "cid": client.session.cid,
        }
    ]  # fmt: skip


def test_the_list_is_paged(site: Site) -> None:
    site.client().send(b"SUB a 1\r\nSUB b 2\r\nSUB c 3\r\n")

    page = site.json("/subsz?subs=1&offset=1&limit=1")

    assert (page["total"], page["offset"], page["limit"]) == (3, 1, 1)
    assert len(page["subscriptions_list"]) == 1
    assert "subscriptions_list" not in site.json("/subsz?subs=1&offset=9")


def test_a_test_subject_must_be_literal(site: Site) -> None:
    text = "invalid test subject, must be valid publish subject: foo.*"

    assert site.refused("/subsz?test=foo.*") == text


@pytest.mark.parametrize("query", ["subs=1", "subs=1&test=s.5", "subs=1&limit=5000"])
def test_a_long_list_is_walked_in_steps(site: Site, query: str) -> None:
    site.client().send(b"".join(b"SUB s.%d %d\r\n" % (number, number + 2) for number in range(5_000)))

    assert site.steps_of(f"/subsz?{query}") > 5
    assert site.steps_of("/subsz") == 1


def test_a_long_list_is_never_made_in_one_piece(site: Site) -> None:
    site.client().send(b"".join(b"SUB s.%d %d\r\n" % (number, number + 2) for number in range(5_000)))

    answer = site.ask("/subsz?subs=1&limit=5000")
    text = answer.body + b"".join(answer.rest)

    assert max(map(len, answer.rest)) < len(text) / 4
    assert text == pretty_json(json.loads(text))  # the joined pieces equal the page encoded at once
    assert [each["subject"] for each in json.loads(text)["subscriptions_list"]] == [
        f"s.{n}" for n in range(5_000)
    ]
