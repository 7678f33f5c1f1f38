"""The options of one worker, and options that cannot be combined with several workers."""

from __future__ import annotations

import pytest
from tests.unit.config.effects import TRUSTED

from pyjs.config.errors import ConfigError
from pyjs.config.load import load_options
from pyjs.config.options import Options, Worker
from pyjs.config.ports.workers import place_worker
from pyjs.jetstream.api.subscriptions import ANSWERED
from pyjs.jetstream.api.table import ENDPOINTS
from pyjs.server.system.resources import effective_options
from pyjs.subjects.tokens import subject_matches


def loaded(text: str) -> Options:
    return load_options("server.conf", lambda path: text, {}, {})


def test_a_worker_leaves_files_log_and_pages_to_its_server() -> None:
    text = (
        "workers: 3, server_name: S, pid_file: p, log_file: l, ports_file_dir: d, http: 8222, jetstream: true"
    )
    options = loaded(text)
    placed = place_worker(options, Worker(2, 3, "N", 4333, directory="/dir"))
    assert (placed.server_name, placed.port) == ("S-2", 4333)
    assert placed.pid_file == placed.log.log_file == placed.ports_file_dir == ""
    assert placed.monitoring.http_port == 0
    assert placed.cluster.host == "/dir/2"
    assert [route.host for route in placed.cluster.routes] == ["/dir/1"]
    assert placed.cluster.local
    assert (options.pid_file, options.monitoring.http_port, options.cluster.port) == ("p", 8222, 0)


def test_only_the_first_worker_has_the_streams() -> None:
    options = loaded("workers: 2, jetstream: true")
    assert options.runs_jetstream
    runs = [place_worker(options, Worker(number, 2, "N", 1)).runs_jetstream for number in (1, 2)]
    assert runs == [True, False]


def test_all_workers_have_streams_if_these_are_spread() -> None:
    options = loaded('workers: 2, jetstream { store_dir: "/s", spread_workers: true }')
    workers = [place_worker(options, Worker(number, 2, "N", 1)) for number in (1, 2)]
    assert [each.runs_jetstream for each in workers] == [True, True]
    stores = [effective_options(each).jetstream.store_dir for each in workers]
    assert stores == ["/s/jetstream", "/s/jetstream/.workers/2"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("workers: 0", '"workers" is 0, the smallest is 1'),
        (
            "workers: 2, cluster { port: 6222 }",
            "workers in a cluster of several servers are not supported yet",
        ),
        ("workers: 2, max_payload: 32MB", "is more than a quarter of max_pending"),
        (
            f"workers: 2\n{TRUSTED}\njetstream {{ spread_workers: true }}",
            "spread_workers with accounts of an operator is not supported yet",
        ),
    ],
)
def test_what_workers_cannot_be_used_with_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        loaded(text)
    assert said in str(refused.value)


def test_other_workers_are_told_of_every_request_that_the_router_answers() -> None:
    for endpoint in ENDPOINTS:
        subject = endpoint.words.encode() + (b"" if endpoint.words == "INFO" else b".S")
        assert any(subject_matches(subject, each) for each in ANSWERED), endpoint.words
    assert not any(subject_matches(b"CONSUMER.MSG.NEXT.S.C", each) for each in ANSWERED)
