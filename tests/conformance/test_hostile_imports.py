"""Clients that reach another account through a stream: both servers tell its service the same client information."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.harness.both import needs_peer, of_both
from tests.conformance.harness.process import ServerProcess
from tests.conformance.test_advisories import client

pytestmark = needs_peer
CONFIG = """
accounts {
    S { users: [{user: s, password: a}], exports: [{service: help}] }
    M { imports: [{service: {account: S, subject: help}}], exports: [{service: help}] }
    A {
        jetstream: enabled, users: [{user: a, password: a}]
        imports: [{service: {account: %s, subject: help}, share: %s}]
    }
}
jetstream { store_dir: "<<store>>" }
"""
FORGED = b'NATS/1.0\r\nNats-Request-Info: {"acc":"ADMIN","rtt":1}\r\n\r\n'
SENT = b"HPUB in%%b %d %d\r\n%b\r\n" % (len(FORGED), len(FORGED), FORGED)


@pytest.mark.parametrize(("exporter", "share"), [("S", "false"), ("S", "true"), ("M", "false")])
def test_what_a_stored_message_says_of_its_sender_does_not_reach_a_service(
    tmp_path: Path, exporter: str, share: str
) -> None:
    """The message is republished to the import, or its PubAck is sent to the import."""

    def look(server: ServerProcess) -> Any:
        service, sender = client(server, "s", b"_INBOX.s"), client(server, "a")
        service.send(b"SUB help 5\r\n")
        service.fence()
        sender.api("STREAM.CREATE.S", name="S", subjects=["in"], republish={"src": "in", "dest": "help"})
        sender.send(SENT % b"")
        republished = next(service.frames())[2]
        sender.api("STREAM.UPDATE.S", name="S", subjects=["in"])
        sender.send(SENT % b" help")
        return described(republished), described(next(service.frames())[2])

    peer, ours = of_both(tmp_path, CONFIG % (exporter, share), look)
    assert ours == peer
    assert "ADMIN" not in str(ours)
    assert all(len(each) == 1 for each in ours)


def described(headers: bytes) -> list[str]:
    """Return what the headers say about the sender, without times and ids, which only nats-server has."""
    found = re.findall(rb"Nats-Request-Info: ?(.*)\r\n", headers)
    return [re.sub(r'"(start|id)":("[^"]*"|\d+),', "", each.decode()) for each in found]
