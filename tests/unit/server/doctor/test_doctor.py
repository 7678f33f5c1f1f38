"""The doctor: mistakes of a new user, each with the advice that it gives."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conformance.harness.process import free_port
from tests.support.certificates import Authority

from pyjs import cli
from pyjs.config.load import load_options
from pyjs.config.options import AuthorizationOptions, Options, RouteUrl, TlsOptions, UserOptions
from pyjs.server.doctor import disk, machine
from pyjs.server.doctor.command import check
from pyjs.server.doctor.disk import check_store
from pyjs.server.doctor.files import check_files
from pyjs.server.doctor.findings import Finding, Level
from pyjs.server.doctor.machine import check_machine
from pyjs.server.doctor.network import check_network
from pyjs.server.doctor.outputs import check_outputs
from pyjs.server.doctor.secrets import secret_files


def about(findings: list[Finding], subject: str) -> Finding:
    """Return the finding about a subject."""
    (found,) = (each for each in findings if each.subject == subject)
    return found


def with_store(directory: Path) -> Options:
    options = Options()
    options.jetstream.enabled = True
    options.jetstream.store_dir = str(directory)
    options.jetstream.max_storage = 1 << 20
    return options


def test_a_port_that_is_taken_says_by_whom_to_find_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (found,) = check_network(Options(host="127.0.0.1", port=port))

    assert (found.level, found.text) == (Level.FAIL, f"127.0.0.1:{port}: address already in use")
    assert f"grep :{port}" in found.fix


def test_an_address_of_another_machine_is_refused() -> None:
    (found,) = check_network(Options(host="192.0.2.1", port=4222))

    assert found.level is Level.FAIL
    assert "this machine does not have that address" in found.fix


def test_a_server_of_the_cluster_that_does_not_answer_is_a_warning() -> None:
    options = Options(port=-1)
    with socket.create_server(("127.0.0.1", 0)) as other:
        options.cluster.routes = (RouteUrl("127.0.0.1", other.getsockname()[1], "", ""),)
        assert [each.level for each in check_network(options)] == [Level.OK]
        gone = other.getsockname()[1]
    options.cluster.routes = (RouteUrl("127.0.0.1", gone, "", ""),)

    (found,) = check_network(options)
    assert (found.level, found.subject) == (Level.WARN, "route")


def test_a_host_that_is_no_name_is_told() -> None:
    (found,) = check_network(Options(host="a..b", port=4222))
    assert (found.level, "neither an address nor a name" in found.text) == (Level.FAIL, True)
    options = Options(port=-1)
    options.cluster.routes = (RouteUrl("a..b", 6222, "", ""),)

    (found,) = check_network(options)
    assert (found.level, "neither an address nor a name" in found.text) == (Level.WARN, True)


def test_two_ports_that_are_the_same_fail() -> None:
    port = free_port()
    options = Options(host="127.0.0.1", port=port)
    options.monitoring.http_port = port

    found = list(check_network(options))
    assert [each.level for each in found] == [Level.OK, Level.FAIL]
    assert found[1].text == f"127.0.0.1:{port}: `port` is the same port"


def test_a_list_of_routes_may_have_the_server_itself() -> None:
    options = Options(port=-1)
    options.cluster.port = free_port()
    options.cluster.routes = (RouteUrl("localhost", options.cluster.port, "", ""),)
    assert [each.level for each in check_network(options)] == [Level.OK, Level.OK]
    options.cluster.host = "127.0.0.1"
    options.cluster.routes = (RouteUrl("127.0.0.2", options.cluster.port, "", ""),)

    assert [each.level for each in check_network(options)] == [Level.OK, Level.WARN]


@pytest.mark.parametrize("below", ["", "deep/er"])
def test_a_store_directory_that_is_a_file_fails(tmp_path: Path, below: str) -> None:
    path = tmp_path / "file"
    path.write_text("")

    (found,) = check_store(with_store(path / below))
    assert (found.level, found.text) == (Level.FAIL, f"{path} is not a directory")


def test_a_log_and_a_pid_file_need_their_directory(tmp_path: Path) -> None:
    options = Options(pid_file=str(tmp_path / "pid"))
    options.log.log_file = str(tmp_path)
    log, pid = check_outputs(options)
    assert (log.level, log.text) == (Level.FAIL, f"{tmp_path}: this is a directory")
    assert pid.level is Level.OK
    options.pid_file, options.log.log_file = str(tmp_path / "a" / "pid"), ""
    options.ports_file_dir = str(tmp_path / "b")

    pid, ports = check_outputs(options)
    assert (pid.level, pid.text) == (
        Level.FAIL,
        f"{tmp_path}/a/pid: there is no directory {tmp_path}/a",
    )
    assert ports.level is Level.WARN


def test_a_directory_that_cannot_be_written_names_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # replaced because root can write everywhere

    (found,) = check_store(with_store(tmp_path / "a" / "b"))
    assert (found.level, found.text) == (Level.FAIL, f"{tmp_path} cannot be written by this user")
    assert f"uid {os.getuid()}" in found.fix


def test_a_store_that_another_process_uses_is_refused(tmp_path: Path) -> None:
    code = "import sys; file = open(sys.argv[1], 'w'); print('x', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code, str(tmp_path / "file")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        found = about(list(check_store(with_store(tmp_path))), "store")
        other.kill()

    assert (found.level, found.text) == (Level.FAIL, f"{tmp_path} is in use by process {other.pid}")


@pytest.mark.parametrize(("kind", "level"), [("tmpfs", Level.WARN), ("nfs4", Level.WARN), ("ext4", Level.OK)])
def test_the_kind_of_file_system_matters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, level: Level
) -> None:
    monkeypatch.setattr(disk, "_file_system", lambda directory: kind)

    assert about(list(check_store(with_store(tmp_path))), "file system").level is level


def test_a_slow_disk_says_what_always_costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "_sync", lambda fd: 0.05)
    options = with_store(tmp_path)
    options.jetstream.sync_always = True

    found = about(list(check_store(options)), "sync")
    assert found.level is Level.WARN
    assert found.fix.endswith("a client that awaits each PubAck gets 20 a second")


def test_a_limit_above_the_free_space_is_a_warning(tmp_path: Path) -> None:
    options = with_store(tmp_path)
    options.jetstream.max_storage = 1 << 60

    assert "lower max_file_store" in about(list(check_store(options)), "disk").fix


def test_too_few_descriptors_and_too_many_workers_are_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.resource, "getrlimit", lambda which: (256, 256))
    found = list(check_machine(Options(workers=64)))

    assert about(found, "descriptors").level is Level.WARN
    assert about(found, "processors").fix == "start at most one worker for each core"


def test_a_container_with_half_a_core_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_read", lambda path: "50000 100000" if path == machine.QUOTA else "")

    found = about(list(check_machine(Options())), "processors")
    assert (found.level, found.text.endswith("limited to 0.5 by the container")) == (Level.WARN, True)


def test_a_file_with_passwords_that_everybody_can_read_is_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "server.conf"
    path.write_text("")
    path.chmod(0o644)
    options = Options(config_path=str(path))
    assert [each.level for each in check_files(options, {})] == [Level.OK]
    options.authorization = AuthorizationOptions(users=(UserOptions(user="u", password="hush"),))

    (found,) = check_files(options, {})
    assert (found.level, found.fix) == (Level.WARN, f"chmod o-rwx {path}")


@pytest.mark.parametrize(
    "text",
    [
        "jetstream { store_dir: x, key: hush }",
        "server_name: n\ncluster { name: c, port: 1, authorization { user: u, password: hush } }",
        'cluster { name: c, port: 1, routes: ["nats://r:hu%20sh@h:1"] }',
        'cluster { name: c, port: 1, routes: ["nats://hush@h:1"] }',
        "http: 1, http_authorization { token: hush }",
        'include "b.conf"',
    ],
)
def test_every_secret_and_its_file_is_found(text: str) -> None:
    texts = {"a.conf": text, "b.conf": "authorization { user: u, password: hush }"}
    options = load_options("a.conf", lambda path: texts[path], {}, {})
    read = {"a.conf": text} if "include" not in text else texts

    assert secret_files(options, read) == ({"a.conf"} if read is not texts else {"b.conf"})


def test_a_file_whose_password_is_a_variable_has_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "authorization { user: u, password: $SECRET }"
    monkeypatch.setenv("SECRET", "hush")
    options = load_options("a.conf", lambda path: text, os.environ, {})

    assert secret_files(options, {"a.conf": text}) == set()


def test_keys_and_certificates_of_all_ports_are_checked(tmp_path: Path) -> None:
    made = Authority(tmp_path).root  # valid for slightly less than 30 days
    made.key_file.chmod(0o644)
    options = Options()
    tls = TlsOptions(cert_file=str(made.cert_file), key_file=str(made.key_file))
    options.cluster.tls = options.websocket.tls = tls

    key, certificate = check_files(options, {})
    assert (key.level, key.fix) == (Level.WARN, f"chmod o-rwx {made.key_file}")
    assert (certificate.level, certificate.text.startswith("of cluster: valid until")) == (Level.WARN, True)


def test_a_certificate_that_ends_soon_is_a_warning(tmp_path: Path) -> None:
    made = Authority(tmp_path).root  # valid for slightly less than 30 days
    options = Options(tls=TlsOptions(cert_file=str(made.cert_file), key_file=str(made.key_file)))

    assert about(list(check_files(options, {})), "certificate").level is Level.WARN


def test_missing_packages_fail() -> None:
    (found, *_) = check(Options(port=-1), ["orjson"], {})

    assert (found.level, found.fix) == (Level.FAIL, "pip install orjson")


def test_the_command_prints_lines_or_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["-p", "-1", "-js", "-sd", str(tmp_path)]

    assert cli.main(["doctor", *words]) == 0
    assert "0 failed" in capsys.readouterr().out
    assert cli.main(["doctor", "--json", *words]) == 0
    subjects = [each["subject"] for each in json.loads(capsys.readouterr().out)]
    assert {"packages", "python", "memory", "store", "sync"} <= set(subjects)


def test_a_wrong_configuration_or_flag_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "a.conf"
    path.write_text("prot: 4222\n")

    assert cli.main(["doctor", "-c", str(path)]) == 1
    assert 'did you mean "port"' in capsys.readouterr().err
    assert cli.main(["doctor", "--nonsense"]) == 2
    assert "Usage: pyjs-server doctor" in capsys.readouterr().err
