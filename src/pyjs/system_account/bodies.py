"""The bodies of system requests: their fields, the servers that they select, and the arguments for monitoring views.

Source: nats.docs "System Events"; names, types and error messages probed on nats-server 2.15.1
(tests/conformance/test_system_account.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyjs.jetstream.config.json_strict import BOOL, INT, STRING, STRINGS, UINT64, Kind, Struct, decode
from pyjs.monitor.arguments import Arguments

if TYPE_CHECKING:
    from pyjs.config.options import Options

FILTER = {
    "server_name": STRING,
    "cluster": STRING,
    "host": STRING,
    "exact_match": BOOL,
    "tags": STRINGS,
    "domain": STRING,
}
PAGE = {"offset": INT, "limit": INT}
CONN_STATES = ("open", "closed", "any")


def _body(title: str, /, **fields: Kind) -> Struct:
    return Struct(f"{title}EventOptions", {**fields, **FILTER})


# The fields of each request, by the last token of its subject.
BODIES: dict[str, Struct] = {
    "STATSZ": _body("Statsz"),
    "VARZ": _body("Varz"),
    "SUBSZ": _body("Subsz", subscriptions=BOOL, account=STRING, test=STRING, **PAGE),
    "CONNZ": _body(
        "Connz",
        **dict.fromkeys(("sort", "mqtt_client", "user", "acc", "filter_subject"), STRING),
        **dict.fromkeys(("auth", "subscriptions", "subscriptions_detail"), BOOL),
        cid=UINT64,
        state=Kind("int", "server.ConnState"),
        **PAGE,
    ),
    "ROUTEZ": _body("Routez", subscriptions=BOOL, subscriptions_detail=BOOL),
    "GATEWAYZ": _body("Gatewayz", name=STRING, accounts=BOOL, account_name=STRING),
    "LEAFZ": _body("Leafz", subscriptions=BOOL, account=STRING),
    "ACCOUNTZ": _body("Accountz", account=STRING),
    "JSZ": _body(
        "Jsz",
        account=STRING,
        **dict.fromkeys(("accounts", "streams", "consumer", "direct_consumer", "config", "raft"), BOOL),
        **dict.fromkeys(("leader_only", "stream_leader_only"), BOOL),
        **PAGE,
    ),
    "HEALTHZ": _body(
        "Healthz",
        **dict.fromkeys(("js-enabled", "js-enabled-only", "js-server-only", "js-meta-only", "details"), BOOL),
        **dict.fromkeys(("account", "stream", "consumer"), STRING),
    ),
    "PROFILEZ": _body("Profilez", name=STRING, debug=INT),
    "EXPVARZ": _body("Expvarz"),
    "IPQUEUESZ": _body("Ipqueuesz"),
    "RAFTZ": _body("Raftz", account=STRING, group=STRING),
    "STATZ": _body("AccountStatz", accounts=STRINGS, include_unused=BOOL),
    "INFO": _body("AccInfo"),
}
CLIENT_ID = Struct("ClientIDReq", {"cid": UINT64, "id": UINT64})
# Fields that have another name in the query string.
ARGUMENTS: dict[str, dict[str, str]] = {
    "CONNZ": {"subscriptions": "subs"},
    "SUBSZ": {"subscriptions": "subs", "account": "acc"},
    "ACCOUNTZ": {"account": "acc"},
    "JSZ": {"account": "acc", "consumer": "consumers"},
}


def read_body(name: str, body: bytes) -> dict[str, Any]:
    """Return the fields in the body of a request for the page `name`.

    Raises:
        JsonFault: the body is invalid; the error message is that of nats-server.
    """
    return decode(body, BODIES[name], strict=False)


def asks_for(given: dict[str, Any], options: Options, server_name: str) -> bool:
    """Return whether the filter in a request selects this server; a request without a filter selects all servers."""
    exact = given.get("exact_match", False)
    for wanted, actual in (
        (given.get("server_name", ""), server_name),
        (given.get("host", ""), options.host),
        (given.get("cluster", ""), options.cluster.name),
    ):
        if wanted and (wanted != actual if exact else wanted not in actual):
            return False
    if given.get("domain", "") not in ("", options.jetstream.domain):
        return False
    return all(tag in options.server_tags for tag in given.get("tags", ()))


def arguments_of(name: str, given: dict[str, Any]) -> Arguments:
    """Return the fields of a request for the page `name` as arguments for the monitoring view."""
    renamed = ARGUMENTS.get(name, {})
    values = {
        renamed.get(field, field.replace("_", "-") if name == "JSZ" else field): _text(value)
        for field, value in given.items()
        if field not in FILTER
    }
    if name == "CONNZ":
        state = given.get("state", 0)
        values["state"] = CONN_STATES[state] if 0 <= state < len(CONN_STATES) else str(state)
        if given.get("subscriptions_detail"):
            values["subs"] = "detail"
    elif name == "SUBSZ" and not given.get("subscriptions"):
        values.pop("test", None)
    return Arguments.of(values)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
