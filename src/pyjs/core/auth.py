"""Who may connect: users with passwords or tokens, the accounts they belong to, their permissions.

Secrets are plain or bcrypt (`$2a$…`), told apart by their form as nats-server does. Knows nothing of the wire:
a session asks with what CONNECT said.

Source: nats.docs "Authentication"; tests/conformance/scenarios/auth.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyjs.core.handshake import ConnectOptions
from pyjs.core.permissions import Permissions

GLOBAL_ACCOUNT = "$G"
SYSTEM_ACCOUNT = "$SYS"


@dataclass(frozen=True, slots=True)
class User:
    """One identity. `secret` is its password or, for the token of the server, the token."""

    name: str
    secret: str
    account: str = GLOBAL_ACCOUNT
    permissions: Permissions | None = None


ANONYMOUS = User("", "")


def secret_matches(stored: str, given: str) -> bool:
    """Compare in constant time; a stored secret of the form $2a$… is a bcrypt hash."""
    if stored.startswith(("$2a$", "$2b$", "$2x$", "$2y$")):
        import bcrypt  # only servers with hashed passwords pay for it

        try:
            return bcrypt.checkpw(given.encode(), stored.encode())
        except ValueError:
            return False
    import hmac  # and only servers with passwords for this

    return hmac.compare_digest(stored.encode(), given.encode())


class Authenticator:
    """The identities of a server."""

    def __init__(self, users: list[User], token: str = "", no_auth_user: str = "") -> None:
        self.users = {user.name: user for user in users}
        self.token = token
        self.no_auth_user = self.users.get(no_auth_user)

    @property
    def required(self) -> bool:
        """Whether a client has to say who it is."""
        return bool(self.users or self.token)

    def authenticate(self, connect: ConnectOptions) -> User | None:
        """Return who the client is, None: refused."""
        if not self.required:
            return ANONYMOUS
        if connect.user or connect.nkey or connect.jwt:
            user = self.users.get(connect.user)
            return user if user is not None and secret_matches(user.secret, connect.password) else None
        if self.token and connect.auth_token:
            return ANONYMOUS if secret_matches(self.token, connect.auth_token) else None
        if connect.auth_token:
            return None
        return self.no_auth_user
