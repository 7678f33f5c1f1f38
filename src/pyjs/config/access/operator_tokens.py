"""Tokens in the configuration of operator mode, and rules that combine several of its options.

This module checks the signatures of tokens; the expiry of a token is checked when it is used. This module and the
claims are imported only for a configuration with operators, since importing them takes a tenth of the start-up time.

Source: nats.docs "JWT Authentication"; texts of nats-server 2.15.1, tests/conformance/test_jwt_config.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.claims.account import account_of
from pyjs.claims.operator import operator_of, version_parts
from pyjs.claims.token import TokenFault, decode, undecorated
from pyjs.claims.user import Grant, user_of
from pyjs.config.access.resolver import RESOLVER_FORMS
from pyjs.config.errors import Place, Problem, Refused
from pyjs.config.kinds import STRINGS, read_map
from pyjs.config.options import OperatorOptions, Options, ResolverOptions
from pyjs.wire.nkeys import ACCOUNT, OPERATOR, public_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyjs.config.table import Key, Reading
    from pyjs.config.values import Value

INLINE = "eyJ"  # the beginning of every token
VERSION = (2, 15, 1)  # the highest server version that operators may require


def read_operators(reading: Reading, key: Key, value: Value, target: object) -> tuple[OperatorOptions, ...]:
    """Read the operators: each string is a token, or the path of a file that contains a token.

    If there is only one operator, its token may name an account server. `target` then gets a resolver for that
    server, unless it already has a resolver.
    """
    names = STRINGS.read(reading, key, value, target)
    assert isinstance(names, tuple)
    assert isinstance(target, Options)
    operators = tuple(_read_operator(reading, value.place, name) for name in names)
    if len(operators) == 1 and operators[0].claims.account_server_url and target.resolver is None:
        url = operators[0].claims.account_server_url
        target.resolver = ResolverOptions("url", url.rstrip("/") + "/accounts/")
    return operators


def _read_operator(reading: Reading, place: Place, name: str) -> OperatorOptions:
    text = name
    fix = "give the token of an operator, or the path of its file"
    if not name.startswith(INLINE):
        try:
            assert reading.read_file is not None
            text = reading.read_file(name)
        except OSError as error:
            cause = f"error parsing operator JWT: open {name}: {(error.strerror or str(error)).lower()}"
            raise Refused(place, cause, fix) from None
    token = undecorated(text).strip()
    try:
        return OperatorOptions(token, operator_of(decode(token)))
    except TokenFault as fault:
        raise Refused(place, f"error parsing operator JWT: {fault}", fix) from None


def read_preload(reading: Reading, key: Key, value: Value, target: object) -> dict[str, str]:
    """Read a map whose values are account tokens, and return it; refuse a value that is not an account token."""
    tokens: dict[str, str] = {}
    for name, entry in read_map(key, value, "ACCOUNT: eyJ...").items():
        token = entry.value.data
        if not isinstance(token, str):
            raise Refused(entry.place, "preload map value should be a string JWT", "write ACCOUNT: eyJ...")
        try:
            account_of(decode(token))
        except TokenFault as fault:
            cause = "invalid account JWT"
            raise Refused(entry.place, cause, f"make its token again: {fault}") from None
        tokens[name] = token
    return tokens


def check_operators(options: Options, with_system: bool, at: Callable[[str], Place]) -> list[Problem]:
    """Return the first problem of operator mode, in a list, or [] if there is none.

    If there is only one operator, its token may name a system account. `options.system_account` is then set to that
    account, unless there is a problem or `with_system` is True.
    """
    fault = _operator_fault(options, with_system) if options.operators else _fault_without(options)
    if fault is not None:
        attr, cause, fix = fault
        return [Problem(at(attr), cause, fix)]
    if len(options.operators) == 1 and not with_system and options.operators[0].claims.system_account:
        options.system_account = options.operators[0].claims.system_account
    return []


Fault = tuple[str, str, str]  # attribute, cause, fix


def _fault_without(options: Options) -> Fault | None:
    if options.default_sentinel:
        cause = "default sentinel requires operators and accounts"
        return "default_sentinel", cause, "add the operator"
    if not options.trusted_keys:
        return "resolver", "an account resolver without an operator has no use", "add the operator"
    if options.resolver is None:
        return "trusted_keys", "trusted keys need an account resolver", RESOLVER_FORMS
    return None


def _operator_fault(options: Options, with_system: bool) -> Fault | None:
    first = _sentinel_fault(options) or _mixture_fault(options) or _system_fault(options, with_system)
    if first is not None:
        return first
    for operator in options.operators:
        cause = _version_fault(operator)
        if cause:
            return "operators", cause, "use a newer server"
    for key in options.operator_keys:
        if public_key(key, OPERATOR) is None:
            cause = f'trusted Keys "{key}" are required to be a valid public operator nkey'
            return "operators", cause, "make the token of the operator again"
    for key in options.resolver_pinned_accounts:
        if public_key(key, ACCOUNT) is None:
            cause = f'pinned account key "{key}" is not a valid public account nkey'
            return "resolver_pinned_accounts", cause, "use the public key of an account: A..."
    if options.authorization.auth_callout is not None:
        cause = "operators do not allow authorization callouts to be configured directly"
        return "authorization", cause, "put it into the token of the account"
    assert options.resolver is not None
    if options.resolver.kind == "url" and options.resolver_preload:
        cause = "resolver preloads only available for writeable resolver types MEM/DIR/CACHE_DIR"
        return "resolver_preload", cause, "remove the preload"
    return None


def _sentinel_fault(options: Options) -> Fault | None:
    if not options.default_sentinel:
        return None
    fix = "use the token of a user with bearer_token"
    try:
        user = user_of(decode(options.default_sentinel))
    except TokenFault:
        return "default_sentinel", "default sentinel JWT not valid", fix
    if not user.grant.bearer and not (user.issuer_account and user.grant == Grant()):
        return "default_sentinel", "default sentinel must be a bearer token", fix
    return None


def _mixture_fault(options: Options) -> Fault | None:
    if options.resolver is None:
        return "operators", "operators require an account resolver to be configured", RESOLVER_FORMS
    if options.accounts:
        cause = "operators do not allow Accounts to be configured directly"
        return "accounts", cause, "make a token for each account"
    if options.authorization.users:
        cause = "operators do not allow users to be configured directly"
        return "authorization", cause, "make a token for each user"
    if options.trusted_keys:
        cause = "conflicting options for 'TrustedKeys' and 'TrustedOperators'"
        return "trusted_keys", cause, "keep one of the two"
    return None


def _system_fault(options: Options, with_system: bool) -> Fault | None:
    named = [each.claims.system_account for each in options.operators if each.claims.system_account]
    if with_system:
        if named and options.system_account not in named:
            cause = "system_account in config and operator JWT must be identical"
            return "system_account", cause, f"write system_account: {named[0]}"
        return None
    assert options.resolver is not None
    if not options.operators[0].claims.system_account and options.resolver.kind in ("full", "cache"):
        cause = "using nats based account resolver"
        cause += " - the system account needs to be specified in configuration or the operator jwt"
        return "resolver", cause, "add system_account: A..."
    return None


def _version_fault(operator: OperatorOptions) -> str:
    subject, wanted = operator.claims.head.subject, operator.claims.assert_server_version
    try:
        parts = version_parts(wanted)
    except TokenFault as fault:
        return f"operator {subject} expects version {wanted} got error instead: {fault}"
    for name, asked, own in zip(("major", "minor", "update"), parts, VERSION, strict=True):
        if asked > own:
            return f"operator {subject} expected {name} version {asked} > server {name} version {own}"
        if own > asked:
            break
    return ""
