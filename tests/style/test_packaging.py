"""The built packages work when installed: sdist and wheel in empty environments outside this tree, and the image.

One sdist and one wheel are built for the whole module. Both contain the compiled modules of this tree, since their
digests match. A sample of the sdist, chosen by the commit, is compiled again; with PYJS_PACKAGING=whole (make
packaging) all of it. The wheel is installed with its dependencies. The sdist, which must have the same dependencies,
is installed into a copy of that environment in place of the wheel.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.style.tree import ROOT, project_files
from tests.support.turns import commit_of_tree, is_chosen

from pyjs.cli import main

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

IS_WHOLE = os.environ.get("PYJS_PACKAGING") == "whole"
MADE_EVERY = 40  # one module in this many is compiled from the sdist

USER_CODE = """
import pyjs
from pyjs.subjects.tokens import subject_matches

version: str = pyjs.__version__
wild: bool = subject_matches(b"orders.new", b"orders.*")
wrong: bool = subject_matches("orders.new", b"orders.*")
"""


def run(*command: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command that has no access to this tree except through its arguments."""
    clean = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
    return subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**clean, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def pip(programs: Path, *words: str | Path, **environment: str) -> None:
    """Run pip on the environment with the folder `programs`."""
    command = (sys.executable, "-m", "pip", "--python", programs / "python", *words)
    done = run(*command, cwd=programs, **environment)
    assert done.returncode == 0, done.stdout + done.stderr


def requirements(metadata: str) -> list[str]:
    """Return the requirements in the metadata of a distribution."""
    return [line for line in metadata.splitlines() if line.startswith(("Requires-", "Provides-Extra"))]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with its compiled modules, without other built or fetched files."""
    copy = tmp_path_factory.mktemp("tree")
    for path in [*project_files(), *(ROOT / "src").rglob("*.so")]:
        target = copy / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
    return copy


@pytest.fixture(scope="module")
def sdist(tree: Path) -> Path:
    script = "from setuptools.build_meta import build_sdist; print(build_sdist('dist'))"
    done = run(sys.executable, "-c", script, cwd=tree)
    assert done.returncode == 0, done.stderr
    return tree / "dist" / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def wheel(tree: Path) -> Path:
    command = (sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", "dist", ".")
    done = run(*command, cwd=tree)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = (tree / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a new environment with the wheel and its dependencies."""
    folder = tmp_path_factory.mktemp("installed")
    assert run(sys.executable, "-m", "venv", "--without-pip", "venv", cwd=folder).returncode == 0
    programs = folder / "venv" / "bin"
    pip(programs, "install", "--no-compile", wheel)
    return programs


@pytest.fixture(scope="module")
def types(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache for mypy with the parsed standard library."""
    return tmp_path_factory.mktemp("types")


@contextmanager
def serving(folder: Path, program: Path) -> Iterator[int]:
    """Run the installed server and yield its port."""
    flags = ["--addr", "127.0.0.1", "--port", "-1", "--jetstream", "--store_dir", str(folder / "store")]
    server = subprocess.Popen([program, *flags], cwd=folder, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr
        heard = ""
        for line in server.stderr:
            heard += line
            if "Server is ready" in line:
                break
        port = re.search(r"Listening for client connections on 127.0.0.1:(\d+)", heard)
        assert port, heard
        yield int(port[1])
    finally:
        server.terminate()
        server.communicate(timeout=20)


def publish(port: int) -> bytes:
    """Publish one message to a subscriber on the same connection; return the received bytes."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(b'CONNECT {"verbose":false}\r\nSUB greet.* 1\r\nPUB greet.joe 5\r\nhello\r\nPING\r\n')
        heard = b""
        while b"PONG" not in heard:
            heard += client.recv(65536)
    return heard


def assert_usable(folder: Path, programs: Path, types: Path) -> None:
    """Check that the command runs, a message is delivered, and mypy sees the types."""
    assert run(programs / "pyjs-server", "-v", cwd=folder).stdout.startswith("nats-server: v")
    with serving(folder, programs / "pyjs-server") as port:
        assert b"MSG greet.joe 1 5\r\nhello\r\n" in publish(port)
    (folder / "user.py").write_text(USER_CODE)
    mypy = (sys.executable, "-m", "mypy", "--strict", "--cache-dir", types)
    problems = run(
        *mypy, "--python-executable", programs / "python", "user.py", cwd=folder
    ).stdout.splitlines()
    assert [line.split(":")[1] for line in problems if "error" in line and "user.py" in line] == ["7"]


def test_the_wheel_installs_and_serves(installed: Path, types: Path, tmp_path: Path) -> None:
    assert_usable(tmp_path, installed, types)


def unpacked(sdist: Path, folder: Path) -> Path:
    """Return the sources of the sdist in `folder`, with those compiled modules of this tree that can be reused."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (top,) = folder.glob("pyjs*")
    for built in [] if IS_WHOLE else sorted((ROOT / "src").rglob("*.so")):
        name = built.relative_to(ROOT)
        if not is_chosen(name.as_posix(), commit_of_tree(), MADE_EVERY):
            shutil.copy2(built, top / name)
    return top


def test_the_sdist_installs_and_serves(sdist: Path, installed: Path, types: Path, tmp_path: Path) -> None:
    source = unpacked(sdist, tmp_path)
    flags = {"PYJS_CFLAGS": "-O0"} if IS_WHOLE else {}  # compiler flags are part of the digests
    shutil.copytree(installed.parent, tmp_path / "venv", symlinks=True)
    programs = tmp_path / "venv" / "bin"

    pip(programs, "uninstall", "--yes", "pyjs-server")
    assert not (programs / "pyjs-server").exists()
    pip(programs, "install", "--no-deps", "--no-compile", source, **flags)

    assert_usable(tmp_path, programs, types)


def test_the_sdist_and_the_wheel_ask_for_the_same_packages(sdist: Path, wheel: Path) -> None:
    with tarfile.open(sdist) as archive:
        (name,) = (each for each in archive.getnames() if each.count("/") == 1 and each.endswith("/PKG-INFO"))
        member = archive.extractfile(name)
        assert member
        of_sdist = requirements(member.read().decode())
    with zipfile.ZipFile(wheel) as packed:
        (name,) = (each for each in packed.namelist() if each.endswith(".dist-info/METADATA"))
        of_wheel = requirements(packed.read(name).decode())

    assert any("orjson" in line for line in of_wheel)
    assert of_sdist == of_wheel


def test_the_sdist_holds_all_sources_and_the_wheel_all_modules(sdist: Path, wheel: Path) -> None:
    src = ROOT / "src"
    sources = {
        path.relative_to(ROOT).as_posix()
        for path in src.rglob("*.[phP]*")
        if path.parent.name != "__pycache__"
    }
    assets = {path.relative_to(src).as_posix() for path in src.glob("pyjs/server/monitoring/assets/*")}
    modules = {path.relative_to(src).as_posix() for path in src.rglob("*.so")}

    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    with zipfile.ZipFile(wheel) as archive:
        unpacked = set(archive.namelist())

    assert sources - {name for name in sources if "egg-info" in name} - packed == set()
    assert modules - unpacked == set()
    assert {f"src/{name}" for name in assets} - packed == set()
    assert assets - unpacked == set()
    assert len(assets) > 1
    assert "pyjs_build.py" not in unpacked


def test_without_a_compiler_pip_ends_with_the_package_to_install(sdist: Path, tmp_path: Path) -> None:
    command = (sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation")

    done = run(*command, sdist, cwd=tmp_path, CC="/nonexistent")

    assert done.returncode != 0
    assert "apt install gcc libc6-dev python3-dev" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def docker_lines() -> list[list[str]]:
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    return [line.split(None, 1) for line in text.splitlines() if line and not line.startswith("#")]


def test_everything_that_the_image_copies_exists() -> None:
    copied = [shlex.split(rest) for word, rest in docker_lines() if word in ("COPY", "ADD")]
    sources = [source for words in copied if not words[0].startswith("--from") for source in words[:-1]]

    assert sources
    assert [source for source in sources if not (ROOT / source).exists()] == []
    needed = ["pyproject.toml", "README.md", "LICENSE", "src"]
    assert set(needed) <= set(sources)


def test_the_command_of_the_image_parses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "small.conf"
    config.write_text("debug: false")
    told = {word: json.loads(rest) for word, rest in docker_lines() if word in ("ENTRYPOINT", "CMD")}

    status = main([*told["ENTRYPOINT"][1:], "-t", "-c", str(config), *told["CMD"]])

    assert told["ENTRYPOINT"][0] == "pyjs-server"
    assert status == 0
    assert f"{config} is valid" in capsys.readouterr().err


def test_the_image_does_not_run_as_root() -> None:
    last_stage = [word for word, _ in docker_lines()]

    assert "USER" in last_stage[len(last_stage) - last_stage[::-1].index("FROM") :]
