"""Keys, tokens and credentials of operators, accounts and users, for tests and for a first try of operator mode.

The command

    python -m pyjs.testing.jwt DIRECTORY

writes an operator, the accounts SYS, ORDERS and BILLING, credentials of users, and a server.conf that uses them. The
files have the formats of `nsc`: tokens in `.jwt`, seeds in `.nk`, both together in `.creds`.
"""

from __future__ import annotations

import base64
import os
import sys
import time
from typing import TYPE_CHECKING

from pyjs.claims.token import encode
from pyjs.wire.nkeys import ACCOUNT, OPERATOR, SERVER, USER, KeyPair, seed_text

if TYPE_CHECKING:
    from typing import Any

NO_LIMITS = {"subs": -1, "data": -1, "payload": -1}
ACCOUNT_LIMITS = NO_LIMITS | {"imports": -1, "exports": -1, "wildcards": True, "conn": -1, "leaf": -1}
JETSTREAM = {"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1}
KINDS = {"operator": OPERATOR, "account": ACCOUNT, "user": USER, "server": SERVER}
WARNING = "Keep these files as you keep passwords."


class Key(KeyPair):
    """A key pair of one kind, with its seed."""

    def __init__(self, kind: str, seed: bytes | None = None) -> None:
        seed = os.urandom(32) if seed is None else seed
        super().__init__(seed, KINDS[kind])
        self.seed = seed_text(seed, KINDS[kind])  # the secret part

    def sign_nonce(self, nonce: str) -> str:
        """Return the signature of a nonce in the form that a client sends."""
        return base64.urlsafe_b64encode(self.sign(nonce.encode())).rstrip(b"=").decode()


def token(
    signer: KeyPair,
    kind: str,
    subject: str,
    name: str = "",
    nats: dict[str, Any] | None = None,
    issued_at: int | None = None,
    **claims: Any,
) -> str:
    """Return a token of any kind; `claims` are added to its top level, for example `exp`.

    `issued_at` is in seconds since the epoch; the default is the current time.
    """
    body = {"sub": subject, **claims, "nats": {"type": kind, "version": 2, **(nats or {})}}
    if name:
        body["name"] = name
    return encode(body, signer, int(time.time()) if issued_at is None else issued_at)


def operator_token(key: Key, name: str = "operator", **nats: Any) -> str:
    """Return the token of the operator that `key` belongs to, signed with this key."""
    return token(key, "operator", key.public, name, nats)


def account_token(
    operator: KeyPair,
    account: Key,
    name: str = "",
    limits: dict[str, Any] | None = None,
    issued_at: int | None = None,
    claims: dict[str, Any] | None = None,
    **nats: Any,
) -> str:
    """Return the token of an account, signed by `operator`.

    The account has no limits and no JetStream, unless `limits` contains them.
    """
    return token(
        operator,
        "account",
        account.public,
        name,
        {"limits": ACCOUNT_LIMITS | (limits or {}), **nats},
        issued_at,
        **(claims or {}),
    )


def user_token(
    signer: KeyPair,
    user: Key,
    name: str = "",
    issued_at: int | None = None,
    claims: dict[str, Any] | None = None,
    scoped: bool = False,
    **nats: Any,
) -> str:
    """Return the token of a user, signed by `signer`.

    With `scoped`, the role of the key `signer` determines the permissions.
    """
    limits = {} if scoped else NO_LIMITS
    return token(signer, "user", user.public, name, {**limits, **nats}, issued_at, **(claims or {}))


def credentials(jwt: str, user: Key) -> str:
    """Return the contents of a `.creds` file with the token `jwt` and the seed of `user`."""
    return (
        f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
        f"************************* IMPORTANT *************************\n{WARNING}\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user.seed}\n------END USER NKEY SEED------\n\n"
        "*************************************************************\n"
    )


# The command


def write_example(directory: str) -> list[str]:
    """Write the files of an operator with three accounts and four users, and a server.conf; return their paths.

    Raises:
        OSError: a file exists already or cannot be written.
    """
    os.makedirs(f"{directory}/accounts", mode=0o700, exist_ok=True)
    operator, system = Key("operator"), Key("account")
    written = {
        "operator.jwt": operator_token(operator, system_account=system.public),
        "operator.nk": operator.seed,
    }
    people = {"SYS": ["admin"], "ORDERS": ["alice", "bob"], "BILLING": ["carol"]}
    for name, users in people.items():
        account = system if name == "SYS" else Key("account")
        limits = {} if name == "SYS" else JETSTREAM
        written[f"accounts/{account.public}.jwt"] = account_token(operator, account, name, limits)
        written[f"{name}.nk"] = account.seed
        for user_name in users:
            user = Key("user")
            written[f"{user_name}.creds"] = credentials(user_token(account, user, user_name), user)
    written["server.conf"] = (
        f'operator: "{directory}/operator.jwt"\n'
        f'resolver {{ type: full, dir: "{directory}/accounts", allow_delete: true }}\n'
        f'jetstream {{ store_dir: "{directory}/store" }}\n'
    )
    for name, text in written.items():
        path = os.open(f"{directory}/{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text if text.endswith("\n") or name.startswith("accounts/") else text + "\n")
    return [f"{directory}/{name}" for name in written]


def main() -> int:
    """Run the command; return its exit code."""
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print("usage: python -m pyjs.testing.jwt DIRECTORY", file=sys.stderr)
        return 2
    try:
        written = write_example(os.path.abspath(sys.argv[1]))
    except OSError as error:
        print(f"{error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    print("\n".join(written))
    return 0


if __name__ == "__main__":
    sys.exit(main())
