"""Requests about the tokens of accounts: store, look up, list and remove them.

If the resolver is a directory of all accounts, it answers all these requests; a cache answers only some. If the
resolver cannot store tokens, new tokens of known accounts are applied but not stored. Tokens are decoded and files
are written in a thread, in the order of the requests.

Source: behaviour of nats-server 2.15.1, tests/conformance/test_jwt_claims.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyjs.base.clock import NS_PER_S
from pyjs.claims.account import account_issues
from pyjs.claims.fields import head_of
from pyjs.claims.token import TokenFault, decode
from pyjs.core.job import Job, JobQueue
from pyjs.core.trust.convert import account_token
from pyjs.core.trust.directory import DirectoryFault
from pyjs.core.trust.resolvers import DirectoryResolver
from pyjs.wire.nkeys import ACCOUNT, public_key

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from pyjs.claims.account import AccountClaims
    from pyjs.core.account import Account
    from pyjs.core.sink import Request
    from pyjs.core.trust.convert import AccountToken
    from pyjs.core.trust.directory import TokenDirectory
    from pyjs.node import Node
    from pyjs.system_account.answers import Answers

ERROR, SUCCESS = 500, 200
DELETIONS_MAX = 4096  # maximum number of accounts in one request
STEP = 32  # messages published in one step


@dataclass(slots=True)
class Outcome:
    """The result of a request. The answer is in `texts` or `names` or, if both are None, in `message`."""

    account: str = ""
    message: str = ""
    error: str = ""  # "": the request succeeded
    token: AccountToken | None = None  # the token to apply if the account is known
    deleted: list[str] = field(default_factory=list)
    texts: list[bytes] | None = None  # the answers, one message each
    names: list[str] | None = None  # the answer: a list of accounts


class ClaimsJob(Job):
    """The part of a request about tokens that runs in a thread."""

    queue = JobQueue.ACCOUNTS

    def __init__(self, work: Callable[[], Outcome], done: Callable[[Outcome], None]) -> None:
        self._work = work
        self._done = done
        self._outcome: Outcome | None = None

    def run(self) -> None:
        """Do the work of the request in the thread, such as decoding a token and writing a file."""
        self._outcome = self._work()

    def finish(self, failure: Exception | None) -> None:
        """Apply the outcome and answer the request; after a failure, answer with an error."""
        if self._outcome is not None:
            self._done(self._outcome)
        elif failure is not None:
            self._done(Outcome(message="request failed", error=str(failure)))


class ClaimsRequests:
    """The subscriptions of a server to requests about tokens of accounts."""

    def __init__(self, node: Node, system: Account, answers: Callable[[], Answers]) -> None:
        self._node = node
        self._system = system
        self._answers = answers

    def subscribe(self) -> None:
        """Subscribe to the requests that the resolver of this server can answer."""
        for subject in ("$SYS.ACCOUNT.*.CLAIMS.UPDATE", "$SYS.REQ.ACCOUNT.*.CLAIMS.UPDATE"):
            self._on(subject, self._update)
        if self._directory is None:
            return
        self._on("$SYS.REQ.CLAIMS.UPDATE", self._update)
        self._on("$SYS.REQ.CLAIMS.LIST", lambda request: self._list)
        self._on("$SYS.REQ.CLAIMS.DELETE", self._delete)
        if not self._is_cache:
            self._on("$SYS.REQ.ACCOUNT.*.CLAIMS.LOOKUP", self._look_up)
            self._on("$SYS.REQ.CLAIMS.PACK", self._pack)

    @property
    def _directory(self) -> TokenDirectory | None:
        trust = self._node.trust
        resolver = None if trust is None else trust.resolver
        return resolver.directory if isinstance(resolver, DirectoryResolver) else None

    @property
    def _is_cache(self) -> bool:
        resolver = self._node.options.resolver
        return resolver is not None and resolver.kind == "cache"

    @property
    def _now_s(self) -> int:
        return self._node.clock.wall_ns() // NS_PER_S

    def _on(self, subject: str, work_of: Callable[[Request], Callable[[], Outcome]]) -> None:
        def handle(request: Request) -> None:
            reply = request.reply
            job = ClaimsJob(work_of(request), lambda outcome: self._answer(reply, outcome))
            self._node.turn_state.jobs.append(job)

        self._system.subscribe_handler(subject.encode(), handle)

    # -- updates -----------------------------------------------------------------------------------------------
    def _update(self, request: Request) -> Callable[[], Outcome]:
        tokens = request.subject.decode("utf-8", "replace").split(".")
        named = tokens[2] if tokens[1] == "ACCOUNT" else tokens[3] if tokens[2] == "ACCOUNT" else ""
        text, trust = request.payload, self._node.trust
        assert trust is not None
        known = frozenset(trust.accounts)
        if self._directory is None:
            return lambda: self._checked_update(text, named, known)
        return lambda: self._stored_update(text, named, known)

    def _checked_update(self, data: bytes, named: str, known: frozenset[str]) -> Outcome:
        """Check a token that the resolver cannot store; return the outcome of the request."""
        if not data:
            return Outcome(named, "jwt update error", "request body is empty")
        failed = "jwt update resulted in error"
        text = data.decode("utf-8", "replace")
        try:
            token = account_token(text, self._now_s)
        except TokenFault as fault:
            return Outcome(named, failed, str(fault))
        if token.claims.head.subject != named:
            return Outcome(named, failed, "subject does not match jwt content")
        if named not in known:
            return Outcome(named, "jwt update skipped")
        return Outcome(named, "jwt updated", token=token)

    def _stored_update(self, data: bytes, named: str, known: frozenset[str]) -> Outcome:
        """Check a token and store it; return the outcome of the request.

        A cache stores only tokens of accounts that the server knows.
        """
        cache = " cache" if self._is_cache else ""
        failed = f"jwt update{cache} resulted in error"
        text = data.decode("utf-8", "replace")
        try:
            token = account_token(text, self._now_s)
        except TokenFault as fault:
            return Outcome(named if cache and named else "n/a", failed, str(fault))
        claims = token.claims
        subject = claims.head.subject
        issues = [each.description for each in account_issues(claims, self._now_s) if each.blocking]
        invalid = f"validation errors: [{' '.join(issues)}]" if issues else ""
        invalid_message = f"jwt update{cache} validation failed" if cache else "jwt validation failed"
        if invalid and named and not cache:
            return Outcome(subject, invalid_message, invalid)
        if named not in ("", subject):
            return Outcome(named, failed, "subject does not match jwt content")
        if self._needs_signing_key(claims):
            return Outcome(subject, failed, "operator requires issuer to be a signing key")
        if cache and subject not in known:
            return Outcome(subject, "jwt update cache skipped")
        if invalid:
            return Outcome(subject, invalid_message, invalid)
        directory = self._directory
        assert directory is not None
        try:
            changed = directory.save(subject, text)
        except DirectoryFault as fault:
            return Outcome(subject, failed, str(fault))
        return Outcome(subject, f"jwt updated{cache}", token=token if changed else None)

    def _needs_signing_key(self, claims: AccountClaims) -> bool:
        operators = self._node.options.operators
        if not operators:
            return False
        first = operators[0].claims
        return first.strict_signing_key_usage and claims.head.issuer == first.head.subject

    # -- questions ---------------------------------------------------------------------------------------------
    def _look_up(self, request: Request) -> Callable[[], Outcome]:
        name = request.subject.split(b".")[3].decode("utf-8", "replace")

        def work() -> Outcome:
            assert self._directory is not None
            return Outcome(texts=[(self._directory.load(name) or "").encode()])

        return work

    def _living(self) -> Generator[tuple[str, str], None, None]:
        """Yield (account, token) for each stored token that has not expired."""
        directory = self._directory
        assert directory is not None
        for name in directory.names:
            text = directory.load(name)
            if text is None:
                continue
            expires = head_of(decode(text)).expires
            if not 0 < expires < self._now_s:
                yield name, text

    def _list(self) -> Outcome:
        return Outcome(names=[name for name, _ in self._living()])

    def _pack(self, request: Request) -> Callable[[], Outcome]:
        theirs = request.payload

        def work() -> Outcome:
            assert self._directory is not None
            if theirs == self._directory.digest():
                return Outcome(texts=[b""])
            return Outcome(texts=[*(f"{name}|{text}".encode() for name, text in self._living()), b""])

        return work

    # -- removal -----------------------------------------------------------------------------------------------
    def _delete(self, request: Request) -> Callable[[], Outcome]:
        text = request.payload.decode("utf-8", "replace")
        return lambda: self._deleted(text)

    def _deleted(self, text: str) -> Outcome:
        subject = ""
        try:
            token = decode(text, generic=True)
            subject = head_of(token).subject
            names = self._names_to_delete(token.nats, subject, token.issuer)
        except (TokenFault, DirectoryFault) as fault:
            return Outcome("", f"delete accounts request by {subject} failed", str(fault))
        directory, outcome, errors = self._directory, Outcome(), []
        assert directory is not None
        for name in names:
            try:
                if directory.delete(name):
                    outcome.deleted.append(name)
            except DirectoryFault as fault:
                errors.append(str(fault))
        outcome.message = f"deleted {len(names) - len(errors)} accounts"
        if errors:
            outcome.message += f", failed for {len(errors)}"
            outcome.error = "\n".join(errors)
        return outcome

    def _names_to_delete(self, nats: dict[str, object], subject: str, issuer: str) -> list[str]:
        options = self._node.options
        resolver = options.resolver
        if resolver is None or not (resolver.allow_delete or self._is_cache):
            raise DirectoryFault("delete must be enabled in server config")
        if subject != issuer:
            raise DirectoryFault("not self signed")
        if not options.operators or issuer not in options.operators[0].claims.trusted_keys:
            raise DirectoryFault("not trusted")
        names = nats.get("accounts")
        if not isinstance(names, list) or len(names) > DELETIONS_MAX:
            raise DirectoryFault("malformed request")
        for name in names:
            if not isinstance(name, str) or public_key(name, ACCOUNT) is None:
                raise DirectoryFault("malformed request")
            if name == self._system.name:
                raise DirectoryFault("not allowed to delete system account")
        return names

    # -- answers -----------------------------------------------------------------------------------------------
    def _answer(self, reply: bytes, outcome: Outcome) -> None:
        if outcome.token is not None:
            self._apply(outcome, outcome.token)
        trust = self._node.trust
        for name in outcome.deleted:
            assert trust is not None
            trust.disable(name)
        self._log(outcome)
        if not reply:
            return
        if outcome.texts is not None:
            self._node.turn_state.go_on(self._send_all(reply, outcome.texts))
            return
        answers = self._answers()
        if outcome.names is not None:
            self._system.send(reply, answers.content({"data": [*outcome.names]}))
            return
        account = {"account": outcome.account} if outcome.account else {}
        if outcome.error:
            text = f"{outcome.message} - {outcome.error}"
            fields = {"error": {**account, "code": ERROR, "description": text}}
        else:
            fields = {"data": {**account, "code": SUCCESS, "message": outcome.message}}
        self._system.send(reply, answers.content(fields))

    def _send_all(self, reply: bytes, texts: list[bytes]) -> Generator[None, None, None]:
        for at, text in enumerate(texts):
            if at % STEP == STEP - 1:
                yield
            self._system.send(reply, text)

    def _apply(self, outcome: Outcome, token: AccountToken) -> None:
        """Apply a new token to its account, if the account is known.

        If a directory stores the tokens, a failure is logged; otherwise it becomes the error of `outcome`.
        """
        trust, name = self._node.trust, outcome.account
        assert trust is not None
        if name not in trust.accounts:
            return
        try:
            trust.apply(name, token)
        except TokenFault as fault:
            if self._directory is None:
                outcome.message, outcome.error = "jwt update resulted in error", str(fault)
            else:
                text = f'DirResolver - Update for account "{name}" resulted in error {fault}'
                self._node.log.error(text)

    def _log(self, outcome: Outcome) -> None:
        if not outcome.message:
            return
        account = f" - {outcome.account}" if outcome.account else ""
        if outcome.error:
            self._node.log.error(f"{outcome.message}{account} - {outcome.error}")
        else:
            self._node.log.debug(f"{outcome.message}{account}")
