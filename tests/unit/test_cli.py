from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tomllib
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyjs import cli
from pyjs.config.options import Options

SLEEP = "import sys; sys.stdout.write('x'); sys.stdout.flush(); sys.stdin.read()"


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Options]:
    """Replaces the server: collects the options that it would run with."""
    found: list[Options] = []

    def run(options: Options) -> int:
        found.append(options)
        return 0

    module = types.ModuleType("pyjs.server.command")
    module.run = run  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pyjs.server.command", module)
    return found


@pytest.fixture
def fake_server(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that looks like one of our servers and does nothing."""
    script = tmp_path / "pyjs-server"
    script.write_text(SLEEP)
    process = subprocess.Popen([sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.read(1)  # now it runs, with its own command line
    yield process
    process.kill()
    process.communicate()


def test_version_comes_with_the_line_of_nats_server_first(capsys: pytest.CaptureFixture[str]) -> None:
    for argv in (["-v"], ["--version"], ["version"], ["-p", "5", "VERSION"], ["-v", "--cluster", "x"]):
        assert cli.main(argv) == 0
        assert capsys.readouterr().out == "nats-server: v2.15.1\npyjs-server: v0.1.0\n"


def test_help_prints_the_flags(capsys: pytest.CaptureFixture[str]) -> None:
    for argv in (["-h"], ["--help"], ["help"]):
        assert cli.main(argv) == 0
        assert capsys.readouterr().out.startswith("Usage: pyjs-server [options]\n")


def test_help_and_the_error_for_an_unknown_command_show_all_commands(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cli.main(["help"])
    usages = [line for line in capsys.readouterr().out.splitlines() if line.startswith("       pyjs-server ")]
    cli.main(["foo"])
    told = capsys.readouterr().err.partition("the commands are ")[2].partition("; ")[0].split(", ")
    assert [*(line.split()[1] for line in usages), "version", "help"] == told


@pytest.mark.parametrize(
    ("argv", "code", "text"),
    [
        (["--bogus"], 2, "flag provided but not defined: -bogus"),
        (["-p"], 2, "flag needs an argument: -p\n\nUsage: pyjs-server"),
        (["foo"], 1, 'nats-server: unrecognized command: "foo"; the commands are fsck, import, '),
        (["-t"], 1, "nats-server: must specify [-c, --config] option to check configuration file syntax\n"),
        (["-c", "missing"], 1, "nats-server: open missing: no such file or directory; "),
        (["-t", "-c", "missing"], 1, "nats-server: open missing: no such file or directory; "),
        (["--cluster", "nats://x"], 1, 'nats-server: --cluster: "nats://x" has no host or no port; '),
        (["-routes=nats://h:1", "-js"], 1, "nats-server: routes need a cluster port; add port: 6222"),
        (["--profile", "1"], 1, "nats-server: --profile is not supported yet\n"),
        (["--tls"], 1, "nats-server: TLS Server certificate must be present and valid; add --tlscert\n"),
        (["-s"], 1, "nats-server: -s is not supported yet\n"),
        (["-p", "99999"], 1, "nats-server: --port is 99999, no port; "),
        (["-sl", "foo"], 1, 'nats-server: unknown signal "foo"; the signals are stop, quit'),
        (["-sl", "reloda"], 1, 'did you mean "reload"?'),
        (["-sl", "a=b=c"], 1, "nats-server: invalid signal parameters: [c]"),
        (["-sl", "stop=abc"], 1, "nats-server: invalid pid: abc; "),
        (["-sl", "stop=0"], 1, "nats-server: invalid pid: 0; "),
        (["-sl", "stop=\u00b2"], 1, "nats-server: invalid pid: \u00b2; "),
        (["-sl", "stop=" + "9" * 5000], 1, "nats-server: invalid pid: 999"),
        (["-sl", "stop=999999999"], 1, 'nats-server: signal "stop" 999999999: no such process'),
        (["-sl", "stop=99999999999999999999"], 1, 'nats-server: signal "stop" 99999999999999999999: '),
        (["-sl", "stop=0*"], 1, "nats-server: no pyjs-server processes running"),
    ],
)
def test_what_cannot_be_done_is_told_with_a_code(
    capsys: pytest.CaptureFixture[str], argv: list[str], code: int, text: str
) -> None:
    assert cli.main(argv) == code
    captured = capsys.readouterr()
    assert text in captured.err
    assert captured.out == ""


def test_a_valid_file_is_reported_with_its_digest(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "server.conf"
    path.write_text("port = 4222")
    assert cli.main(["-t", "-c", str(path)]) == 0
    digest = "797533ebd0dfba7d34a0f9337ecf147e442871f48ddfd07ed751575a5737267e"
    line = f"nats-server: configuration file {path} is valid (sha256:{digest})\n"
    assert capsys.readouterr().err == line


def test_a_wrong_file_is_reported_with_its_place(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "server.conf"
    path.write_text("port: 99999\nprot: 1")
    assert cli.main(["-t", "-c", str(path)]) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(f'nats-server: {path}:1:7: "port" is 99999')
    assert second.startswith(f'{path}:2:1: unknown field "prot"')


def test_a_wrong_declared_stream_is_reported_with_its_place(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "server.conf"
    path.write_text("jetstream { streams { S { max_age: 5m } } }")
    expected = f'nats-server: {path}:1:36: "max_age" is the number 5000000 without quotes around 5m; '
    for argv in (["-t", "-c", str(path)], ["plan", "-c", str(path)]):
        assert cli.main(argv) == 1
        assert capsys.readouterr().err.startswith(expected)


def test_a_declared_stream_is_valid(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "server.conf"
    path.write_text("listen: 127.0.0.1:1\njetstream { streams { S {} } }")
    assert cli.main(["-t", "-c", str(path)]) == 0
    assert cli.main(["-c", str(path), "plan"]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(
        "plan: no connection to 127.0.0.1:1 (connection refused): start the server, or give"
    )


def test_a_plan_without_a_file_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["plan"]) == 1
    assert capsys.readouterr().err.startswith("plan: -c FILE is missing\n\nUsage: pyjs-server plan -c FILE")


def test_a_warning_fails_the_check_and_not_the_start(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, started: list[Options]
) -> None:
    path = tmp_path / "server.conf"
    path.write_text("ping_interval: 30")
    assert cli.main(["-t", "-c", str(path)]) == 1
    checked = capsys.readouterr().err
    assert cli.main(["-c", str(path)]) == 0
    assert checked == "nats-server: " + capsys.readouterr().err
    assert started[0].limits.ping_interval_ns == 30_000_000_000


def test_a_key_that_is_set_twice_does_not_fail_the_check(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "server.conf"
    path.write_text("port: 4222\nport: 4223")
    assert cli.main(["-t", "-c", str(path)]) == 0
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(
        f'nats-server: {path}:2:1: "port" is set twice in this block, first at {path}:1:1, '
    )
    assert second.startswith(f"nats-server: configuration file {path} is valid (sha256:")


def test_the_configuration_in_effect_is_printed_without_secrets(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, started: list[Options]
) -> None:
    path = tmp_path / "a.conf"
    path.write_text(
        'port: 4333\njetstream { store_dir: "/data" }\n'
        "authorization { users: [{ user: u, password: hush, permissions: { publish: a } }] }\n"
        'cluster { port: 6333, name: C, routes: ["nats://u:hush@h:6222"]\n'
        "authorization { user: u, password: hush } }\n"
    )

    assert cli.main(["-c", str(path), "--print-config", "--name", "N"]) == 0
    text = capsys.readouterr().out
    shown = json.loads(text)
    assert (shown["port"], shown["server_name"], shown["max_payload"]) == (4333, "N", 1 << 20)
    assert shown["jetstream"]["store_dir"] == "/data/jetstream"
    assert "hush" not in text
    assert started == []


def test_flags_and_file_become_the_options_of_the_server(tmp_path: Path, started: list[Options]) -> None:
    path = tmp_path / "server.conf"
    path.write_text("port: 1\nserver_name: file\nhttp: 127.0.0.1:2")
    argv = ["-c", str(path), "-a", "::", "--port=-1", "-js", "-sd", "/x", "-DV", "-P", "pid", "-T=false"]
    assert cli.main(argv) == 0
    options = started[0]
    assert (options.host, options.port, options.monitoring.http_port, options.server_name) == (
        "::",
        -1,
        2,
        "file",
    )
    assert (options.jetstream.enabled, options.jetstream.store_dir) == (True, "/x")
    assert (options.log.debug, options.log.trace, options.log.logtime, options.pid_file) == (
        True,
        True,
        False,
        "pid",
    )
    assert options.config_path == str(path)
    assert options.config_digest.startswith("sha256:")


def test_the_arguments_of_the_process_are_the_default(
    monkeypatch: pytest.MonkeyPatch, started: list[Options]
) -> None:
    monkeypatch.setattr(sys, "argv", ["pyjs-server", "-p", "5"])
    assert cli.main() == 0
    assert started[0].port == 5
    assert started[0].config_path is None


def test_the_exit_code_of_the_server_is_ours(monkeypatch: pytest.MonkeyPatch, started: list[Options]) -> None:
    monkeypatch.setattr(sys.modules["pyjs.server.command"], "run", lambda options: 1)
    assert cli.main([]) == 1


class Without:
    """An import finder that reports one package as missing."""

    def __init__(self, finder: Any, name: str) -> None:
        self.finder = finder
        self.name = name

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        return None if name == self.name else self.finder.find_spec(name, path, target)


@pytest.mark.parametrize("argv", [[], ["fsck", "somewhere"]])
def test_a_package_that_is_missing_is_named_before_anything_is_served(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    started: list[Options],
    argv: list[str],
) -> None:
    monkeypatch.setattr(sys, "meta_path", [Without(finder, "msgpack") for finder in sys.meta_path])
    assert cli.main(argv) == 1
    assert capsys.readouterr().err == (
        f"nats-server: {sys.executable} lacks what the server needs: msgpack; "
        "install it, as by `pip install msgpack`\n"
    )
    assert started == []


def test_the_packages_that_are_looked_for_are_the_dependencies() -> None:
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    # uvloop is not required on every platform
    needed = [each for each in project["dependencies"] if ";" not in each]
    names = [re.split("[>=<]", each)[0] for each in needed]
    names.remove("pydantic")  # no part of the server imports it, only programs that import pyjs.models
    assert names == list(cli.PACKAGES)
    assert cli.missing_packages() == []


def test_bytes_that_are_no_utf8_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "latin"
    path.write_bytes(b"pass\xe4\r\n")
    assert cli.read_file(str(path)).encode("utf-8", "surrogateescape") == b"pass\xe4\r\n"


# Signals


@pytest.mark.parametrize("how", ["pid", "pid file"])
def test_a_signal_reaches_the_process_that_is_named(
    tmp_path: Path, fake_server: subprocess.Popen[bytes], how: str
) -> None:
    pid_file = tmp_path / "pid"
    pid_file.write_text(str(fake_server.pid))
    target = str(pid_file) if how == "pid file" else str(fake_server.pid)
    assert cli.main(["--signal", f"term={target}"]) == 0
    assert fake_server.wait(timeout=30) == -signal.SIGTERM


@pytest.mark.parametrize("how", ["flag", "config"])
def test_without_a_pid_the_pid_file_is_looked_at(
    tmp_path: Path, fake_server: subprocess.Popen[bytes], how: str
) -> None:
    pid_file = tmp_path / "pid"
    pid_file.write_text(f"{fake_server.pid}\n")
    config = tmp_path / "server.conf"
    config.write_text(f"pid_file: '{pid_file}'")
    where = ["-P", str(pid_file)] if how == "flag" else ["-c", str(config)]
    assert cli.main(["-sl=stop", *where]) == 0
    assert fake_server.wait(timeout=30) == -signal.SIGKILL


def test_without_pid_file_the_only_server_that_runs_is_found(
    monkeypatch: pytest.MonkeyPatch, fake_server: subprocess.Popen[bytes]
) -> None:
    assert fake_server.pid in cli._server_pids()
    monkeypatch.setattr(cli, "_server_pids", lambda: [fake_server.pid])
    assert cli.main(["-sl", "term"]) == 0
    assert fake_server.wait(timeout=30) == -signal.SIGTERM


def test_a_star_stands_for_the_rest_of_pids(
    monkeypatch: pytest.MonkeyPatch, fake_server: subprocess.Popen[bytes]
) -> None:
    monkeypatch.setattr(cli, "_server_pids", lambda: [fake_server.pid])
    assert cli.main(["-sl", f"term={str(fake_server.pid)[:-1]}*"]) == 0
    assert fake_server.wait(timeout=30) == -signal.SIGTERM


@pytest.mark.parametrize(
    ("pids", "text"),
    [([], "no pyjs-server processes running"), ([7, 9], "multiple pyjs-server processes running, name one")],
)
def test_no_server_or_several_are_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], pids: list[int], text: str
) -> None:
    monkeypatch.setattr(cli, "_server_pids", lambda: pids)
    assert cli.main(["-sl", "reload"]) == 1
    assert text in capsys.readouterr().err


def test_a_wrong_config_of_a_signal_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "server.conf"
    path.write_text("prot: 1")
    assert cli.main(["-sl", "reload", "-c", str(path)]) == 1
    assert 'unknown field "prot"' in capsys.readouterr().err


def test_without_proc_a_pid_must_be_given(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(path: str) -> list[str]:
        raise FileNotFoundError(path)

    monkeypatch.setattr(os, "listdir", refuse)
    assert cli.main(["-sl", "reload"]) == 1
    assert "unable to resolve pid, try providing one" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "server"),
    [
        ("/usr/bin/python3 /opt/bin/pyjs-server -js", True),
        ("python3.11 -m pyjs -p 5", True),
        ("/venv/bin/python /tmp/nats-server -c x", True),
        ("/opt/pyjs-server", True),
        ("/usr/bin/nats-server -js", False),
        ("python3 -m pytest pyjs-server", False),
        ("vim pyjs-server", False),
        ("python3 /opt/bin/pyjs-server --signal reload", False),
        ("", False),
    ],
)
def test_a_server_is_known_by_its_command_line(command: str, server: bool) -> None:
    assert cli.is_server_command(command.split()) is server


def test_a_process_that_ended_has_no_command() -> None:
    assert cli._command_of(999_999_999) == []


def test_reading_a_configuration_loads_nothing_that_is_slow() -> None:
    code = "import sys; bare = set(sys.modules); import pyjs.cli, pyjs.config.tables; print(*set(sys.modules) - bare)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    slow = "asyncio pydantic argparse uvloop"
    assert not set(run.stdout.split()) & set(slow.split())


def test_the_package_runs_as_a_module() -> None:
    run = subprocess.run([sys.executable, "-m", "pyjs", "-v"], capture_output=True, text=True, check=True)
    assert run.stdout.startswith("nats-server: v2.15.1\n")
