import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.support.node import options_with_store
from tests.unit.monitor.conftest import Site, finish

from pyjs.config.options import AccountJetStreamOptions, AccountOptions, UserOptions
from pyjs.testing import RawClient

UNLIMITED = 18446744073709551615


def api(client: RawClient, endpoint: str, **body: Any) -> dict[str, Any]:
    """Call $JS.API.<endpoint> and return the answer."""
    answer = client.request(f"$JS.API.{endpoint}".encode(), orjson.dumps(body) if body else b"")
    loaded: dict[str, Any] = json.loads(answer.payload)
    return loaded


@pytest.fixture
def js(tmp_path: Path) -> Site:
    site = Site(options_with_store(tmp_path))
    site.node.start_jetstream()
    return site


def test_without_jetstream_everything_is_zero(site: Site) -> None:
    answer = site.json("/jsz?consumers=1")

    assert answer["disabled"] is True
    assert answer["config"] == {"max_memory": 0, "max_storage": 0}
    assert (answer["api"]["level"], answer["total"]) == (0, 0)


def test_the_totals_are_the_engines_own(js: Site) -> None:
    client = js.client()
    idle = js.json("/jsz")
    api(client, "STREAM.CREATE.M", name="M", subjects=["m.>"], storage="memory", max_bytes=1000)
    api(client, "STREAM.CREATE.F", name="F", subjects=["f.>"], storage="file", max_bytes=2000)
    api(client, "STREAM.INFO.NOPE")
    for subject in ("m.1", "m.2", "f.1"):
        client.send(f"PUB {subject} 5\r\nhello\r\n".encode())

    busy = js.json("/jsz")

    memory = js.node.jetstream.accounts["$G"].streams["M"].store.bytes
    storage = js.node.jetstream.accounts["$G"].streams["F"].store.bytes
    assert (idle["memory"], idle["storage"], idle["api"]["total"], idle["streams"]) == (0, 0, 0, 0)
    assert (busy["memory"], busy["storage"]) == (memory, storage)
    assert (busy["reserved_memory"], busy["reserved_storage"]) == (1000, 2000)
    assert busy["api"] == {"level": 5, "total": 3, "errors": 1}
    assert (busy["streams"], busy["messages"], busy["bytes"]) == (2, 3, memory + storage)
    assert (busy["accounts"], busy["ha_assets"], busy["total"]) == (1, 0, 1)


def test_details_are_shown_on_demand(js: Site) -> None:
    client = js.client()
    api(client, "STREAM.CREATE.M", name="M", subjects=["m.>"], storage="memory")
    client.send(b"PUB m.1 5\r\nhello\r\n")

    (account,) = js.json("/jsz?accounts=1")["account_details"]
    (stream,) = js.json("/jsz?streams=1")["account_details"][0]["stream_detail"]
    (configured,) = js.json("/jsz?streams=1&config=1")["account_details"][0]["stream_detail"]

    assert (account["name"], account["reserved_memory"], account["api"]["level"]) == ("$G", UNLIMITED, 0)
    assert "stream_detail" not in account
    assert list(stream) == ["name", "created", "cluster", "state"]
    assert stream["cluster"] == {"leader": js.node.server_name}
    assert stream["state"]["messages"] == 1
    assert configured["config"]["subjects"] == ["m.>"]
    assert "account_details" not in js.json("/jsz")


def test_raft_counts_what_this_server_leads(js: Site) -> None:
    api(js.client(), "STREAM.CREATE.M", name="M", subjects=["m.>"], storage="memory")

    assert js.json("/jsz?raft=1")["streams_leader"] == 1
    assert "streams_leader" not in js.json("/jsz")


def test_accounts_are_chosen_and_paged(tmp_path: Path) -> None:
    options = options_with_store(tmp_path)
    for name in ("A", "B", "C"):
        options.accounts[name] = AccountOptions(
            name=name,
            users=(UserOptions(name, "pw", account=name),),
            jetstream=AccountJetStreamOptions(max_memory=7),
        )
    site = Site(options)
    site.node.start_jetstream()

    page = site.json("/jsz?accounts=1&offset=1&limit=1")

    assert [account["name"] for account in page["account_details"]] == ["B"]
    assert page["total"] == 3
    assert [account["name"] for account in site.json("/jsz?acc=C")["account_details"]] == ["C"]
    assert site.json("/jsz?acc=C")["account_details"][0]["reserved_memory"] == 7
    for query in ("limit=-1", "limit=-1&offset=1", "offset=-1"):  # as nats-server 2.15.1
        assert len(site.json(f"/jsz?accounts=1&{query}")["account_details"]) == 3
    for query in ("acc=NOPE", "accounts=1&offset=3"):
        assert "account_details" not in site.json(f"/jsz?{query}")


def test_options_in_effect_are_shown(tmp_path: Path) -> None:
    options = options_with_store(tmp_path)
    jetstream = options.jetstream
    jetstream.max_memory, jetstream.max_storage, jetstream.domain = 1, 2, "hub"
    jetstream.sync_always, jetstream.strict = True, False
    jetstream.limits.max_ack_pending, jetstream.limits.max_request_batch = 3, 4
    jetstream.limits.duplicate_window_ns, jetstream.limits.default_max_consumers = 5, -1
    site = Site(options)
    site.node.start_jetstream()

    answer = site.json("/jsz")

    assert answer["config"] == {
        "max_memory": 1, "max_storage": 2, "store_dir": str(tmp_path), "sync_interval": 1_000_000_000,
        "sync_always": True, "domain": "hub",
    }  # fmt: skip
    assert answer["limits"] == {
        "max_request_batch": 4, "max_ack_pending": 3, "max_duplicate_window": 5, "default_max_consumers": -1,
    }  # fmt: skip
    assert site.json("/varz")["jetstream"]["config"] == answer["config"]
    assert site.json("/varz")["jetstream"]["limits"] == answer["limits"]


@pytest.mark.parametrize(
    "name",
    [
        "accounts",
        "streams",
        "consumers",
        "direct-consumers",
        "config",
        "leader-only",
        "raft",
        "stream-leader-only",
    ],
)
def test_every_switch_is_a_boolean(site: Site, name: str) -> None:
    assert site.refused(f"/jsz?{name}=zz").startswith(f"Error decoding boolean for '{name}': ")


def test_health_names_a_missing_account_stream_or_consumer(js: Site) -> None:
    api(js.client(), "STREAM.CREATE.M", name="M", subjects=["m.>"], storage="memory")

    assert js.json("/healthz?account=$G&stream=M") == {"status": "ok"}
    assert js.json("/healthz?js-enabled-only=1&account=NOPE") == {"status": "ok"}
    assert js.json("/healthz?account=NOPE", 404)["error"] == 'JetStream account "NOPE" not found'
    missing = 'JetStream stream "X" not found on account "$G"'
    assert js.json("/healthz?account=$G&stream=X", 404) == {"status": "unavailable", "error": missing}
    detail = js.json("/healthz?account=$G&stream=M&consumer=C&details=1", 404)["errors"][0]
    assert (detail["type"], detail["account"], detail["stream"], detail["consumer"]) == (
        "CONSUMER",
        "$G",
        "M",
        "C",
    )


def test_details_are_indented_as_everything_around_them(js: Site) -> None:
    client = js.client()
    api(client, "STREAM.CREATE.M", name="M", subjects=["m.>"], storage="memory")
    for i in range(40):
        config = {"durable_name": f"c{i}", "ack_policy": "explicit", "description": "a\n<b> & \u00e9"}
        api(client, f"CONSUMER.DURABLE.CREATE.M.c{i}", stream_name="M", config=config)

    body = js.ask("/jsz?consumers=1&config=1").body

    whole = orjson.dumps(json.loads(body), option=orjson.OPT_INDENT_2)
    assert body == whole.replace(b"<", b"\\u003c").replace(b">", b"\\u003e").replace(b"&", b"\\u0026")
    assert body.count(b'"durable_name"') == 40


def reopened_after(js: Site, damage: Callable[[Path], None]) -> Site:
    """Publish three messages to stream F, stop, damage its files, and restart."""
    client = js.client()
    api(client, "STREAM.CREATE.F", name="F", subjects=["f.>"], storage="file")
    for payload in (b"alpha", b"bravo", b"gamma"):
        client.send(b"PUB f.1 5\r\n" + payload + b"\r\n")
    js.node.stop()
    damage(Path(js.monitored.options.jetstream.store_dir) / "$G/streams/F")
    again = Site(js.monitored.options)
    again.node.start_jetstream()
    return again


def flip_bravo(stream: Path) -> None:
    segment = stream / "msgs/00000001.seg"
    segment.write_bytes(segment.read_bytes().replace(b"bravo", b"brXvo"))
    (stream / "msgs/00000001.idx").unlink()


def flip_all_configuration(stream: Path) -> None:
    for path in (stream / "meta.a", stream / "meta.b", *stream.glob("msgs/*")):
        path.write_bytes(bytes(byte ^ 1 for byte in path.read_bytes()))


def test_without_damage_nothing_is_said_of_it(js: Site) -> None:
    after = reopened_after(js, lambda stream: None)
    assert not {"lost_msgs", "lost_bytes", "repaired_msgs", "damaged"} & after.json("/jsz").keys()
    assert "lost" not in api(after.client(), "STREAM.INFO.F")["state"]


def test_messages_that_other_replicas_had_are_counted(js: Site) -> None:
    jetstream = js.node.jetstream
    assert jetstream is not None
    jetstream.shared.repaired = 3

    assert js.json("/jsz")["repaired_msgs"] == 3


def test_a_damaged_message_is_lost_in_the_totals_and_in_its_stream(js: Site) -> None:
    after = reopened_after(js, flip_bravo)

    answer = after.json("/jsz?streams=1")

    lost = {"msgs": [2], "bytes": 48}
    assert (answer["lost_msgs"], answer["lost_bytes"]) == (1, 48)
    assert answer["account_details"][0]["stream_detail"][0]["state"]["lost"] == lost
    assert api(after.client(), "STREAM.INFO.F")["state"]["lost"] == lost
    assert api(after.client(), "STREAM.LIST")["streams"][0]["state"]["lost"] == lost


def test_what_is_set_aside_is_named_until_it_is_removed(js: Site) -> None:
    after = reopened_after(js, flip_all_configuration)
    aside = Path(js.monitored.options.jetstream.store_dir) / "$G/streams/.damaged-0-F"

    named = after.json("/jsz")["damaged"]
    shutil.rmtree(aside)

    assert named == [str(aside)]
    assert "damaged" not in after.json("/jsz")


def test_health_names_a_stream_that_could_not_be_recovered_until_it_is_made_again(js: Site) -> None:
    after = reopened_after(js, flip_all_configuration)

    sick = after.json("/healthz", status=503)
    api(after.client(), "STREAM.CREATE.F", name="F", subjects=["f.>"], storage="file")

    assert sick["error"] == "JetStream stream '$G > F' could not be recovered"
    assert after.json("/healthz") == {"status": "ok"}


@pytest.mark.parametrize("page", ["/jsz?streams=1&consumers=1", "/whyz?all=1"])
def test_a_stream_that_is_deleted_during_the_answer_is_no_trouble(js: Site, page: str) -> None:
    client = js.client()
    for at in range(3):
        api(client, "STREAM.CREATE.M", name="M", subjects=["m"], storage="memory")
        client.send(b"PUB m 0\r\n\r\n")
        for number in range(40):
            config = {"durable_name": f"C{number}", "ack_policy": "explicit"}
            api(client, f"CONSUMER.CREATE.M.C{number}", stream_name="M", config=config)

        steps = js.router.answer(page)
        for _ in range(at):
            next(steps)
        api(client, "STREAM.DELETE.M")

        assert finish(steps).status == 200
