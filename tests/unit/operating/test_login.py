"""Logins of operating commands: flags before variables, passwords from files, pipes and standard input."""

from __future__ import annotations

import io
import os
import threading
from pathlib import Path

import pytest

from pyjs.operating import login as operating
from pyjs.operating.connection import AskFailed, Login
from pyjs.operating.login import read_login

USER = {"NATS_USER": "v", "NATS_PASSWORD": "p"}


@pytest.mark.parametrize(
    ("options", "environment", "login"),
    [
        ({"user": "u"}, {**USER, "NATS_TOKEN": "t"}, Login("u", "p")),
        ({"user": "u", "password": "q"}, USER, Login("u", "q")),
        ({"user": "u"}, {"NATS_CREDS": "/missing"}, Login("u", "")),
        ({"token": "s"}, {**USER, "NATS_NKEY": "/missing"}, Login(token="s")),
        ({"password": "q"}, USER, Login("v", "q")),
        ({}, USER, Login("v", "p")),
        ({}, {"NATS_TOKEN": "t"}, Login(token="t")),
        ({}, {"NATS_PASSWORD": "p"}, None),
        ({}, {}, None),
    ],
)
def test_a_login_comes_from_flags_or_else_from_variables(
    options: dict[str, str], environment: dict[str, str], login: Login | None
) -> None:
    found = read_login(options, environment)
    assert found == login
    assert "password" not in repr(found)


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\nnotes about it\n"])
def test_a_password_is_the_first_line_of_a_file(tmp_path: Path, end: str) -> None:
    path = tmp_path / "password"
    path.write_bytes(f"pass word{end}".encode())
    assert read_login({"user": "u", "password-file": str(path)}, USER) == Login("u", "pass word")
    assert read_login({"password-file": str(path)}, USER) == Login("v", "pass word")


def test_a_password_comes_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("secret\n"))
    assert read_login({"user": "u", "password-file": "-"}, {}) == Login("u", "secret")


def test_a_terminal_does_not_show_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    leader, follower = os.openpty()
    with os.fdopen(follower, "r") as terminal, os.fdopen(leader, "rb"):
        monkeypatch.setattr("sys.stdin", terminal)
        monkeypatch.setattr("getpass.getpass", lambda prompt: f"typed after {prompt}")
        assert read_login({"user": "u", "password-file": "-"}, {}) == Login("u", "typed after Password: ")


def test_a_password_comes_from_a_pipe(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_text, args=("secret\n",))
    writer.start()
    assert read_login({"user": "u", "password-file": str(path)}, {}) == Login("u", "secret")
    writer.join()


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "password: its first line is empty"),
        (b"\nsecret", "password: its first line is empty"),
        (b"x" * (operating.SECRET_SIZE_MAX + 1), "password: its first line has more than 65536 bytes"),
        (b"\xff\xfe", "password: it is not text"),
    ],
)
def test_a_file_without_a_password_is_an_error(tmp_path: Path, data: bytes, text: str) -> None:
    path = tmp_path / "password"
    path.write_bytes(data)
    with pytest.raises(AskFailed, match=text):
        read_login({"user": "u", "password-file": str(path)}, {})


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"password-file": "f"}, "a password needs a user: add --user NAME"),
        ({"password": "p"}, "a password needs a user: add --user NAME"),
        ({"token": "t", "password": "p"}, "a password needs a user: add --user NAME"),
        ({"user": "u", "password": "p", "password-file": "f"}, "keep one of the two"),
        ({"user": "u", "password-file": "/missing"}, "--password-file /missing: no such file"),
        ({"creds": "/missing"}, "/missing: No such file or directory"),
        ({"creds": "EMPTY"}, "is not a credentials file: it has a token and a seed"),
    ],
)
def test_a_login_that_cannot_be_read_is_an_error(tmp_path: Path, options: dict[str, str], text: str) -> None:
    empty = tmp_path / "empty"
    empty.write_text("-----BEGIN")
    given = {name: str(empty) if value == "EMPTY" else value for name, value in options.items()}
    with pytest.raises(AskFailed, match=text):
        read_login(given, {})
