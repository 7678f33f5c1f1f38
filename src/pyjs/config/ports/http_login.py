"""The block `http_authorization`: the login of the monitoring port. nats-server has no such login."""

from __future__ import annotations

from pyjs.config.errors import Refused
from pyjs.config.kinds import BOOL, STRING, fill
from pyjs.config.options import HttpLogin
from pyjs.config.table import Key, Kind, Reading, Table
from pyjs.config.values import Value

HTTP_LOGIN = Table(
    "http_authorization",
    (
        Key("user", STRING, "The user name, for HTTP Basic.", ("username",)),
        Key("password", STRING, "The password for HTTP Basic, or its bcrypt hash.", ("pass",), secret=True),
        Key("token", STRING, "The bearer token, or its bcrypt hash.", secret=True),
        Key("healthz_open", BOOL, "Answer /healthz without a login, for probes."),
        Key("messages", BOOL, "Let anyone with this login read stored messages in the dashboard."),
        Key("replay", BOOL, "Let anyone with this login replay dead letters in the dashboard."),
    ),
)


def _read_login(reading: Reading, key: Key, value: Value, target: object) -> HttpLogin:
    found = len(reading.problems)
    login = fill(reading, HTTP_LOGIN, key, value, "user: ops, password: secret", HttpLogin())
    if len(reading.problems) == found:
        fix = "add user and password, or token"
        if not login.token and not login.user:
            raise Refused(value.place, '"http_authorization" has neither user nor token', fix)
        if bool(login.user) != bool(login.password):
            raise Refused(value.place, '"http_authorization" has a user or a password, not both', fix)
    return login


HTTP_LOGIN_BLOCK = Kind("map", _read_login, "{}", HTTP_LOGIN)
