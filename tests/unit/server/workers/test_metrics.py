"""/metrics of several workers as one page."""

from __future__ import annotations

from collections.abc import Generator

from prometheus_client.parser import text_string_to_metric_families

from pyjs.server.workers.metrics import combined, server_page

VARZ = {"connections": 3, "cpu": 1.5, "pyjs_workers": [{"number": 1, "state": "ready", "restarts": 2}]}
PAGES = {
    "varz": VARZ,
    "subsz": {"num_subscriptions": 7},
    "routez": {"num_routes": 0},
    "healthz": {"status": "ok"},
}
ONE = b"""# HELP gnatsd_varz_connections connections
# TYPE gnatsd_varz_connections gauge
gnatsd_varz_connections{server_id="W"} 1
# HELP gnatsd_connz_in_msgs in_msgs
# TYPE gnatsd_connz_in_msgs counter
gnatsd_connz_in_msgs{server_id="W"} 40
# HELP jetstream_stream_total_messages The messages.
# TYPE jetstream_stream_total_messages gauge
jetstream_stream_total_messages{stream_name="a \\"b } 7"} 5
# HELP jetstream_account_max_memory The limit.
# TYPE jetstream_account_max_memory gauge
jetstream_account_max_memory{account="A"} 100
# HELP pyjs_loop_busy_seconds_total The time.
# TYPE pyjs_loop_busy_seconds_total counter
pyjs_loop_busy_seconds_total{server_id="W"} 0.25
"""
TWO = ONE.replace(b" 40", b" 2").replace(b"a \\", b"c \\").replace(b" 100", b" 90")


def ended(steps: Generator[None, None, list[bytes]]) -> str:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return b"".join(end.value).decode()


def samples(prefix: str = "", *texts: tuple[int, bytes]) -> dict[tuple[str, str], float]:
    page = server_page("W", prefix, PAGES, 200)
    families = list(text_string_to_metric_families(ended(combined(page, prefix, texts))))
    assert len({each.name for each in families}) == len(families)
    return {
        (sample.name, ",".join(sample.labels.values())): sample.value
        for family in families
        for sample in family.samples
    }


def test_counters_are_added_streams_are_listed_and_loops_are_labelled() -> None:
    found = samples("", (1, ONE), (3, TWO))

    assert found[("gnatsd_connz_in_msgs_total", "W")] == 42
    assert found[("jetstream_stream_total_messages", 'a "b } 7')] == 5
    assert found[("jetstream_stream_total_messages", 'c "b } 7')] == 5
    assert found[("jetstream_account_max_memory", "A")] == 100
    assert found[("pyjs_loop_busy_seconds_total", "W,1")] == found[("pyjs_loop_busy_seconds_total", "W,3")]


def test_values_of_combined_pages_replace_those_of_the_workers() -> None:
    found = samples("", (1, ONE), (2, ONE))

    assert found[("gnatsd_varz_connections", "W")] == 3
    assert found[("gnatsd_subsz_num_subscriptions", "W")] == 7
    assert found[("pyjs_worker_restarts_total", "W,1")] == 2
    assert found[("pyjs_worker_ready", "W,1")] == 1


def test_the_names_have_the_wanted_prefix() -> None:
    text = ONE.replace(b"gnatsd", b"nats").replace(b"jetstream", b"nats")
    found = samples("nats", (1, text), (2, text))

    assert found[("nats_connz_in_msgs_total", "W")] == 80
    assert found[("nats_varz_connections", "W")] == 3


def test_a_server_without_workers_that_answer_has_the_samples_of_its_pages() -> None:
    assert ("gnatsd_healthz_status", "W") in samples()


def test_a_label_with_a_carriage_return_stays_in_one_sample() -> None:
    text = ONE.replace(b"a \\", b"# TYPE\r# HELP a\r \\")
    found = samples("", (1, text), (2, text))

    assert found[("jetstream_stream_total_messages", '# TYPE\r# HELP a\r "b } 7')] == 5
