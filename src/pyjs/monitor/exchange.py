"""Exports, imports, mappings and pending responses of an account, for /accountz."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.base.gotext import NS_PER_S, time_text
from pyjs.config.exchange.declared import (
    CHUNKED,
    SINGLETON,
    STREAM,
    Exchange,
    Export,
    Import,
    Latency,
    ServiceExport,
    ServiceImport,
    SubjectMapping,
)
from pyjs.monitor.json_text import JsonDict

if TYPE_CHECKING:
    from pyjs.node import Node

_RESPONSE_TYPES = {SINGLETON: "Singleton", STREAM: "Streamed", CHUNKED: "Chunked"}
# Requests that each account may send to the system account: (local subject, subject in the system account, share).
_SYSTEM_IMPORTS = (
    ("$SYS.REQ.ACCOUNT.PING.CONNZ", "$SYS.REQ.ACCOUNT.{}.CONNZ", False),
    ("$SYS.REQ.SERVER.PING.CONNZ", "$SYS.REQ.ACCOUNT.{}.CONNZ", False),
    ("$SYS.REQ.ACCOUNT.PING.STATZ", "$SYS.REQ.ACCOUNT.{}.STATZ", False),
    ("$SYS.REQ.USER.INFO", "$SYS.REQ.USER.{}.INFO", True),
)


def exchange_fields(node: Node, name: str) -> JsonDict:
    """Return the mappings, exports and imports of the account `name` for /accountz; empty lists are left out."""
    declared = node.exchanges
    own = declared.get(name, Exchange())
    imports = [_import(each, declared) for each in own.imports]
    system = node.system_account
    if system is not None and system.name != name:
        imports = [_system_import(system.name, name, *each) for each in _SYSTEM_IMPORTS] + imports
    fields: JsonDict = {
        "mappings": {each.source: [*_destinations(each)] for each in own.mappings},
        "exports": [_export(each) for each in own.exports],
        "imports": [*imports],
    }
    return {key: value for key, value in fields.items() if value}


def _destinations(mapping: SubjectMapping) -> list[JsonDict]:
    """Return the destinations of `mapping`, smallest weight first, with cumulative weights, as in nats-server."""
    total = 0
    shown: list[JsonDict] = []
    for subject, weight in sorted(mapping.weighted(), key=lambda each: each[1]):
        total += weight
        shown.append({"subject": subject, "weight": total})
    return shown


def _latency(latency: Latency) -> JsonDict:
    return {"sampling": latency.sampling or "headers", "results": latency.subject}


def _export(export: Export) -> JsonDict:
    is_service = isinstance(export, ServiceExport)
    shown: JsonDict = {"subject": export.subject, "type": "service" if is_service else "stream"}
    if isinstance(export, ServiceExport):
        shown["response_type"] = _RESPONSE_TYPES[export.response_type]
        if export.latency is not None:
            shown["service_latency"] = _latency(export.latency)
    if export.activation_required:
        shown["token_req"] = True
    if export.revocations:
        shown["revoked_activations"] = {name: time_text(at * NS_PER_S) for name, at in export.revocations}
    return shown | ({"approved_accounts": [*export.accounts]} if export.accounts else {})


def _import(wanted: Import, declared: dict[str, Exchange]) -> JsonDict:
    local = wanted.local().pattern
    shown: JsonDict = {"subject": wanted.subject, "account": wanted.account}
    if not isinstance(wanted, ServiceImport):
        return shown | {"local_subject": local, "type": "stream"} | _flags(share=False)
    shown |= {"to": local, "local_subject": local, "type": "service"} | _flags(wanted.share)
    export = declared[wanted.account].export_of(wanted)
    if isinstance(export, ServiceExport) and export.latency is not None:
        shown["latency"] = _latency(export.latency)
    return shown


def _system_import(system: str, name: str, local: str, subject: str, share: bool) -> JsonDict:
    shown: JsonDict = {
        "subject": subject.format(name),
        "account": system,
        "to": local,
        "local_subject": local,
    }
    return shown | {"type": "service"} | _flags(share)


def _flags(share: bool) -> JsonDict:
    return {"invalid": False, "share": share, "tracking": False}
