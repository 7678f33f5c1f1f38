"""The effects of the keys of exports, imports and mappings, as experiments; see effects.py."""

from __future__ import annotations

import re
from unittest.mock import Mock

from tests.unit.config.effects import KEY, Effect
from tests.unit.monitor.conftest import Site

from pyjs.core.host import SessionEvents

TRACED = b"NATS/1.0\r\nNats-Trace-Dest: t\r\n\r\n"
BLOCK = b"NATS/1.0\r\nb3: 1\r\n\r\n"


def exchanged(site: Site) -> object:
    """Return the messages, requests and late responses that a service and its client get."""
    service, client = site.client(user="s"), site.client(user="u")
    client.send(b"SUB > 1\r\n")
    service.send(b"SUB > 1\r\nPUB a.U 1\r\n1\r\nPUB b 1\r\n2\r\n")
    seen = []
    for wait in (0, 5):
        client.send(b"PUB help.U inbox 1\r\n3\r\nPUB far.U inbox 1\r\n4\r\n")
        client.send(b"HPUB help.U inbox %d %d\r\n%b5\r\n" % (len(BLOCK), len(BLOCK) + 1, BLOCK))
        asked = service.take()
        site.fixture.advance(seconds=wait)
        for reply in re.findall(rb"_R_\.[\w.]+", asked):
            service.send(b"PUB %b 2\r\nok\r\nPUB %b 2\r\nno\r\n" % (reply, reply))
        seen += [asked, client.take(), service.take()]
    return [re.sub(rb"_R_\.[\w.]+", b"_R_", each) for each in seen]


def followed(site: Site) -> object:
    """Return the events in the traces of a request and of a message to a stream."""
    found: list[list[object]] = []
    events = Mock(SessionEvents)
    events.traced.side_effect = lambda trace: found.append([event["type"] for event in trace.events])
    site.fixture.node.events = events
    service, client = site.client(user="s"), site.client(user="u")
    client.send(b"SUB a.* 1\r\n")
    service.send(b"SUB help.* 1\r\nHPUB a.U %d %d\r\n%b\r\n" % (len(TRACED), len(TRACED), TRACED))
    client.send(b"HPUB help.U inbox %d %d\r\n%b\r\n" % (len(TRACED), len(TRACED), TRACED))
    return found


def accounts(exports: str, imports: str, key: str, without: str = "") -> Effect:
    text = (
        "accounts {\n"
        f"S {{ users: [{{user: s, password: pw}}]\n{exports} }}\n"
        f"U {{ users: [{{user: u, password: pw}}]\n{imports} }}\n}}"
    )
    return Effect(text, key, exchanged, without)


def exported(key: str, without: str = "service: help.*") -> Effect:
    """Return the experiment for a key of an exported service."""
    exports = f"exports: [{{{KEY}}}, {{service: other.*}}]"
    return accounts(exports, "imports: [{service: {account: S, subject: help.U}}]", key, without)


def latency(key: str, without: str) -> Effect:
    return exported(f"service: help.*, latency: {{{key}}}", f"service: help.*, latency: {{{without}}}")


def imported(key: str, without: str) -> Effect:
    exports = "exports: [{service: help.*}, {stream: a.*}, {stream: b}]"
    return accounts(exports, f"imports: [{{{KEY}}}]", key, without)


STREAM, SERVICE = "stream: {account: S, subject: a.*}", "service: {account: S, subject: help.*}"
EXCHANGE_EFFECTS: dict[str, list[Effect]] = {
    "mappings": [
        Effect(
            f"authorization {{ users: [{{user: s, password: pw}}, {{user: u, password: pw}}] }}\n{KEY}",
            'mappings: {"b": "c"}',
            exchanged,
        )
    ],
    "accounts.*/exports": [
        accounts(KEY, "", "exports: [{stream: a.*}]\nimports: [{stream: {account: S, subject: a.*}}]")
    ],
    "accounts.*/imports": [accounts("exports: [{stream: a.*}]", KEY, f"imports: [{{{STREAM}}}]")],
    "accounts.*/mappings": [accounts(KEY, "", 'mappings: {"b": "c"}')],
    "accounts.*.exports.*/stream": [
        accounts(
            f"exports: [{{{KEY}}}]",
            "",
            "stream: a.*}], imports: [{stream: {account: S, subject: a.*}, to: self.$1",
            "service: x",
        )
    ],
    "accounts.*.exports.*/service": [exported("service: help.*, response_type: stream")],
    "accounts.*.exports.*/accounts": [exported("service: help.*, accounts: [U], response_type: stream")],
    "accounts.*.exports.*/account_token_position": [
        exported("service: help.*, account_token_position: 2, response_type: stream")
    ],
    "accounts.*.exports.*/response_type": [exported("service: help.*, response_type: stream")],
    "accounts.*.exports.*/response_threshold": [exported('service: help.*, response_threshold: "2s"')],
    "accounts.*.exports.*/latency": [exported("service: help.*, latency: lat")],
    "accounts.*.exports.*/allow_trace": [
        exported("service: help.*, allow_trace: true")._replace(observe=followed)
    ],
    "accounts.*.exports.*.latency/sampling": [
        latency("sampling: headers, subject: lat", "sampling: 100, subject: lat")
    ],
    "accounts.*.exports.*.latency/subject": [latency("subject: lat", "subject: other")],
    "accounts.*.imports.*/stream": [imported(STREAM, SERVICE)],
    "accounts.*.imports.*/service": [imported(SERVICE, STREAM)],
    "accounts.*.imports.*/prefix": [imported(f"{STREAM}, prefix: p", STREAM)],
    "accounts.*.imports.*/to": [imported(f"{SERVICE}, to: far.$1", SERVICE)],
    "accounts.*.imports.*/share": [imported(f"{SERVICE}, share: true", SERVICE)],
    "accounts.*.imports.*/allow_trace": [
        imported(f"{STREAM}, allow_trace: true", STREAM)._replace(observe=followed)
    ],
    "accounts.*.imports.*.stream/account": [
        imported("stream: {account: S, subject: a.*}", "service: {account: S, subject: help.*}")
    ],
    "accounts.*.imports.*.stream/subject": [
        imported("stream: {account: S, subject: b}", "stream: {account: S, subject: a.*}")
    ],
    "mappings.*/destination": [
        accounts(
            KEY,
            "",
            'mappings: {"b": {destination: c, weight: 100}}',
            'mappings: {"b": {dest: d, weight: 100}}',
        )
    ],
    "mappings.*/weight": [
        accounts(
            KEY, "", 'mappings: {"b": {destination: c, weight: 100}}', 'mappings: {"b": {dest: c, weight: 0}}'
        )
    ],
}
