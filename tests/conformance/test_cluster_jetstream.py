"""What three nats-servers with JetStream answer, and that the metadata of a cluster decides the same.

Our servers refuse JetStream in a cluster so far. These scenes play on three nats-servers, and what they answer is
compared with the parts that will answer here: the same requests, as entries, on the state machine.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.harness.both import needs_peer
from tests.conformance.harness.cluster import NAMES, NodeClient, ThreeServers, three
from tests.conformance.harness.process import peer_command

from pyjs.base.nuid import short_hash
from pyjs.config.options import AccountJetStreamOptions, JetStreamOptions
from pyjs.jetstream.cluster import advisories
from pyjs.jetstream.cluster.answers import matching
from pyjs.jetstream.cluster.assignments import stored_config
from pyjs.jetstream.cluster.entries import (
    AccountPurged,
    Bounds,
    Entry,
    ServerDescribed,
    ServerRemoved,
    StreamCreated,
    StreamDeleted,
    StreamUpdated,
    encode,
)
from pyjs.jetstream.cluster.moves import Field, field_of, updated_nodes, without_replica
from pyjs.jetstream.cluster.placement import Rules
from pyjs.jetstream.cluster.reports import GroupStatus, PeerStatus, meta_cluster, stream_cluster
from pyjs.jetstream.cluster.servers import Server
from pyjs.jetstream.cluster.state import MetaState
from pyjs.jetstream.config.stream_requests import read_stream
from pyjs.jetstream.errcodes import STREAM_NOT_FOUND, ApiError
from pyjs.jetstream.rules.stream import check

PEER = peer_command()
pytestmark = needs_peer
GB, MB = 1 << 30, 1 << 20
MAX_FILE, MAX_STREAMS = 100 * MB, 6  # of account FEW
COMMON = f"""
jetstream {{ store_dir: "<<store>>", max_file_store: {GB}, max_memory_store: {100 * MB} }}
accounts {{
    A {{ users: [{{user: a, password: a}}], jetstream: enabled }}
    FEW {{ users: [{{user: f, password: f}}], jetstream: {{max_file: {MAX_FILE}, max_streams: {MAX_STREAMS}}} }}
    SYS {{ users: [{{user: s, password: s}}] }}
}}
no_auth_user: a
system_account: SYS
"""
TAGS = {"a": ("az:1", "ssd"), "b": ("az:2", "ssd"), "c": ("az:2",)}
LOGINS: dict[str, dict[str, object]] = {
    "A": {},
    "FEW": {"user": "f", "pass": "f"},
    "SYS": {"user": "s", "pass": "s"},
}
BOUNDS = {"A": Bounds(), "FEW": Bounds(MAX_STREAMS, MAX_FILE)}
_numbers = count()


@dataclass
class Asker:
    """A client that asks one server."""

    client: NodeClient

    def ask(self, subject: str, body: object = None) -> dict[str, Any]:
        """Return the answer to a request."""
        inbox = b"_INBOX.ask.%d" % next(_numbers)
        data = b"" if body is None else json.dumps(body).encode()
        self.client.send(b"SUB %b i\r\nPUB %b %b %d\r\n%b\r\n" % (inbox, subject.encode(), inbox, len(data), data))
        while not (found := [frame for frame in self.client.frames if frame[0] == inbox]):
            self.client.wait_for_messages(len(self.client.frames) + 1)
        self.client.frames.remove(found[0])
        answer: dict[str, Any] = json.loads(found[0][4])
        return answer


@dataclass
class Ours:
    """The metadata of our cluster with the same servers, driven as the API will drive it."""

    account: str
    state: MetaState = field(default_factory=MetaState)

    def __post_init__(self) -> None:
        for node, name in enumerate(NAMES, 1):
            server = Server(node, name, "TRIO", TAGS[name], node, "0.1.0", 1, 100 * MB, GB)
            self.do(ServerDescribed(server))

    def do(self, entry: Entry) -> str:
        """Apply an entry; return what a client is told."""
        done = self.state.apply(self.state.index + 1, 0, encode(entry))
        return _text(done.error)

    @property
    def field(self) -> Field:
        """Where streams can be."""
        return field_of(self.state, "TRIO", Rules(online={1, 2, 3}))

    def request(self, verb: str, name: str, **options: object) -> str:
        """Do what a request to the API does; return what the client is told."""
        try:
            return getattr(self, f"_{verb.lower()}")(name, options)
        except ApiError as error:
            return _text(error)

    def _create(self, name: str, options: dict[str, object]) -> str:
        stored, bounds = _stored(name, options), BOUNDS[self.account]
        if self.state.check_create(self.account, stored, bounds) is not None:
            return _text(None)
        return self.do(StreamCreated(self.account, stored, self.field.place(stored.config), bounds))

    def _update(self, name: str, options: dict[str, object]) -> str:
        stored, bounds = _stored(name, options), BOUNDS[self.account]
        self.state.check_update(self.account, stored, bounds)
        old = self.state.stream(self.account, name)
        assert old is not None
        nodes = updated_nodes(self.field, old, stored.config, old.nodes[0])
        return self.do(StreamUpdated(self.account, old.group, old.revision, stored, nodes, bounds))

    def _delete(self, name: str, options: dict[str, object]) -> str:
        old = self.state.stream(self.account, name)
        STREAM_NOT_FOUND.raise_if(old is None)
        assert old is not None
        return self.do(StreamDeleted(self.account, name, old.group))


def _stored(name: str, options: dict[str, object]) -> Any:
    config = read_stream(json.dumps(_body(name, options)).encode(), True).config.with_required_level()
    return stored_config(check(config, JetStreamOptions(), AccountJetStreamOptions()))


def _body(name: str, options: dict[str, object]) -> dict[str, object]:
    return {"name": name, "subjects": [name.lower()], **options}


def _text(error: ApiError | None) -> str:
    return "ok" if error is None else f"{error.code} {error.err_code} {error.description}"


def _told(answer: dict[str, Any]) -> str:
    error = answer.get("error")
    return "ok" if error is None else f"{error['code']} {error['err_code']} {error['description']}"
