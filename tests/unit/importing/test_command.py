"""The command: exit codes, output, and errors."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.nats_stores import Imports, make_source
from tests.support.node import options_with_store

from pyjs.base.disk import OsDisk
from pyjs.cli import main
from pyjs.store.format.layout import lock_store
from pyjs.testing import VirtualNode


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_source(tmp_path / "source", account="A", names=("QUEUE",))


def test_the_command_imports_into_the_store_directory_of_the_flag(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # when, then
    assert main(["import", "-sd", str(tmp_path / "ours"), str(source)]) == 0
    assert "A > QUEUE: 169 messages" in capsys.readouterr().out
    assert (tmp_path / "ours" / "jetstream" / "A" / "streams" / "QUEUE" / "meta.a").exists()


def test_the_command_imports_into_the_store_directory_of_the_configuration(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # given
    path = tmp_path / "server.conf"
    path.write_text(
        f'jetstream {{ store_dir: "{tmp_path}/ours", key: "a long secret" }}\n'
        "accounts { A { jetstream: enabled\n users: [{user: a, password: a}] } }\n"
    )
    # when, then
    assert main(["import", f"--config={path}", "--quiet", str(source / "jetstream")]) == 0
    assert "note: the configuration gives the account" not in capsys.readouterr().out
    assert main(["fsck", "--quiet", str(tmp_path / "ours")]) == 2  # it is encrypted


def test_an_account_without_jetstream_is_noted(source: Path, tmp_path: Path) -> None:
    # given
    imports = Imports(tmp_path)
    # when, then
    assert imports.run(str(source)) == 0
    assert "note: the configuration gives the account A no JetStream" in imports.out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "give the store directory of nats-server"),
        (["a", "b"], "give the store directory of nats-server"),
        (["a"], "give the store directory of this server: -sd DIR, or -c FILE"),
        (["--force", "a"], "there is no flag --force"),
        (["a", "-sd"], "flag needs an argument: -sd"),
        (["-sd", "/tmp/x", "/nowhere"], "/nowhere is no directory"),
        (["-c", "/nowhere", "a"], "/nowhere"),
    ],
)
def test_a_wrong_command_line_is_told(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import", *words]) == 2
    assert told in capsys.readouterr().err


def test_help_shows_the_flags(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", "--help"]) == 0
    assert "-sd, --store_dir DIR" in capsys.readouterr().out
    assert main(["--help"]) == 0
    assert "import [-c FILE] [-sd DIR] SOURCE_DIR" in capsys.readouterr().out


def test_a_directory_without_streams_is_refused(tmp_path: Path) -> None:
    # given
    (tmp_path / "source" / "jetstream").mkdir(parents=True)
    imports = Imports(tmp_path)
    # when, then
    assert imports.run(str(tmp_path / "source")) == 2
    assert "holds no streams of nats-server" in imports.err


def test_a_store_of_this_server_is_refused(tmp_path: Path) -> None:
    # given
    with VirtualNode(options_with_store(tmp_path / "source")) as node:
        node.client().request(b"$JS.API.STREAM.CREATE.S", b'{"name":"S","subjects":["s"]}')
    imports = Imports(tmp_path)
    # when, then
    assert imports.run(str(tmp_path / "source")) == 2
    assert "was written by pyjs-server" in imports.err


def test_the_directory_of_a_running_server_is_refused(source: Path, tmp_path: Path) -> None:
    # given
    imports = Imports(tmp_path)
    imports.holders = [17, 18]
    # when, then
    assert imports.run(str(source)) == 2
    assert f"{source}/jetstream is in use by process 17, 18: stop nats-server first" in imports.err
    assert not imports.store.exists()


def test_the_store_of_a_running_server_is_refused(source: Path, tmp_path: Path) -> None:
    # given
    imports = Imports(tmp_path)
    lock = lock_store(OsDisk(), str(imports.store))
    # when, then
    assert imports.run(str(source)) == 2
    assert "is in use by another server" in imports.err
    lock.release()


def test_what_holds_no_streams_is_named(source: Path, tmp_path: Path) -> None:
    # given
    (source / "jetstream" / "A" / "templates").mkdir()
    imports = Imports(tmp_path)
    # when, then
    assert imports.run(str(source)) == 0
    assert "not taken: A/templates holds no streams\n" in imports.out


def test_leftovers_of_a_killed_import_are_removed(source: Path, tmp_path: Path) -> None:
    # given
    imports = Imports(tmp_path)
    (imports.store / "A" / "streams" / ".deleting-0-restore" / "QUEUE").mkdir(parents=True)
    # when, then
    assert imports.run(str(source)) == 0
    assert imports.left() == []


def test_names_of_files_that_are_no_text_are_told_and_forge_no_line(source: Path, tmp_path: Path) -> None:
    # given
    streams = source / "jetstream" / "A" / "streams"
    os.makedirs(os.fsencode(source / "jetstream") + b"/\xff/streams/x")
    os.makedirs(os.fsencode(streams) + b"/\xfe")
    (streams / "a\nImported 9 streams").mkdir()
    # when
    imports = Imports(tmp_path)
    assert imports.run(str(source)) == 1
    # then
    lines = imports.out.encode().decode().splitlines()
    assert sum(line.startswith("Imported ") for line in lines) == 1
    assert any(line.startswith("\\xff > x: NOT TAKEN") for line in lines)
    assert any(line.startswith("A > QUEUE: 169 messages") for line in lines)


def test_a_directory_is_not_imported_into_itself(source: Path, tmp_path: Path) -> None:
    imports = Imports(tmp_path)
    imports.options.jetstream.store_dir = str(source)
    assert imports.run(str(source)) == 2
    assert "give another store directory" in imports.err
    assert not (source / "jetstream" / ".lock").exists()
