"""`pyjs-server plan -c FILE` shows the changes that applying the file would make; it changes nothing.

The exit code is 0 if there is nothing to do, 1 after an error, and 2 if there are changes to make or assets that
cannot be changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TextIO

import orjson

from pyjs.base.errors import PyjsError
from pyjs.config.errors import suggestion
from pyjs.config.options import GLOBAL_ACCOUNT, is_bcrypt
from pyjs.declared.asking import LookFailed, plan
from pyjs.declared.report import is_done, plan_json, plan_lines
from pyjs.operating.connection import AskFailed, Login, OperatorConnection, TlsFiles
from pyjs.operating.login import read_login
from pyjs.server.system.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyjs.config.options import Options, UserOptions
    from pyjs.declared.asking import Answer, Exchange
    from pyjs.declared.assets import AccountAssets
    from pyjs.declared.planning import Plan

WITH_VALUE = (
    "-c",
    "--config",
    "--server",
    "--user",
    "--password",
    "--password-file",
    "--token",
    "--creds",
    "--nkey",
    "--tlsca",
    "--tlscert",
    "--tlskey",
    "--account",
)
USAGE = """Usage: pyjs-server plan -c FILE [--json] [--server HOST:PORT] [--account NAME]
                        [--user NAME --password-file FILE | --creds FILE | --nkey FILE]
                        [--tlsca FILE] [--tlscert FILE --tlskey FILE]

The login is also read from NATS_USER and NATS_PASSWORD, NATS_TOKEN, NATS_CREDS or NATS_NKEY. --password TEXT
and --token TEXT are accepted too, but other users of this machine can see them."""
TIMEOUT_S = 10.0
LOGIN = "add --account with --user and --password-file, --creds, --nkey, or NATS_TOKEN"
WILDCARDS = ("", "0.0.0.0", "::")
NO_CHANGES, FAILED, CHANGES = 0, 1, 2


class Arguments(NamedTuple):
    """The arguments of `pyjs-server plan`."""

    values: dict[str, str]  # of WITH_VALUE
    as_json: bool

    def get(self, name: str) -> str:
        """Return the value of the option --`name`, or "" if it was not given."""
        return self.values.get(f"--{name}", "")

    @property
    def named(self) -> dict[str, str]:
        """The values of the options, by name without dashes."""
        return {name.lstrip("-"): value for name, value in self.values.items()}

    @property
    def config(self) -> str:
        """The path of the configuration file, or "" if it was not given."""
        return self.get("config") or self.values.get("-c", "")


class PlanFailed(PyjsError):
    """Raised when the plan cannot be made; the exception's message states the reason."""


def parse(words: list[str]) -> Arguments:
    """Return the arguments in `words`.

    Raises:
        PlanFailed: an argument is unknown or lacks its value, or -c is missing; the message includes the usage.
    """
    values: dict[str, str] = {}
    as_json = False
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if word == "--json":
            as_json = True
        elif name in WITH_VALUE:
            given = value if equals else next(rest, None)
            if given is None:
                raise PlanFailed(f"{name} needs a value\n\n{USAGE}")
            values[name] = given
        else:
            fix = suggestion(name, (*WITH_VALUE, "--json"), "")
            raise PlanFailed(f'unexpected "{word}"{f"; {fix}" if fix else ""}\n\n{USAGE}')
    arguments = Arguments(values, as_json)
    if not arguments.config:
        raise PlanFailed(f"-c FILE is missing\n\n{USAGE}")
    return arguments


def run(
    arguments: Arguments,
    options: Options,
    declared: tuple[AccountAssets, ...],
    out: TextIO,
    err: TextIO,
    environment: Mapping[str, str] | None = None,
) -> int:
    """Print the plan, and return the exit code.

    Without a login in the arguments, variables of `environment` such as NATS_USER are used.
    """
    try:
        chosen = _chosen(arguments, declared)
        login = read_login(arguments.named, environment or {})
        if login is not None and len(chosen) > 1:
            names = ", ".join(each.account for each in chosen)
            text = f"a login is for one account: add --account, one of {names}"
            raise PlanFailed(f"{text} (NATS_USER and similar variables are a login too)")
        url = _url(arguments, options)
        plans = [_plan_of(arguments, url, login or _login_in(options, each.account), each) for each in chosen]
    except (PlanFailed, AskFailed, LookFailed) as error:
        print(f"plan: {error}", file=err)
        return FAILED
    for line in _lines(plans, arguments):
        print(line, file=out)
    return NO_CHANGES if is_done(plans) else CHANGES


def _lines(plans: list[Plan], arguments: Arguments) -> Iterator[str]:
    if arguments.as_json:
        body = {"changes": not is_done(plans), "accounts": [plan_json(each) for each in plans]}
        yield orjson.dumps(body, option=orjson.OPT_INDENT_2).decode()
        return
    if not plans:
        yield "the file declares no streams, consumers or buckets"
    for each in plans:
        if len(plans) > 1:
            yield f"account {each.account}"
        yield from plan_lines(each)


def _chosen(arguments: Arguments, declared: tuple[AccountAssets, ...]) -> tuple[AccountAssets, ...]:
    """Return the declared assets of all accounts, or only of the account in the arguments.

    Raises:
        PlanFailed: the file declares nothing for that account.
    """
    name = arguments.get("account")
    names = [each.account for each in declared]
    if name and name not in names:
        fix = suggestion(name, names, f"it declares for {', '.join(names) or 'none'}")
        raise PlanFailed(f'the file declares nothing for the account "{name}"; {fix}')
    return tuple(each for each in declared if name in ("", each.account))


def _plan_of(arguments: Arguments, url: str, login: Login, assets: AccountAssets) -> Plan:
    tls = TlsFiles(arguments.get("tlsca"), arguments.get("tlscert"), arguments.get("tlskey"))
    with OperatorConnection(url, login, tls, TIMEOUT_S, name="pyjs-server plan", fix=LOGIN) as connection:
        return _carried_out(plan(assets, SystemClock().wall_ns()), connection)


def _carried_out(exchange: Exchange[Plan], connection: OperatorConnection) -> Plan:
    """Send the requests of an exchange over `connection`, and return its result."""
    answers: list[Answer] | None = None
    while True:
        try:
            asks = next(exchange) if answers is None else exchange.send(answers)
        except StopIteration as end:
            found: Plan = end.value
            return found
        answers = connection.request_all([(f"$JS.API.{ask.words}", ask.payload) for ask in asks])


def _url(arguments: Arguments, options: Options) -> str:
    """Return the address of the server: the given one, or that of the configuration.

    Raises:
        PlanFailed: no address is given, and the configuration has no fixed port.
    """
    text = arguments.get("server")
    if not text:
        if options.port <= 0:
            raise PlanFailed("the file has no fixed port: add --server HOST:PORT")
        host = "127.0.0.1" if options.host in WILDCARDS else options.host
        return f"nats://[{host}]:{options.port}" if ":" in host else f"nats://{host}:{options.port}"
    return text


def _login_in(options: Options, account: str) -> Login:
    """Return a login for `account` that the configuration contains with a token or password in plain text.

    The login is empty if the configuration requires none.

    Raises:
        PlanFailed: the configuration has no such login.
    """
    single, listed = options.authorization, options.accounts.get(account)
    if account == GLOBAL_ACCOUNT:
        if single.token and not is_bcrypt(single.token):
            return Login(token=single.token)
        if single.user and not is_bcrypt(single.password):
            return Login(single.user, single.password)
        users: tuple[UserOptions, ...] = single.users
        if not (users or single.user or single.token):
            return Login()
    else:
        users = () if listed is None else listed.users
    if options.no_auth_user in [each.user or each.nkey for each in users] and options.no_auth_user:
        return Login()
    for user in users:
        if user.user and user.password and not is_bcrypt(user.password) and user.permissions is None:
            return Login(user.user, user.password)
    raise PlanFailed(
        f'the file has no user of the account "{account}" with a plain password and without permissions:'
        f" {LOGIN}"
    )
