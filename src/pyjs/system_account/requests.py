"""The subscriptions of the server to system requests.

The system account offers requests about the server and about all accounts. Every other account offers a few requests
by which clients get information about themselves and their account. The first request creates the object that
answers, so that a server without such requests does not load the monitoring views.

Source: nats.docs "System Events"; permissions for requests: tests/conformance/test_system_account.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.core.session import ClientSession
from pyjs.subjects.tokens import is_subset, is_valid_literal
from pyjs.system_account.encoding import accepted, encoded

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from pyjs.core.account import Account
    from pyjs.core.chore import Step
    from pyjs.core.sink import Request
    from pyjs.node import Node
    from pyjs.system_account.answers import Answers

    Steps = Generator[Step, None, bytes | None]

USER_INFO = "$SYS.REQ.USER.INFO"
COUNTED = 2000  # subscriptions counted in one step
SERVER_PAGES = "STATSZ VARZ SUBSZ CONNZ ROUTEZ GATEWAYZ LEAFZ ACCOUNTZ JSZ HEALTHZ PROFILEZ EXPVARZ".split()
SERVER_PAGES += "IPQUEUESZ RAFTZ".split()
# By the last token of the subject: the request field that is set to the account's name.
ACCOUNT_PAGES = {
    "SUBSZ": "account",
    "CONNZ": "acc",
    "LEAFZ": "account",
    "JSZ": "of_account",
    "INFO": "account",
}


class SystemRequests:
    """The subscriptions of one server to system requests."""

    def __init__(
        self, node: Node, make_answers: Callable[[], Answers], reload: Callable[[Callable[[str], None]], None]
    ) -> None:
        self._node = node
        self._make_answers = make_answers
        self._reload = reload  # schedules a reload after this turn; its callback gets the error, or ""
        self._answers: Answers | None = None
        # Names of the accounts with these subscriptions. The system account is always the same one.
        self._served: set[str] = set()

    @property
    def answers(self) -> Answers:
        """The object that composes the answers; the first access creates it."""
        if self._answers is None:
            self._answers = self._make_answers()
        return self._answers

    @property
    def in_use(self) -> bool:
        """Whether the object that composes the answers exists."""
        return self._answers is not None

    def subscribe(self) -> None:
        """Subscribe to system requests in all accounts that lack these subscriptions.

        Called at the server's start and after each reload.
        """
        system = self._node.system_account
        if system is None:
            return
        for name, account in self._node.accounts.items():
            if name not in self._served:
                self._served.add(name)
                self._subscribe_member(account)
                if account is system:
                    self._subscribe_system(system)

    def _subscribe_system(self, system: Account) -> None:
        server_id = self._node.server_id
        for name in SERVER_PAGES:
            self._on_page(system, f"$SYS.REQ.SERVER.{server_id}.{name}", name)
            self._on_page(system, f"$SYS.REQ.SERVER.PING.{name}", name)
        self._on_page(system, "$SYS.REQ.SERVER.PING", "STATSZ")
        for subject in (f"$SYS.REQ.SERVER.{server_id}.IDZ", "$SYS.REQ.SERVER.PING.IDZ"):
            self._on(system, subject, lambda request: self.answers.identity())
        for name in ACCOUNT_PAGES:
            self._on(system, f"$SYS.REQ.ACCOUNT.*.{name}", self._account_page(name))
        self._on(system, "$SYS.REQ.ACCOUNT.*.STATZ", self._account_statz)
        self._on(system, "$SYS.REQ.ACCOUNT.*.CONNS", lambda r: self.answers.connections_of(_account_name(r)))
        self._on(system, "$SYS.DEBUG.SUBSCRIBERS", lambda request: count_subscribers(system, request.payload))
        control = f"$SYS.REQ.SERVER.{server_id}."
        self._on(system, control + "KICK", lambda request: self.answers.kick(request.payload))
        self._on(system, control + "LDM", lambda request: self.answers.start_lame_duck(request.payload))
        self._on(system, control + "PYJS.TRACE", self._traced)
        self._on(system, control + "RELOAD", lambda request: self._reloaded(system, request))
        if self._node.options.runs_jetstream:
            from pyjs.system_account.purge import SUBJECT, purge  # lazily: only servers with streams need it

            self._on(system, SUBJECT, lambda request: purge(self._node, system, request))
            if self._node.cluster is not None and not self._node.options.cluster.local:
                from pyjs.system_account.cluster import RESPONSES, ask

                for subject in RESPONSES:
                    self._on(system, subject, lambda request: ask(self._node, system, request))
        if self._node.trust is not None:
            from pyjs.system_account.claims import ClaimsRequests  # lazily: only operator mode needs it

            ClaimsRequests(self._node, system, lambda: self.answers).subscribe()

    def _subscribe_member(self, account: Account) -> None:
        self._on(account, USER_INFO, self._user_info)
        if account is self._node.system_account:
            return
        for subject in ("$SYS.REQ.ACCOUNT.PING.CONNZ", "$SYS.REQ.SERVER.PING.CONNZ"):
            self._on(account, subject, lambda r: self.answers.page("CONNZ", r.payload, acc=account.name))
        self._on(
            account,
            "$SYS.REQ.ACCOUNT.PING.STATZ",
            lambda r: self.answers.page("STATZ", r.payload, accounts=[account.name]),
        )

    # -- requests ----------------------------------------------------------------------------------------------
    def _on(self, account: Account, subject: str, answer: Callable[[Request], Steps | bytes | None]) -> None:
        """Subscribe to `subject` in `account`, and answer each request with the result of `answer`.

        If the result is None, nothing is sent.
        """

        def handle(request: Request) -> Generator[Step, None, None]:
            try:
                found = answer(request)
                if found is not None and not isinstance(found, bytes):
                    found = yield from found
            except Exception:
                if request.reply:
                    account.send(request.reply, self.answers.failed(500, "internal error"))
                raise
            if found is not None and request.reply:
                headers, body = encoded(found, accepted(request.headers))
                account.send(request.reply, body, headers)

        member = account is not self._node.system_account
        service = _in_system_account(subject, account.name) if member else None
        account.subscribe_handler(subject.encode(), handle, service, subject == USER_INFO)

    def _on_page(self, account: Account, subject: str, name: str) -> None:
        self._on(account, subject, lambda request: self.answers.page(name, request.payload))

    def _account_page(self, name: str) -> Callable[[Request], Steps]:
        def answer(request: Request) -> Steps:
            forced: dict[str, object] = {ACCOUNT_PAGES[name]: _account_name(request)}
            if name == "SUBSZ":
                forced["subscriptions"] = True
            return self.answers.page(name, request.payload, **forced)

        return answer

    def _account_statz(self, request: Request) -> Steps:
        name = _account_name(request)
        if name == "PING":  # a PING request may be about any account
            return self.answers.page("STATZ", request.payload)
        return self.answers.page("STATZ", request.payload, accounts=[name])

    def _user_info(self, request: Request) -> bytes | None:
        session = request.session
        return self.answers.user_info(session) if isinstance(session, ClientSession) else None

    def _traced(self, request: Request) -> bytes:
        from pyjs.system_account.trace import TraceRefused, trace  # imported lazily: few servers need it

        try:
            return self.answers.content({"data": trace(self._node, request.payload)})
        except TraceRefused as error:
            return self.answers.failed(error.code, str(error))

    def _reloaded(self, system: Account, request: Request) -> None:
        def reply(error: str) -> None:
            answers = self.answers
            if request.reply:
                system.send(request.reply, answers.failed(500, error) if error else answers.done())

        self._reload(reply)


def count_subscribers(account: Account, body: bytes) -> Steps:
    """Return the number of clients' subscriptions that `body` selects, as decimal digits; yield between steps.

    `body` is a subject, or a subject and a queue group. A subject without wildcards selects the subscriptions that
    match it; a subject with wildcards selects the subscriptions whose subjects it covers.
    """
    subject, *queues = body.strip().split(b" ")
    literal = is_valid_literal(subject)
    found = account.subs.match(subject) if literal else account.subs.subscriptions()
    count = 0
    for at, sub in enumerate(found):
        if at % COUNTED == COUNTED - 1:
            yield None
        if queues and sub.queue != queues[0]:
            continue
        if isinstance(sub.sink, ClientSession) and (literal or is_subset(sub.subject, subject)):
            count += 1
    return b"%d" % count


def _in_system_account(subject: str, account: str) -> bytes:
    """Return the subject that a request from `account` has in the system account, as traces show it."""
    if subject == "$SYS.REQ.USER.INFO":
        return f"$SYS.REQ.USER.{account}.INFO".encode()
    return f"$SYS.REQ.ACCOUNT.{account}.{subject.rpartition('.')[2]}".encode()


def _account_name(request: Request) -> str:
    return request.subject.split(b".")[3].decode("utf-8", "replace")
