"""Shadows: how subscriptions of an importing account appear in the exporting account."""

from __future__ import annotations

import pytest

from pyjs.base.rng import SeededRng
from pyjs.config.load import load_options
from pyjs.core.exchange.shadow import Shadow
from pyjs.core.exchange.stream_imports import narrowed
from pyjs.subjects.rewrite import Rewrite
from pyjs.subjects.sublist import Subscription
from pyjs.subjects.transform import SubjectTransform
from pyjs.testing import CONNECT, RawClient, VirtualNode

CONFIG = """
accounts {
    A { users: [{user: a, password: pw}], exports: [{stream: "s.>"}, {stream: one}, {stream: "two.*.*"}] }
    B {
        users: [
            {user: b, password: pw}
            {user: limited, password: pw, permissions: {subscribe: {deny: "in.s.secret"}}}
        ]
        imports: [
            {stream: {account: A, subject: "s.>"}, prefix: in}
            {stream: {account: A, subject: one}, to: "fixed.here"}
            {stream: {account: A, subject: "two.*.*"}, to: "two.$2.$1"}
        ]
    }
}
"""


class Scene:
    """A publisher in account A and a subscriber in account B."""

    def __init__(self) -> None:
        self.fixture = VirtualNode(load_options("server.conf", lambda path: CONFIG, {}, {}))
        self.origin, self.client = self.user("a"), self.user("b")

    def user(self, name: str) -> RawClient:
        return self.fixture.client(CONNECT[:-1] + b',"user":"%b","pass":"pw"}' % name.encode())

    def subscribe(self, *subjects: bytes) -> None:
        for sid, subject in enumerate(subjects, 1):
            self.client.send(b"SUB %b %d\r\n" % (subject, sid))

    def publish(self, *subjects: bytes, size: int = 0) -> list[bytes]:
        """Publish in A; return the subjects of the messages that the subscriber in B gets."""
        for subject in subjects:
            self.origin.send(b"PUB %b %d\r\n%b\r\n" % (subject, size, b"x" * size))
        return [frame.subject for frame in self.client.frames()]

    def shadows(self) -> int:
        return len(self.fixture.node.accounts["A"].subs)


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.mark.parametrize(
    ("subscribed", "published", "got"),
    [
        (b"in.s.>", b"s.x", [b"in.s.x"]),
        (b"in.s.*", b"s.x.y", []),
        (b"in.*.x", b"s.x", [b"in.s.x"]),
        (b"in.s.x", b"s.x", [b"in.s.x"]),
        (b"in.s.x", b"s.y", []),
        (b">", b"s.x", [b"in.s.x"]),
        (b"s.>", b"s.x", []),  # the exported subject is not the local one
        (b"fixed.here", b"one", [b"fixed.here"]),
        (b"fixed.*", b"one", [b"fixed.here"]),
        (b"one", b"one", []),
        (b"two.*.*", b"two.a.b", [b"two.b.a"]),
        (b"two.b.*", b"two.a.b", [b"two.b.a"]),
        (b"two.a.*", b"two.a.b", []),
    ],
)
def test_a_message_has_its_local_subject(
    scene: Scene, subscribed: bytes, published: bytes, got: list[bytes]
) -> None:
    scene.subscribe(subscribed)
    assert scene.publish(published) == got


@pytest.mark.parametrize("size", [0, 10, 100_000])
def test_the_payload_and_the_reply_stay(scene: Scene, size: int) -> None:
    scene.subscribe(b"in.s.>")
    scene.origin.send(b"PUB s.x back %d\r\n%b\r\n" % (size, b"y" * size))
    (frame,) = scene.client.frames()
    assert (frame.reply, frame.payload) == (b"back", b"y" * size)


def test_headers_stay_and_are_stripped_for_a_client_without_them(scene: Scene) -> None:
    plain = scene.fixture.client(b'{"verbose":false,"user":"b","pass":"pw"}')
    plain.send(b"SUB in.s.> 1\r\n")
    scene.subscribe(b"in.s.>")
    scene.origin.send(b"HPUB s.x 18 20\r\nNATS/1.0\r\nA: b\r\n\r\nhi\r\n")
    assert [(frame.headers, frame.payload) for frame in scene.client.frames()] == [
        (b"NATS/1.0\r\nA: b\r\n\r\n", b"hi")
    ]
    assert [(frame.headers, frame.payload) for frame in plain.frames()] == [(b"", b"hi")]


def test_a_shadow_ends_with_its_subscription(scene: Scene) -> None:
    before = scene.shadows()
    scene.subscribe(b"in.s.>", b"in.s.x", b"elsewhere")
    assert scene.shadows() == before + 2
    scene.client.send(b"UNSUB 1\r\n")
    assert scene.publish(b"s.x") == [b"in.s.x"]
    scene.client.session.connection_lost()
    assert scene.shadows() == before


def test_imported_messages_do_not_count_for_a_maximum(scene: Scene) -> None:
    scene.subscribe(b"in.s.>")
    scene.client.send(b"UNSUB 1 1\r\n")
    assert scene.publish(b"s.a", b"s.b") == [b"in.s.a", b"in.s.b"]


def test_a_deny_list_here_filters_what_comes_from_there(scene: Scene) -> None:
    scene.client = scene.user("limited")
    scene.subscribe(b"in.s.*")
    assert scene.publish(b"s.secret", b"s.open") == [b"in.s.open"]


def test_a_message_that_is_published_here_is_not_one_from_there(scene: Scene) -> None:
    listener = scene.user("a")
    listener.send(b"SUB s.> 1\r\n")
    scene.subscribe(b"in.s.>")
    scene.client.send(b"PUB in.s.x 0\r\n\r\n")
    assert [frame.subject for frame in scene.client.frames()] == [b"in.s.x"]
    assert listener.frames() == []


def test_a_queue_group_of_both_accounts_gets_a_message_once(scene: Scene) -> None:
    scene.client.send(b"SUB in.s.> q 1\r\n")
    scene.origin.send(b"SUB s.> q 1\r\n")
    for _ in range(50):
        scene.origin.send(b"PUB s.x 0\r\n\r\n")
    here, there = len(scene.client.frames()), len(scene.origin.frames())
    assert here + there == 50
    assert here > 0


# -- one shadow --------------------------------------------------------------------------------------------------
def shadow(scene: Scene, source: str = "", to: str = "", local: bytes = b"") -> Shadow:
    rewrite = Rewrite(SubjectTransform(source, to, SeededRng(1))) if source else None
    real = Subscription(scene.user("limited").session, b"in.s.*", b"", b"1")
    return Shadow(real, rewrite, local, "B", False)


def test_the_deny_list_is_asked_for_the_local_subject(scene: Scene) -> None:
    renamed = shadow(scene, "s.*", "in.s.$1")
    assert not renamed.accepts(b"s.secret", b"")
    assert renamed.accepts(b"s.open", b"")
    assert not renamed.accepts(b"other", b"")  # it has no local subject
    assert not shadow(scene, local=b"in.s.secret").accepts(b"anything", b"")
    assert shadow(scene).accepts(b"s.secret", b"")


@pytest.mark.parametrize(
    ("subject", "pattern", "common"),
    [
        (b"a.*", b"*.b", b"a.b"),
        (b"a.>", b"*.b.c", b"a.b.c"),
        (b"*.*.c", b"a.>", b"a.*.c"),
        (b">", b"a.*", b"a.*"),
        (b"a.*.>", b"*.b.>", b"a.b.>"),
    ],
)
def test_two_subjects_have_the_narrower_token_of_each_in_common(
    subject: bytes, pattern: bytes, common: bytes
) -> None:
    assert narrowed(subject, pattern) == common
