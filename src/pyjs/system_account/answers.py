"""The answers to system requests, composed in steps.

Every answer begins with a description of the server (the field `server`). Most answers also have the contents of a
monitoring page (the field `data`).
This module knows nothing of subscriptions (see requests.py).

Source: nats.docs "System Events"; fields and their order probed on nats-server 2.15.1
(tests/conformance/test_system_account.py).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import orjson

from pyjs.base.gotext import NS_PER_S, time_text
from pyjs.base.nuid import nuid
from pyjs.core.auth.handshake import info_line
from pyjs.core.auth.identity import user_name
from pyjs.jetstream.config.json_strict import JsonFault, decode
from pyjs.monitor.accountz import account_statz, accountz
from pyjs.monitor.arguments import Arguments, BadArgument
from pyjs.monitor.connz import connz, connz_options
from pyjs.monitor.healthz import healthz
from pyjs.monitor.json_text import JsonDict, JsonValue, compact_json, filled
from pyjs.monitor.jsz import (
    JszOptions,
    NotLeader,
    account_detail,
    jetstream_block,
    jsz,
    jsz_options,
)
from pyjs.monitor.raftz import raftz
from pyjs.monitor.routez import route_counters, routes_page
from pyjs.monitor.subsz import subsz
from pyjs.monitor.varz import FEATURE_FLAGS, varz
from pyjs.node import PEER_VERSION
from pyjs.system_account.bodies import CLIENT_ID, arguments_of, asks_for, read_body
from pyjs.system_account.events import PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from typing import Any

    from pyjs.config.options import PermissionOptions, SubjectPermissions
    from pyjs.core.account import Account
    from pyjs.core.auth.permissions import Filters, Permissions
    from pyjs.core.session import ClientSession
    from pyjs.monitor.state import Monitored

    Given = dict[str, Any]
    Data = Generator[None, None, JsonDict]

# capability flags in clusters: JetStream, binary snapshots, Raft traffic in the account of the stream
WITH_JETSTREAM = 7
PLACE = re.compile(r" at offset \d+$")  # the part of an error that only the JetStream API shows
NOT_A_PROFILE = "profiles are not supported yet"
NOT_AN_EXPVAR = "expvars are not supported yet"


class Answers:
    """A composer of the answers to system requests for one server."""

    def __init__(self, monitored: Monitored) -> None:
        self.monitored = monitored
        self._seq = 0  # number of answers so far
        self._pages: dict[str, Callable[[Given], Data]] = {
            "VARZ": self._varz,
            "SUBSZ": self._subsz,
            "CONNZ": self._connz,
            "ROUTEZ": self._routez,
            "GATEWAYZ": lambda given: self._alone({"outbound_gateways": {}, "inbound_gateways": {}}),
            "LEAFZ": lambda given: self._alone({"leafnodes": 0, "leafs": []}),
            "ACCOUNTZ": self._accountz,
            "JSZ": self._jsz,
            "HEALTHZ": self._healthz,
            "PROFILEZ": lambda given: _at_once({"profile": None, "error": NOT_A_PROFILE}),
            "EXPVARZ": self._expvarz,
            "IPQUEUESZ": lambda given: _at_once({}),
            "RAFTZ": lambda given: raftz(self.monitored, given.get("account", ""), given.get("group", "")),
            "STATZ": self._statz,
            "INFO": self._account_info,
        }

    @property
    def _now_ns(self) -> int:
        return self.monitored.node.clock.now_ns()

    # -- whole answers -----------------------------------------------------------------------------------------
    def identity(self) -> bytes:
        """Return the answer to IDZ: only the description of the server."""
        return compact_json(self._identity())

    def description(self) -> bytes:
        """Return the description of the server as JSON; every answer contains it."""
        return compact_json(self._server())

    def page(self, name: str, body: bytes, **forced: object) -> Generator[None, None, bytes | None]:
        """Return the answer with the page `name`, or None if this server does not answer; yield between steps.

        `forced` replaces fields of the request.
        """
        try:
            given = read_body(name, body) | forced
        except JsonFault as error:
            return self.failed(400, PLACE.sub("", str(error)))
        monitored = self.monitored
        if not asks_for(given, monitored.options, monitored.node.server_name):
            return None
        if name == "STATSZ":
            return self.statistics()
        try:
            data = yield from self._pages[name](given)
        except NotLeader:  # the leader answers
            return None
        except BadArgument as error:
            return self._composed({"data": None, "error": {"code": 500, "description": str(error)}})
        return None if data.get("account_statz") == [] else self._composed({"data": data})

    def failed(self, code: int, text: str) -> bytes:
        """Return an answer with the error `code` and its description `text`."""
        return self._composed({"error": {"code": code, "description": text}})

    def content(self, fields: Mapping[str, object]) -> bytes:
        """Return an answer with the description of the server and `fields`."""
        return compact_json({"server": self._server(), **fields})

    def done(self) -> bytes:
        """Return the answer to a request whose change was made; it has no data."""
        return self._composed({})

    def connections_of(self, name: str) -> bytes | None:
        """Return the event about the connections of the account `name`, or None if it has no connections."""
        account = self.monitored.node.accounts.get(name)
        return None if account is None or not account.sessions else self.connection_figures(account)

    def connection_figures(self, account: Account) -> bytes:
        """Return the event about the connections of an account."""
        head: JsonDict = {
            "type": f"{PREFIX}account_connections",
            "id": nuid(self.monitored.node.rng),
            "timestamp": time_text(self._now_ns),
        }
        return self.event(head, account_statz(self.monitored, account))

    def event(self, head: Mapping[str, object], fields: Mapping[str, object]) -> bytes:
        """Return an event, which has the fields of `head`, the description of this server, and `fields`."""
        return compact_json({**head, "server": self._server(), **fields})

    def statistics(self) -> bytes:
        """Return the answer to STATSZ, with the statistics of the server."""
        return self._composed({"statsz": self._statsz()})

    def user_info(self, session: ClientSession) -> bytes:
        """Return the answer with the user, account and permissions of a client."""
        account, user = session.account.name, session.user
        name = (user.name if user is not None else "") or user_name(session)
        data: JsonDict = {"user": name, "account": account, "account_name": session.account.tag}
        token = None if user is None else user.token
        if token is not None:
            data |= {"user": token.subject} | filled({"user_name": token.name})
            shown = filled({"permissions": lists_of(session.permissions)})
            return self._composed({"data": data | shown | self._expiry(token.expires_at_ns)})
        permissions = self._permissions(name, account)
        return self._composed({"data": data | filled({"permissions": permissions})})

    def _expiry(self, at_ns: int) -> JsonDict:
        """Return the field `expires`: the time until a token expires, in ns, rounded down to whole seconds.

        Return {} if the token does not expire, or if less than a second is left.
        """
        left_ns = (at_ns - self._now_ns) // NS_PER_S * NS_PER_S if at_ns else 0
        return {"expires": left_ns} if left_ns > 0 else {}

    # -- changes -----------------------------------------------------------------------------------------------
    def kick(self, body: bytes) -> bytes:
        """Close the connection that the request names; return the answer."""
        return self._change(body, "no such client or leafnode id", lambda session: session.close("Kicked"))

    def start_lame_duck(self, body: bytes) -> bytes:
        """Send INFO with `ldm` to the client that the request names; return the answer.

        The client should then move to another server.
        """

        def tell(session: ClientSession) -> None:
            session.send_line(info_line(self.monitored.node.info_fields(session, True) | {"ldm": True}))

        return self._change(body, "no such client id", tell)

    def _change(self, body: bytes, missing: str, change: Callable[[ClientSession], None]) -> bytes:
        """Apply `change` to the session that the request names; return the answer.

        `missing` is the error message if there is no such session.
        """
        try:
            given = decode(body, CLIENT_ID, strict=False) if body else {}
        except JsonFault as error:
            return self.failed(400, str(error))
        session = self.monitored.node.sessions.get(given.get("cid", 0))
        if session is None:
            return self.failed(500, missing)
        change(session)
        return self.done()

    # -- parts -------------------------------------------------------------------------------------------------
    def _composed(self, content: JsonDict) -> bytes:
        return compact_json({"server": self._server(), **content})

    def _identity(self) -> JsonDict:
        node = self.monitored.node
        return {"name": node.server_name, "host": self.monitored.options.host, "id": node.server_id}

    def _server(self) -> JsonDict:
        options, node = self.monitored.options, self.monitored.node
        self._seq += 1
        enabled = node.jetstream is not None
        domain = options.jetstream.domain if enabled else ""
        return {
            **self._identity(),
            **filled({"cluster": options.cluster.name if node.cluster is not None else "", "domain": domain}),
            "ver": PEER_VERSION,
            **filled({"tags": [*options.server_tags], "metadata": dict(options.server_metadata)}),
            "feature_flags": {name: options.feature_flags.get(name, False) for name in FEATURE_FLAGS},
            "jetstream": enabled,
            "flags": WITH_JETSTREAM * enabled,
            "seq": self._seq,
            "time": time_text(self._now_ns),
        }

    def _statsz(self) -> JsonDict:
        page = varz(self.monitored, self._now_ns)
        cluster = self.monitored.node.cluster
        answer = {
            name: page[name] for name in ("start", "mem", "cores", "cpu", "connections", "total_connections")
        }
        active = sum(bool(account.sessions) for account in self.monitored.node.accounts.values())
        answer |= {"active_accounts": active, "subscriptions": page["subscriptions"]}
        answer |= {
            "sent": {"msgs": page["out_msgs"], "bytes": page["out_bytes"]},
            "sent_to_clients": {"msgs": page["out_client_msgs"], "bytes": page["out_client_bytes"]},
            "received": {"msgs": page["in_msgs"], "bytes": page["in_bytes"]},
            "received_from_clients": {"msgs": page["in_client_msgs"], "bytes": page["in_client_bytes"]},
            "slow_consumers": page["slow_consumers"],
        }
        if cluster is not None:
            answer["routes"] = [route_counters(route) for route in cluster.routes.values()]
        answer["active_servers"] = 1 if cluster is None else 1 + len(cluster.routes)
        if self.monitored.node.jetstream is not None:
            block = answer["jetstream"] = jetstream_block(self.monitored)
            assert isinstance(block["config"], dict)
            del block["config"]["store_dir"]
        return answer | {"gomaxprocs": page["gomaxprocs"]}

    def _routez(self, given: Given) -> Data:
        detail = bool(given.get("subscriptions_detail"))
        listed = detail or bool(given.get("subscriptions"))
        return routes_page(self.monitored, listed, detail, self._now_ns)

    def _varz(self, given: Given) -> Data:
        return _at_once(varz(self.monitored, self._now_ns))

    def _subsz(self, given: Given) -> Data:
        answer, page = yield from subsz(self.monitored, arguments_of("SUBSZ", given), self._now_ns)
        if page:
            answer["subscriptions_list"] = orjson.Fragment(b"[" + b",".join(page) + b"]")  # type: ignore[assignment]
        return answer

    def _connz(self, given: Given) -> Data:
        if given.get("filter_subject"):
            raise BadArgument('"filter_subject" is not supported yet')
        options = connz_options(arguments_of("CONNZ", given))
        return (yield from connz(self.monitored, options, self._now_ns))

    def _accountz(self, given: Given) -> Data:
        return _at_once(accountz(self.monitored, arguments_of("ACCOUNTZ", given), self._now_ns))

    def _jsz(self, given: Given) -> Data:
        name = given.pop("of_account", None)
        if name is None:
            options = jsz_options(arguments_of("JSZ", given))
            return (yield from jsz(self.monitored, options, self._now_ns))
        jetstream = self.monitored.node.jetstream
        engine = jetstream.accounts.get(name) if jetstream is not None else None
        if engine is None:
            raise BadArgument("jetstream not enabled")
        return (
            yield from account_detail(self.monitored, engine, JszOptions(streams=bool(given.get("streams"))))
        )

    def _healthz(self, given: Given) -> Data:
        status, page = yield from healthz(self.monitored, arguments_of("HEALTHZ", given))
        return {"status": page.pop("status"), "status_code": status} | page

    def _expvarz(self, given: Given) -> Data:
        raise BadArgument(NOT_AN_EXPVAR)

    def _statz(self, given: Given) -> Data:
        node = self.monitored.node
        names = given.get("accounts") or list(node.accounts)
        accounts = [node.accounts[name] for name in names if name in node.accounts]
        answer: JsonDict = {"server_id": node.server_id, "now": time_text(self._now_ns)}
        shown = [account_statz(self.monitored, each) for each in accounts if self._counts(each, given)]
        return _at_once(answer | {"account_statz": [*shown]})

    @staticmethod
    def _counts(account: Account, given: Given) -> bool:
        return bool(account.sessions or given.get("include_unused"))

    def _account_info(self, given: Given) -> Data:
        detail = accountz(self.monitored, Arguments.of({"acc": given["account"]}), self._now_ns)[
            "account_detail"
        ]
        assert isinstance(detail, dict)
        return _at_once(detail)

    def _alone(self, fields: JsonDict, named: bool = False) -> Data:
        """Return data with `fields` about gateways or leaf nodes, which this server does not have.

        `named` adds the name of the server.
        """
        node = self.monitored.node
        name: JsonDict = {"server_name": node.server_name} if named else {}
        return _at_once({"server_id": node.server_id} | name | {"now": time_text(self._now_ns)} | fields)

    def _permissions(self, user: str, account: str) -> JsonDict | None:
        options = self.monitored.options
        of_account = options.accounts[account].users if account in options.accounts else ()
        users = (*options.authorization.users, *of_account)
        for each in users:
            if user and user in (each.user, each.nkey):
                return permission_fields(each.permissions)
        return None


def permission_fields(permissions: PermissionOptions | None) -> JsonDict | None:
    """Return permissions as JSON, or None if everything is allowed."""
    if permissions is None:
        return None
    answer: JsonDict = {"publish": _lists(permissions.publish), "subscribe": _lists(permissions.subscribe)}
    if (responses := permissions.allow_responses) is not None:
        answer["responses"] = {"max": responses.max_msgs, "ttl": responses.expires_ns}
    return answer


def lists_of(permissions: Permissions | None) -> JsonDict | None:
    """Return the permissions of a session as JSON, or None if everything is allowed."""
    if permissions is None:
        return None
    publish: JsonDict = {"allow": _texts(permissions.publish_allow), "deny": _texts(permissions.publish_deny)}
    subscribe: JsonDict = {
        "allow": _texts(permissions.subscribe_allow),
        "deny": _texts(permissions.subscribe_deny),
    }
    answer: JsonDict = {"publish": filled(publish), "subscribe": filled(subscribe)}
    if (responses := permissions.responses) is not None:
        answer["responses"] = {"max": responses.messages_max, "ttl": responses.expires_ns}
    return answer


def _texts(filters: Filters | None) -> list[JsonValue]:
    entries = () if filters is None else filters.entries
    return [b" ".join(part for part in entry if part).decode() for entry in entries]


def _lists(subjects: SubjectPermissions | None) -> JsonDict:
    if subjects is None:
        return {}
    return filled({"allow": [*(subjects.allow or ())], "deny": [*subjects.deny]})


def _at_once(data: JsonDict) -> Data:
    """Return `data` as the result of a generator that never yields."""
    yield from ()
    return data
