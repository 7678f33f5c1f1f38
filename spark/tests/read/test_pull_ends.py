"""The end of a read by consumer, and cases without a consumer: lagging replicas, work queues."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from spark.tests.conftest import Filler, arrow_or_skip
from spark.tests.support.proxy import CuttingProxy
from tests.conformance.harness.process import ServerProcess

arrow_or_skip()

from pyjs_spark.errors import OptionError
from pyjs_spark.nats.client import Client
from pyjs_spark.nats.settings import ConnectSettings
from pyjs_spark.read.pull import ReadRange, read_range


def seqs_of(client: Client, what: ReadRange) -> list[int]:
    return [seq for batch in read_range(client, what) for seq in batch.column("seq").to_pylist()]


@pytest.mark.parametrize("fetch_batch", [1, 3])
@pytest.mark.parametrize("subjects", [(), ("*.1",), ("*.0", "*.2")])
def test_a_consumer_beside_a_replica_that_lags_behind_does_not_end_the_read(
    filler: Filler, server: ServerProcess, fetch_batch: int, subjects: tuple[str, ...]
) -> None:
    created = filler.create()
    filler.fill(9)
    filler.delete(9)
    # The consumer has nothing pending after its replica's last message, but the leader has more.
    proxy = CuttingProxy(server.port, [], said=nothing_pending)
    client = Client(ConnectSettings((f"127.0.0.1:{proxy.port}",)))
    what = ReadRange(filler.name, 1, 10, subjects, created=created, fetch_batch=fetch_batch)

    found = seqs_of(client, what)
    client.close()
    proxy.close()

    assert found == [seq for seq in range(1, 9) if not subjects or f"*.{seq % 3}" in subjects]


def nothing_pending(data: bytes) -> bytes:
    """Return a server's bytes with the pending count set to 0."""
    data = re.sub(rb'"num_pending":\d+', lambda found: b'"num_pending":0'.ljust(len(found[0])), data)
    return re.sub(rb"(\$JS\.ACK\.\S+\.)\d+( \d+\r\n)", rb"\g<1>0\2", data)


def test_a_user_that_may_not_get_messages_reads_as_far_as_the_consumer(
    start_peer: Callable[[str], ServerProcess], caplog: pytest.LogCaptureFixture
) -> None:
    peer = start_peer(
        'jetstream: {store_dir: "<<store>>"}\nno_auth_user: all\nauthorization: {users: [{user: all, password: a}, '
        '{user: some, password: s, permissions: {publish: {deny: "$JS.API.STREAM.MSG.GET.>"}}}]}'
    )
    filler = Filler(peer.port, "TAIL")
    filler.create()
    filler.fill(5)
    filler.delete(5)
    client = Client(ConnectSettings((f"127.0.0.1:{peer.port}",), user="some", password="s"))

    with caplog.at_level(logging.WARNING, "pyjs_spark"):
        assert seqs_of(client, ReadRange("TAIL", 1, 6)) == [1, 2, 3, 4]

    assert "its end is where the consumer says" in caplog.text
    client.close()
    filler.raw.close()


def test_a_read_that_may_use_nothing_but_a_consumer_says_that_there_is_none(
    filler: Filler, server: ServerProcess
) -> None:
    client = Client(ConnectSettings((f"127.0.0.1:{server.port}",)))
    filler.create(max_consumers=1)
    filler.fill(3)
    config = {"durable_name": "other", "ack_policy": "explicit"}
    filler.api(f"CONSUMER.CREATE.{filler.name}.other", stream_name=filler.name, config=config)
    full = ReadRange(filler.name, 1, 4, mode="consumer")

    with pytest.raises(OptionError, match=r"cannot have one more consumer.*maximum consumers.*readMode=auto"):
        seqs_of(client, full)
    filler.api(f"STREAM.DELETE.{filler.name}")
    filler.create(retention="workqueue")
    filler.fill(3)
    with pytest.raises(OptionError, match=f"the stream {filler.name} is a work queue or interest stream"):
        seqs_of(client, full)
    assert seqs_of(client, replace(full, mode="auto")) == [1, 2, 3]
    client.close()
