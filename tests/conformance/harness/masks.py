"""The values that may differ between two servers, each masked by its field and its form.

A mask applies if both match: the name or the place of the field, and the form of the value. A field of that name with
any other value is not masked and is compared. Ids become numbered placeholders in the order of their first
appearance, so that a server must still use the same id in the same places; times, durations, ports and versions are
replaced by the name of their kind.

Only these are masked: server ids and keys, nonces, client ids, nuids, names of inboxes and consumers that the server
chose, identities of sourced streams, times, durations, ports, process ids, and the version of the server. JSON in a
text (the answers in an API audit) is masked too. A single space in place of a reply subject, which nats-server sends
in some lines, counts as no reply.
"""

from __future__ import annotations

import json
import re
from typing import Any

_TIME = re.compile(r"^(?!0001-01-01T)\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z$")
_DURATION = re.compile(r"^(\d+(\.\d+)?(y|d|h|m|s|ms|us|µs|ns))+$")
_VERSION = re.compile(r"^\d+\.\d+\.\d+[-+.\w]*$")
_TOKEN = re.compile(r"^\S+$")
_SERVER_ID = re.compile(r"^N[A-Z2-7]{55}$")
_XKEY = re.compile(r"^X[A-Z2-7]{55}$")
_NONCE = re.compile(r"^[A-Za-z0-9_-]{11,24}$")
_NUID = re.compile(r"^[A-Za-z0-9]{22}$")
_CONSUMER = re.compile(r"^[A-Za-z0-9]{8}$")
_SOURCED = re.compile(r"^([^ ]+ \d+ [^ ]+ [^ ]+ [^ ]+) ([A-Za-z0-9]{8})$")
_FC = re.compile(r"^[A-Za-z0-9]{4}$")
_URL = re.compile(r"^(.*:)\d{2,5}$")

# names of the time and duration fields
_TIMES = (
    "created",
    "first_ts",
    "last_ts",
    "last_active",
    "pinned_ts",
    "ts",
    "time",
    "timestamp",
    "start",
    "now",
    "stop",
    "mtime",
)
_MORE_TIMES = ("last_activity", "config_load_time", "leader_since", "Nats-Time-Stamp")
_DURATIONS = ("uptime", "idle", "rtt")
# field name -> (kind, form); kinds in IDS are numbered
FIELDS: dict[str, tuple[str, re.Pattern[str]]] = {
    "server_id": ("server id", _SERVER_ID),
    "server_name": ("server id", _SERVER_ID),
    "xkey": ("server key", _XKEY),
    "nonce": ("nonce", _NONCE),
    "id": ("nuid", _NUID),
    "nuid": ("nuid", _NUID),
    "Nats-Pin-Id": ("nuid", _NUID),
    "pinned_id": ("nuid", _NUID),
    "pinned_client_id": ("nuid", _NUID),
    "version": ("version", _VERSION),
    "go": ("version", _TOKEN),
    **dict.fromkeys(_TIMES + _MORE_TIMES, ("time", _TIME)),
    **dict.fromkeys(_DURATIONS, ("duration", _DURATION)),
}
# number fields: name -> kind
NUMBERS: dict[str, str] = {
    "client_id": "client id",
    "cid": "client id",
    "id": "client id",
    "port": "port",
    "http_port": "port",
    "pid": "pid",
    "rtt": "duration",
    "pause_remaining": "duration",
    "ack_time": "duration",
    "active": "duration",
}
# names of consumers, which the server may have chosen
CONSUMER_FIELDS = frozenset({"name", "consumer", "consumers"})
# parts of the version that only some servers show in INFO and /varz: the commit of the build, and our own version in
# addition to the nats-server version that we are compatible with
BUILD_FIELDS = frozenset({"git_commit", "pyjs_version"})
IDS = frozenset(
    ("server id", "server key", "nonce", "nuid", "client id", "consumer", "flow control", "stream identity")
)


class Masker:
    """The masks of one recording; an id keeps its number in the whole recording."""

    def __init__(self, script_text: str) -> None:
        self._script_words = frozenset(re.findall(r"[A-Za-z0-9_-]+", script_text))
        self._numbers: dict[str, dict[Any, int]] = {}
        self._run = 1  # the number of the server's current start: client ids begin again at each start

    def recording(self, recording: dict[str, Any]) -> dict[str, Any]:
        """Return a masked copy of a recording."""
        connections = {}
        for name, frames in sorted(recording["connections"].items()):
            self._run = recording["runs"][name]
            connections[name] = [self._frame(frame) for frame in frames]
        return {"connections": connections, "http": [self._answer(answer) for answer in recording["http"]]}

    def value(self, value: Any) -> Any:
        """Return a masked copy of any JSON value."""
        return self._value("", value)

    def _answer(self, answer: dict[str, Any]) -> Any:
        self._run = answer["run"]
        return self._value("", answer)

    def _frame(self, frame: dict[str, Any]) -> dict[str, Any]:
        return {
            key: self._frame_field(key, value)
            for key, value in frame.items()
            if (key, value) != ("reply", "")
        }

    def _frame_field(self, key: str, value: Any) -> Any:
        if key in ("subject", "reply") and isinstance(value, str):
            return self._subject(value)
        if key == "headers" and isinstance(value, dict) and isinstance(value.get("fields"), list):
            return value | {"fields": [self._header(field) for field in value["fields"]]}
        return self._value(key, value) if isinstance(value, (dict, list)) else value

    def _header(self, field: Any) -> Any:
        is_pair = len(field) == 2 and isinstance(field[0], str)
        return [field[0], self._value(field[0], field[1])] if is_pair else field

    def _value(self, name: str, value: Any) -> Any:
        if isinstance(value, dict):
            left_out = BUILD_FIELDS if "server_id" in value else ()
            return {key: self._value(key, inner) for key, inner in value.items() if key not in left_out}
        if isinstance(value, list):
            return [self._value(name, inner) for inner in value]
        if isinstance(value, str):
            return self._string(name, value)
        if isinstance(value, int) and not isinstance(value, bool) and name in NUMBERS and value > 0:
            return self._placeholder(NUMBERS[name], value)
        return value

    def _string(self, name: str, value: str) -> Any:
        kind, form = FIELDS.get(name, ("", _TOKEN))
        if kind and form.match(value):
            return self._placeholder(kind, value)
        if name == "response" and value.startswith("{"):
            return self._value("", json.loads(value))
        if name in CONSUMER_FIELDS:
            return self._consumer(value)
        if name == "Nats-Stream-Source":
            return _SOURCED.sub(lambda m: f"{m[1]} {self._placeholder('stream identity', m[2])}", value)
        if name == "connect_urls":
            return _URL.sub(r"\1<port>", value)
        if name in ("subject", "reply", "Nats-Consumer-Stalled"):
            return self._subject(value)
        return value

    def _subject(self, subject: str) -> str:
        tokens = subject.split(".")
        if tokens[:2] == ["$JS", "ACK"] and len(tokens) == 9:
            tokens[3] = self._consumer(tokens[3])
            tokens[7] = "<time>" if re.fullmatch(r"1\d{18}", tokens[7]) else tokens[7]
        elif tokens[:2] == ["$JS", "ACK"] and len(tokens) == 11:
            tokens[9] = "<time>" if re.fullmatch(r"1\d{18}", tokens[9]) else tokens[9]
        elif tokens[:2] == ["$JS", "FC"] and len(tokens) in (5, 7):
            tokens[-2] = self._consumer(tokens[-2])
            tokens[-1] = self._matched("flow control", _FC, tokens[-1])
        elif tokens[:3] == ["$JS", "API", "CONSUMER"] or tokens[:3] == ["$JS", "EVENT", "ADVISORY"]:
            fixed = 5 if tokens[1] == "EVENT" else 4
            tokens = [*tokens[:fixed], *map(self._consumer, tokens[fixed:])]
        return ".".join(tokens)

    def _consumer(self, name: str) -> str:
        # clients generate a NUID as the name of an ephemeral consumer
        form = _NUID if len(name) == 22 else _CONSUMER
        return name if name in self._script_words else self._matched("consumer", form, name)

    def _matched(self, kind: str, form: re.Pattern[str], value: str) -> str:
        return self._placeholder(kind, value) if form.match(value) else value

    def _placeholder(self, kind: str, value: object) -> str:
        if kind not in IDS:
            return f"<{kind}>"
        numbers = self._numbers.setdefault(kind, {})
        key = (self._run, value) if kind == "client id" else value
        return f"<{kind} {numbers.setdefault(key, len(numbers) + 1)}>"
