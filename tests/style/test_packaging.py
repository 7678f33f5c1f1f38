"""What is built works where it is installed: sdist and wheel in empty environments outside this tree, and the image.

One sdist and one wheel for the whole module. Both take the compiled modules of this tree, since their digests match;
a sample of the sdist, chosen by the commit, is compiled again; all of it with PYJS_PACKAGING=whole (make packaging).
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

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.xdist_group("packaging")]

IS_WHOLE = os.environ.get("PYJS_PACKAGING") == "whole"
MADE_EVERY = 20  # one module in so many is compiled from the sdist

USER_CODE = """
import pyjs
from pyjs.subjects.tokens import subject_matches

version: str = pyjs.__version__
wild: bool = subject_matches(b"orders.new", b"orders.*")
wrong: bool = subject_matches("orders.new", b"orders.*")
"""


def run(*command: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command that sees nothing of this tree but what it is given."""
    clean = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
    return subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**clean, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def install(what: Path, folder: Path, **environment: str) -> Path:
    """Install `what` into a new environment below `folder`; return its bin/."""
    assert run(sys.executable, "-m", "venv", "--without-pip", "venv", cwd=folder).returncode == 0
    python = folder / "venv" / "bin" / "python"
    done = run(sys.executable, "-m", "pip", "--python", python, "install", what, cwd=folder, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return python.parent


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with its compiled modules, and without what was built or fetched beside it."""
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
    pip = (sys.executable, "-m", "pip")
    done = run(*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", "dist", ".", cwd=tree)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = (tree / "dist").glob("*.whl")
    return built


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
    """Publish one message to a subscriber on the same connection; return what came back."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(b'CONNECT {"verbose":false}\r\nSUB greet.* 1\r\nPUB greet.joe 5\r\nhello\r\nPING\r\n')
        heard = b""
        while b"PONG" not in heard:
            heard += client.recv(65536)
    return heard


def assert_usable(folder: Path, programs: Path) -> None:
    """The command answers, a message passes, and mypy sees the types."""
    assert run(programs / "pyjs-server", "-v", cwd=folder).stdout.startswith("nats-server: v")
    with serving(folder, programs / "pyjs-server") as port:
        assert b"MSG greet.joe 1 5\r\nhello\r\n" in publish(port)
    (folder / "user.py").write_text(USER_CODE)
    mypy = (sys.executable, "-m", "mypy", "--strict", "--python-executable", programs / "python", "user.py")
    problems = run(*mypy, cwd=folder).stdout.splitlines()
    assert [line.split(":")[1] for line in problems if "error" in line and "user.py" in line] == ["7"]


def test_the_wheel_installs_and_serves(wheel: Path, tmp_path: Path) -> None:
    assert_usable(tmp_path, install(wheel, tmp_path))


def unpacked(sdist: Path, folder: Path) -> Path:
    """Return the sources of the sdist in `folder`, with the compiled modules of this tree that need not be made."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (top,) = folder.glob("pyjs*")
    for built in [] if IS_WHOLE else sorted((ROOT / "src").rglob("*.so")):
        name = built.relative_to(ROOT)
        if not is_chosen(name.as_posix(), commit_of_tree(), MADE_EVERY):
            shutil.copy2(built, top / name)
    return top


def test_the_sdist_installs_and_serves(sdist: Path, tmp_path: Path) -> None:
    source = unpacked(sdist, tmp_path)
    flags = {"PYJS_CFLAGS": "-O0"} if IS_WHOLE else {}  # they are part of the digests
    assert_usable(tmp_path, install(source, tmp_path, **flags))


def test_the_sdist_holds_all_sources_and_the_wheel_all_modules(sdist: Path, wheel: Path) -> None:
    src = ROOT / "src"
    sources = {
        path.relative_to(ROOT).as_posix()
        for path in src.rglob("*.[phP]*")
        if path.parent.name != "__pycache__"
    }
    modules = {path.relative_to(src).as_posix() for path in src.rglob("*.so")}

    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    with zipfile.ZipFile(wheel) as archive:
        unpacked = set(archive.namelist())

    assert sources - {name for name in sources if "egg-info" in name} - packed == set()
    assert modules - unpacked == set()
    assert "pyjs_build.py" not in unpacked


def test_without_a_compiler_pip_ends_with_the_package_to_install(sdist: Path, tmp_path: Path) -> None:
    pip = (sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation")

    done = run(*pip, sdist, cwd=tmp_path, CC="/nonexistent")

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
