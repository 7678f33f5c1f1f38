"""`pyjs-server trace` starts or stops the trace of one connection of a running server.

The exit code is 0 if the trace began or ended, 1 if the server cannot be reached or refuses the request, and 2 if the
command line is invalid.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pyjs.base.errors import PyjsError
from pyjs.base.gotext import printable
from pyjs.operating.connection import AskFailed, Login, NoAnswer, OperatorConnection, TlsFiles
from pyjs.operating.login import read_login

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TextIO

USAGE = """\
Usage: pyjs-server trace [options] CID
       pyjs-server trace --stop [options] CID

Logs what one client sends and receives, for some time, in the log of the running server. CID is the id of the
connection in log lines and in /connz. The user must be in the system account. Passwords, tokens and keys are not
shown.

    -s, --server URL       the server (default NATS_URL, or nats://127.0.0.1:4222)
    --name SERVER          another server of its cluster, or another worker, by its name
    --seconds N            end after this time (default 60, at most 3600)
    --lines N              end after so many lines (default 1000, at most 10000)
    --payload N            bytes shown of a message (default max_traced_msg_len, or 256; at most 65536)
    --user NAME            log in as this user, with the password in NATS_PASSWORD, or
    --password-file FILE   with the first line of a file; - reads it from standard input
    --creds FILE           log in with a credentials file
    --nkey FILE            log in with the seed of an nkey
    --tlsca FILE           certificate of the authority of the server's certificate
    --tlscert FILE, --tlskey FILE
                           certificate of the client, and its private key
    --stop                 end the trace

The login is also read from NATS_USER and NATS_PASSWORD, NATS_TOKEN, NATS_CREDS or NATS_NKEY."""
VALUES = {
    name: name
    for name in (
        "server name seconds lines payload user password-file creds nkey tlsca tlscert tlskey".split()
    )
}
VALUES["s"] = "server"
SWITCHES = {"stop": "stop", "help": "help", "h": "help"}
NUMBERS = {"seconds": "seconds", "lines": "lines", "payload": "payload_size"}  # flag -> field of the request
DIGITS_MAX = 18  # of a number; more might not fit in an int64
TIMEOUT_S = 5.0


class _Usage(PyjsError):
    """Raised for an invalid command line."""


def run(words: list[str], environment: Mapping[str, str], out: TextIO, err: TextIO) -> int:
    """Run the command with the words after `trace`; return its exit code."""
    try:
        options, cid = _parsed(words)
        if "help" in options:
            out.write(f"{USAGE}\n")
            return 0
        body = _request(options, cid)
    except _Usage as error:
        err.write(f"pyjs-server trace: {error}\n\n{USAGE}\n")
        return 2
    try:
        out.write(f"{_ask(options, environment, body)}\n")
    except AskFailed as error:
        err.write(f"pyjs-server trace: {error}\n")
        return 1
    return 0


def _parsed(words: list[str]) -> tuple[dict[str, str], str]:
    options: dict[str, str] = {}
    places, left = [], iter(words)
    for word in left:
        name, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("-"):
            places.append(word)
        elif name in SWITCHES and not equals:
            options[SWITCHES[name]] = "yes"
        elif name in VALUES:
            options[VALUES[name]] = value if equals else next(left, "")
            if not options[VALUES[name]]:
                raise _Usage(f"flag needs an argument: {word}")
        else:
            raise _Usage(f"there is no flag {word}")
    if "help" not in options and len(places) != 1:
        raise _Usage("give the id of one connection")
    return options, "".join(places)


def _request(options: dict[str, str], cid: str) -> dict[str, object]:
    body: dict[str, object] = {"cid": _number("the id of the connection", cid)}
    if "stop" in options:
        return body | {"stop": True}
    return body | {
        field: _number(f"--{name}", options[name]) for name, field in NUMBERS.items() if name in options
    }


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX):
        raise _Usage(f"{name} is {text}: give a whole number")
    return int(text)


def _ask(options: dict[str, str], environment: Mapping[str, str], body: dict[str, object]) -> str:
    """Send the request, and return a line about its success.

    Raises:
        AskFailed: the server cannot be reached, or refuses the request.
    """
    url = options.get("server") or environment.get("NATS_URL") or "nats://127.0.0.1:4222"
    files = TlsFiles(*(options.get(name, "") for name in ("tlsca", "tlscert", "tlskey")))
    login = read_login(options, environment) or Login()
    with OperatorConnection(url, login, files, TIMEOUT_S, name="pyjs-server trace") as connection:
        name, server_id = _server(connection, options.get("name", ""))
        answer = connection.request(f"$SYS.REQ.SERVER.{server_id}.PYJS.TRACE", json.dumps(body).encode())
    error, data = answer.get("error"), answer.get("data")
    if isinstance(error, dict):
        raise AskFailed(printable(str(error.get("description"))))
    if not isinstance(data, dict):
        raise AskFailed(f"{name} does not trace single connections: it is not a pyjs-server")
    if data.get("tracing"):
        ends = f"{data.get('seconds')} s or {data.get('lines')} lines"
        return f"connection {body['cid']} of {name} is traced in the log of that server, for {ends}"
    was = "is no longer traced" if data.get("was_tracing") else "was not traced"
    return f"connection {body['cid']} of {name} {was}"


def _server(connection: OperatorConnection, name: str) -> tuple[str, str]:
    """Return the name and id of the server named `name`, or of the connected server if `name` is empty.

    Raises:
        AskFailed: no server has this name, or its id is invalid.
    """
    if not name or name == connection.info.get("server_name"):
        return printable(str(connection.info.get("server_name"))), _id(connection.info)
    wanted = json.dumps({"server_name": name, "exact_match": True}).encode()
    try:
        found = connection.request("$SYS.REQ.SERVER.PING.HEALTHZ", wanted).get("server")
    except NoAnswer:
        raise AskFailed(f"no server is named {name}: `nats server list` shows the names") from None
    return name, _id(found if isinstance(found, dict) else {})


def _id(server: Mapping[str, object]) -> str:
    """Return the id in the description of a server.

    Raises:
        AskFailed: the id cannot be used as a token of a subject.
    """
    found = str(server.get("server_id") or server.get("id"))
    if not found.isalnum():
        raise AskFailed("the server has no valid id: is it a NATS server?")
    return found
