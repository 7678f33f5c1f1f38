"""Windowed publishing over connections that end, with servers that refuse, and with invalid answers."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from types import ModuleType

import pytest
from spark.tests.conftest import Filler, Start
from spark.tests.decode.test_frames import cells
from spark.tests.support.proxy import CuttingProxy
from spark.tests.support.scripted import ScriptedServer
from tests.conformance.harness.process import ServerProcess

from pyjs_spark.decode import frames
from pyjs_spark.decode.frames import Columns, Frames, Framing
from pyjs_spark.errors import AccessDenied, NotAcknowledged, ProtocolError, PublishFailed
from pyjs_spark.nats import retry
from pyjs_spark.nats.client import Client
from pyjs_spark.nats.settings import ConnectSettings
from pyjs_spark.options.writing import SinkOptions
from pyjs_spark.write import publish
from pyjs_spark.write.publish import Publisher, publish_one

_frames = pytest.importorskip("pyjs_spark_fast.frames")


@pytest.fixture(autouse=True, params=[frames, _frames], ids=["plain", "compiled"])
def acks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Reading acknowledgements with each of the two decoders."""
    module: ModuleType = request.param
    monkeypatch.setattr(publish, "Acks", module.Acks)
    monkeypatch.setattr(retry, "FIRST_PAUSE_S", 0.001)
    return module


class Outlet:
    """A publisher, and the rows to send."""

    def __init__(self, port: int, filler: Filler, *, retries: int = 5, ack_timeout_s: float = 20.0) -> None:
        self.client = Client(ConnectSettings((f"nats://127.0.0.1:{port}",), timeout_s=5.0))
        self.filler = filler
        options = SinkOptions(filler.name, max_in_flight=100, ack_timeout_s=ack_timeout_s, retries=retries)
        self.publisher = Publisher(self.client, options)
        self.mark = f"pyjs:{filler.name}:0:0:".encode()

    def frames(self, low: int, high: int, subject: bytes = b"") -> Frames:
        how = Framing(self.publisher.inbox, subject or self.filler.subject + b".x", self.mark)
        columns = Columns(high - low, cells([b"%d" % row for row in range(low, high)]))
        return frames.frame_rows(columns, 0, high - low, how, low)

    def send(self, low: int, high: int, size: int = 25) -> None:
        for at in range(low, high, size):
            self.publisher.publish(self.frames(at, min(at + size, high)))
        self.publisher.flush()

    def stored(self) -> list[int]:
        info = self.filler.raw.api(f"STREAM.INFO.{self.filler.name}")
        found = []
        for seq in range(1, info["state"]["last_seq"] + 1):
            message = self.filler.raw.api(f"STREAM.MSG.GET.{self.filler.name}", seq=seq)["message"]
            found.append(int(base64.b64decode(message["data"])))
        return found


MakeOutlet = Callable[..., Outlet]


@pytest.fixture
def outlet(filler: Filler, server: ServerProcess) -> Iterator[MakeOutlet]:
    filler.create()
    made: list[Outlet] = []

    def make(port: int = 0, **options: float) -> Outlet:
        made.append(Outlet(port or server.port, filler, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for each in made:
        each.client.close()


def test_rows_are_stored_in_order_and_counted(outlet: MakeOutlet) -> None:
    out = outlet()
    out.send(0, 350)

    assert out.stored() == list(range(350))
    assert (out.publisher.last_seq, out.publisher.duplicates) == (350, 0)


def test_no_more_bytes_are_under_way_than_a_worker_can_keep(
    outlet: MakeOutlet, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = outlet()
    largest = len(out.frames(0, 25).data) + 200
    monkeypatch.setattr(publish, "SIZE_MAX", 2 * largest)
    seen = []
    for at in range(0, 500, 25):
        out.publisher.publish(out.frames(at, at + 25))
        seen.append(out.publisher._size)
    out.publisher.flush()

    assert (max(seen) <= 2 * largest, out.publisher._size) == (True, 0)
    assert out.stored() == list(range(500))


def test_ids_that_were_stored_are_duplicates(outlet: MakeOutlet) -> None:
    outlet().send(0, 30)
    out = outlet()
    out.send(0, 50)

    assert sorted(out.stored()) == list(range(50))
    assert (out.publisher.last_seq, out.publisher.duplicates) == (50, 30)


@pytest.mark.parametrize("cut", [5500, 6000, 7001, 9999, 12345])
def test_after_a_lost_connection_only_what_is_missing_is_stored(
    outlet: MakeOutlet, server: ServerProcess, cut: int
) -> None:
    proxy = CuttingProxy(server.port, [cut, cut, cut])
    out = outlet(proxy.port)
    out.send(0, 500)

    assert sorted(out.stored()) == list(range(500))
    assert proxy.connections > 1
    out.client.close()
    proxy.close()


def test_what_the_stream_has_is_asked_for_after_a_lost_connection(
    outlet: MakeOutlet, server: ServerProcess
) -> None:
    proxy = CuttingProxy(server.port, [6000])
    out = outlet(proxy.port)
    asked = []

    def stored(under_way: Iterable[Frames]) -> list[int]:
        asked.append(max(each.numbers[-1] for each in under_way))
        return out.stored()

    out.publisher.stored = stored
    out.send(0, 200)

    assert len(asked) == 1
    assert asked[0] >= max(out.stored()[:25])
    assert (sorted(out.stored()), out.publisher.duplicates) == (list(range(200)), 0)
    out.client.close()
    proxy.close()


def test_acknowledgements_that_came_while_nobody_read_are_taken_first(
    outlet: MakeOutlet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish, "CATCH_UP_S", 0.0)  # as if the rows had arrived slowly
    out = outlet()
    out.publisher.publish(out.frames(0, 25))
    while out.filler.raw.api(f"STREAM.INFO.{out.filler.name}")["state"]["last_seq"] < 25:
        pass
    out.client._stream._socket.shutdown(socket.SHUT_WR)  # and the server had closed the connection
    out.send(25, 50)

    assert out.stored() == list(range(50))
    assert out.publisher.duplicates == 0


def test_a_server_that_does_not_come_back_ends_it(outlet: MakeOutlet, server: ServerProcess) -> None:
    proxy = CuttingProxy(server.port, [5500])
    out = outlet(proxy.port, retries=2)
    out.client.settings = ConnectSettings(("nats://127.0.0.1:1",))

    with pytest.raises(
        NotAcknowledged, match=r"\d+ messages are not acknowledged, after 2 retries \(option retries\)"
    ):
        out.send(0, 500)
    out.client.close()
    proxy.close()


def test_no_acknowledgement_in_time_is_a_lost_connection(outlet: MakeOutlet, filler: Filler) -> None:
    out = outlet(ack_timeout_s=0.05, retries=1)
    filler.raw.api(f"STREAM.UPDATE.{filler.name}", **_config(filler, no_ack=True))

    with pytest.raises(PublishFailed, match=r"no acknowledgement for 0.05 s \(option ackTimeout\)"):
        out.send(0, 10)


def test_a_stream_that_does_not_take_a_row_is_told_by_its_row(outlet: MakeOutlet, filler: Filler) -> None:
    filler.raw.api(f"STREAM.UPDATE.{filler.name}", **_config(filler, max_msg_size=100))  # including headers
    out = outlet()
    out.mark = b"pyjs:" + b"x" * 100 + b":"

    with pytest.raises(
        PublishFailed, match=r"does not take row 0: message size exceeds .*raise max_msg_size"
    ):
        out.send(0, 10)


def test_a_stream_that_is_gone_is_waited_for(outlet: MakeOutlet, filler: Filler) -> None:
    out = outlet()
    out.send(0, 10)
    filler.api(f"STREAM.DELETE.{filler.name}")
    pauses = []

    def create_again(seconds: float) -> None:
        pauses.append(seconds)
        filler.create()

    publish.time.sleep, sleep = create_again, publish.time.sleep
    try:
        out.send(10, 50)
    finally:
        publish.time.sleep = sleep

    assert sorted(out.stored()) == list(range(10, 50))
    assert len(pauses) == 1


def test_a_stream_that_stays_away_ends_it(outlet: MakeOutlet, filler: Filler) -> None:
    out = outlet(retries=2)
    filler.api(f"STREAM.DELETE.{filler.name}")

    with pytest.raises(
        PublishFailed, match=r"10 messages are not acknowledged.*no stream takes its subject any more"
    ):
        out.send(0, 10)
    filler.create()


def test_a_row_that_another_stream_stored_is_told(outlet: MakeOutlet, filler: Filler) -> None:
    out = outlet()
    out.publisher._options = replace(out.publisher._options, stream="ELSEWHERE")

    with pytest.raises(PublishFailed, match=f"row 0 was stored by stream {filler.name} and not by ELSEWHERE"):
        out.send(0, 10)


def test_no_frames_are_no_publish(outlet: MakeOutlet) -> None:
    out = outlet()
    out.publisher.publish(out.frames(0, 0))
    out.publisher.flush()

    assert out.stored() == []


@pytest.mark.parametrize(
    ("payload", "said"),
    [(b"what?", "a publish was answered with b'what[?]'"), (b'{"seq":"x"}', "a publish was answered with")],
)
def test_an_answer_that_is_none_is_told(payload: bytes, said: str, filler: Filler) -> None:
    said_by_server = b"MSG {inbox}0 2 %d\r\n%b\r\n" % (len(payload), payload)
    fake = ScriptedServer(b"SUB _INBOX", b"")
    out = Outlet(fake.port, filler)
    _answer(out, said_by_server.replace(b"{inbox}", out.publisher.inbox))

    with pytest.raises(ProtocolError, match=said):
        out.publisher._hear()
    out.client.close()
    fake.close()


def test_a_message_on_another_subject_is_told(filler: Filler) -> None:
    fake = ScriptedServer(b"SUB _INBOX", b"")
    out = Outlet(fake.port, filler)
    _answer(out, b"MSG elsewhere 2 0\r\n\r\n")

    with pytest.raises(ProtocolError, match="a message came on b'elsewhere'"):
        out.publisher._hear()
    out.client.close()
    fake.close()


def _answer(out: Outlet, said: bytes) -> None:
    """Let the publisher wait for row 0, with `said` as the bytes of its connection."""
    out.publisher._listen()
    out.publisher._acks.add([0])
    out.publisher._acks.enough = 0
    stream = out.client._stream
    stream.data[: len(said)] = said
    stream.start, stream.end = 0, len(said)


def _config(filler: Filler, **changes: object) -> dict[str, object]:
    return {"name": filler.name, "subjects": [f"{filler.subject.decode()}.>"], "storage": "memory", **changes}


def test_permissions_are_told(start_peer: Start) -> None:
    users = (
        'authorization: {users: [{user: a, password: a, permissions: {publish: ["$JS.>", "_INBOX.>"]}},'
        " {user: root, password: root}]}\n"
    )
    server = start_peer('jetstream: {store_dir: "<<store>>"}\n' + users)
    root = Client(ConnectSettings((f"nats://root:root@127.0.0.1:{server.port}",)))
    root.api("STREAM.CREATE.P", {"name": "P", "subjects": ["p.>"]})
    client = Client(ConnectSettings((f"nats://a:a@127.0.0.1:{server.port}",)))
    publisher = Publisher(client, SinkOptions("P", max_in_flight=10, ack_timeout_s=5.0, retries=1))
    how = Framing(publisher.inbox, b"p.x")

    publisher.publish(frames.frame_rows(Columns(1, cells([b"1"])), 0, 1, how, 0))
    with pytest.raises(AccessDenied, match=r'Permissions Violation for Publish to "p.x"'):
        publisher.flush()
    client.close()
    root.close()


# -- one message --------------------------------------------------------------------------------------------------


def test_one_message_is_published_over_a_lost_connection(outlet: MakeOutlet) -> None:
    out = outlet()
    out.client.close()

    said = publish_one(out.client, out.filler.subject.decode() + ".x", b"7", b"", 3)

    assert (said.seq, out.stored()) == (1, [7])


def test_one_message_that_nobody_takes_is_told(server: ServerProcess) -> None:
    client = Client(ConnectSettings((f"nats://127.0.0.1:{server.port}",)))

    with pytest.raises(PublishFailed, match=r"nowhere.x is not acknowledged, after 1 retries"):
        publish_one(client, "nowhere.x", b"7", b"", 1)
    client.close()


def test_one_message_that_is_refused_is_the_callers_business(outlet: MakeOutlet) -> None:
    out = outlet()
    headers = b"NATS/1.0\r\nNats-Expected-Last-Sequence: 5\r\n\r\n"

    said = publish_one(out.client, out.filler.subject.decode() + ".x", b"7", headers, 1)

    assert (said.err_code, json.dumps(said.text)) == (10071, '"wrong last sequence: 0"')
