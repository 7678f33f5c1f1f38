"""/metrics: the metrics for Prometheus, with the names of the official exporter."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.unit.monitor.conftest import Site

from pyjs.config.options import AccountJetStreamOptions, AccountOptions, Options, UserOptions
from pyjs.monitor.own.exposition import Family, Page, labels
from pyjs.monitor.state import LoopStats

# Made by prometheus-nats-exporter (2fdbfd7e) of nats-server 2.15.1 with a stream, a mirror, a source and a consumer:
# the names of metrics, each with the names of its labels.
EXPORTER = Path(__file__).with_name("exporter_names.txt")
# The metrics in queries of the official Grafana dashboards: walkthrough/grafana-{nats,jetstream}-dash.json.
DASHBOARDS = """
gnatsd_varz_connections gnatsd_varz_cpu gnatsd_varz_in_bytes gnatsd_varz_in_msgs gnatsd_varz_mem gnatsd_varz_out_bytes
gnatsd_varz_out_msgs gnatsd_varz_slow_consumers gnatsd_varz_subscriptions gnatsd_varz_jetstream_config_max_memory
gnatsd_varz_jetstream_config_max_storage gnatsd_varz_jetstream_stats_memory gnatsd_varz_jetstream_stats_storage
jetstream_consumer_delivered_consumer_seq jetstream_consumer_num_ack_pending jetstream_consumer_num_pending
jetstream_server_total_consumers jetstream_server_total_streams jetstream_stream_last_seq jetstream_stream_total_bytes
jetstream_stream_total_messages
""".split()
SECOND_NS = 1_000_000_000
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """Return a server with a stream, a mirror, a stream with a source, and a consumer with one delivery of three."""
    options = Options()
    options.jetstream.enabled = True
    options.jetstream.store_dir = str(tmp_path)
    made = Site(options)
    made.node.start_jetstream()
    client = made.client()

    def ask(subject: str, body: object) -> None:
        answer = client.request(subject.encode(), json.dumps(body).encode())
        assert b'"error"' not in answer.payload, answer.payload

    ask("$JS.API.STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "storage": "memory"})
    ask("$JS.API.STREAM.CREATE.M", {"name": "M", "mirror": {"name": "S"}, "storage": "memory"})
    ask("$JS.API.STREAM.CREATE.X", {"name": "X", "sources": [{"name": "S"}], "storage": "memory"})
    config = {"durable_name": "C", "ack_policy": "explicit", "description": 'a "test"\n\\'}
    ask("$JS.API.CONSUMER.CREATE.S.C", {"stream_name": "S", "config": config})
    for _ in range(3):
        client.request(b"s", b"x")
    client.send(b"SUB in 1\r\nPUB $JS.API.CONSUMER.MSG.NEXT.S.C in 1\r\n1\r\n")
    ack = client.frames()[-1].reply
    client.send(b"PUB %b 4\r\n+ACK\r\nPUB $JS.API.CONSUMER.MSG.NEXT.S.C in 1\r\n1\r\n" % ack)
    return made


def scrape(site: Site, query: str = "") -> Samples:
    answer = site.ask(f"/metrics{query}")
    assert answer.status == 200, answer.body
    assert dict(answer.headers)["Content-Type"].startswith("text/plain; version=0.0.4")
    text = (answer.body + b"".join(answer.rest)).decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def many_accounts(count: int) -> Options:
    options = Options()
    for number in range(count):
        user = UserOptions(user=f"u{number}", password="pw", account=f"A{number}")
        options.accounts[f"A{number}"] = AccountOptions(name=f"A{number}", users=(user,))
    return options


def value(samples: Samples, name: str, **wanted: str) -> float:
    (found,) = (
        value
        for (each, given), value in samples.items()
        if each == name and wanted.items() <= dict(given).items()
    )
    return found


def test_every_name_and_label_of_the_official_exporter_is_there(site: Site) -> None:
    found = {(name, ",".join(each for each, _ in given)) for name, given in scrape(site, "?connz_detailed=1")}
    wanted = {tuple(line.split(" ")) for line in EXPORTER.read_text().splitlines()}

    missing = sorted(name for name, given in wanted - found)
    # These depend on earlier requests, or on fields that this server does not have.
    assert [each for each in missing if not each.startswith("gnatsd_varz_http_req_stats")] == []


@pytest.mark.parametrize("prefix", ["", "nats"])
def test_the_queries_of_the_official_dashboards_find_their_metrics(site: Site, prefix: str) -> None:
    wanted = set(DASHBOARDS)
    if prefix:
        wanted = {f"{prefix}_{each.partition('_')[2]}" for each in wanted}

    assert wanted <= {name for name, _ in scrape(site, f"?prefix={prefix}")}


def test_the_values_are_those_of_the_consumer(site: Site) -> None:
    site.fixture.clock.advance(7 * SECOND_NS)
    site.fixture.turn()

    samples = scrape(site)
    assert value(samples, "jetstream_consumer_num_pending", consumer_name="C") == 1
    assert value(samples, "jetstream_consumer_num_ack_pending", consumer_name="C") == 1
    assert value(samples, "jetstream_consumer_ack_floor_stream_seq", consumer_name="C") == 1
    assert value(samples, "jetstream_consumer_last_ack_seconds", consumer_name="C") == pytest.approx(
        7, abs=0.1
    )
    assert value(samples, "pyjs_consumer_lag_seconds", consumer_name="C") == pytest.approx(7, abs=0.1)
    assert value(samples, "pyjs_consumer_oldest_unacked_seconds", consumer_name="C") == pytest.approx(
        7, abs=0.1
    )
    assert value(samples, "gnatsd_healthz_status") == 0


def test_labels_with_quotes_and_lines_are_escaped(site: Site) -> None:
    samples = scrape(site)

    assert value(samples, "jetstream_consumer_num_pending", consumer_desc='a "test"\n\\') == 1


def test_a_long_description_is_cut(site: Site) -> None:
    config = {"durable_name": "L", "description": "d" * 4000}
    body = json.dumps({"stream_name": "S", "config": config}).encode()
    site.client().request(b"$JS.API.CONSUMER.CREATE.S.L", body)

    found = [dict(given) for name, given in scrape(site) if name == "jetstream_consumer_num_pending"]
    assert {each["consumer_name"]: each["consumer_desc"] for each in found}["L"] == "d" * 128


@pytest.mark.parametrize("query", ["?connz_detailed=1", "?connz_detailed=1&prefix=nats"])
def test_no_sample_is_there_twice(site: Site, query: str) -> None:
    sources = [{"name": "S", "filter_subject": each} for each in ("s", "s.a")]
    body = json.dumps({"name": "Y", "sources": sources, "storage": "memory"}).encode()
    assert b'"error"' not in site.client().request(b"$JS.API.STREAM.CREATE.Y", body).payload
    site.client()

    answer = site.ask(f"/metrics{query}")
    lines = (answer.body + b"".join(answer.rest)).decode().splitlines()
    samples = [re.sub(r" [^ ]*$", "", line) for line in lines if not line.startswith("#")]
    types = [line.split(" ")[2] for line in lines if line.startswith("# TYPE")]
    assert len(samples) == len(set(samples))
    assert len(types) == len(set(types))
    assert sum("stream_source_lag" in each and 'stream_name="Y"' in each for each in samples) == 1


def test_the_counters_of_each_account_are_those_of_accstatz() -> None:
    site = Site(many_accounts(3))
    site.client(user="u1").send(b"SUB a 1\r\nPUB a 2\r\nab\r\n")
    site.client(user="u1").session.close("Client Closed")
    site.client(user="u2").send(b"PUB a 1\r\na\r\n")

    samples = scrape(site)
    for row in site.json("/accstatz?unused=1")["account_statz"]:
        for name, wanted in (
            ("current_connections", row["conns"]),
            ("subscriptions", row["num_subscriptions"]),
            ("sent_messages", row["sent"]["msgs"]),
            ("received_bytes", row["received"]["bytes"]),
        ):
            assert value(samples, f"gnatsd_accstatz_{name}", account=row["acc"]) == wanted


def test_many_accounts_are_read_in_steps(tmp_path: Path) -> None:
    options = many_accounts(200)
    for name, account in options.accounts.items():
        options.accounts[name] = replace(account, jetstream=AccountJetStreamOptions())
    options.jetstream.enabled = True
    options.jetstream.store_dir = str(tmp_path)
    site = Site(options)
    few = site.steps_of("/metrics")
    site.node.start_jetstream()

    assert site.steps_of("/metrics") > few + 2 * 200 // 32


def test_each_search_of_a_consumer_with_filters_is_a_step_of_its_own(site: Site) -> None:
    client = site.client()
    client.send(b"PUB s 1\r\nx\r\n" * 1_100)
    before = site.steps_of("/metrics")
    for number in range(8):
        config = {"durable_name": f"F{number}", "filter_subject": "s"}
        body = json.dumps({"stream_name": "S", "config": config}).encode()
        client.request(f"$JS.API.CONSUMER.CREATE.S.F{number}".encode(), body)

    assert site.steps_of("/metrics") == before + 8


def test_the_turns_of_the_loop_are_counted(site: Site) -> None:
    site.monitored.take_loop = lambda: LoopStats(100, 5 * SECOND_NS, 3, SECOND_NS // 2)

    samples = scrape(site)
    assert value(samples, "pyjs_loop_turns_total") == 100
    assert value(samples, "pyjs_loop_busy_seconds_total") == 5
    assert value(samples, "pyjs_loop_overruns_total") == 3
    assert value(samples, "pyjs_loop_longest_turn_seconds") == 0.5


def test_a_server_without_jetstream_says_so() -> None:
    assert value(scrape(Site(Options())), "jetstream_server_jetstream_disabled") == 1


def test_a_prefix_that_is_no_name_is_refused(site: Site) -> None:
    assert site.refused("/metrics?prefix=a-b").startswith("prefix: letters, digits and underscores")


def test_many_samples_are_written_in_steps() -> None:
    page = Page()
    rows = page.rows((Family("a", "gauge", "first"), Family("b", "gauge", "second")))
    rows += [(labels(number=str(number)), (number, -number)) for number in range(5_000)]
    steps, pieces = page.pieces(), []
    count = 0
    while True:
        try:
            next(steps)
            count += 1
        except StopIteration as done:
            pieces = done.value
            break

    assert count == 20
    lines = b"".join(pieces).decode().splitlines()
    assert lines[:3] == ["# HELP a first", "# TYPE a gauge", 'a{number="0"} 0']
    assert len(lines) == 10_004
