"""Runs the scripts of js/ with two generations of the JavaScript client against one server of each kind.

npm installs the packages once, in the versions that js/package.json names, into a folder outside the tree:
PYJS_NODE_MODULES, or a folder in the user's cache that is named after the versions. Every pair of script and
generation has its own account, so that one server can serve all of them at the same time and none sees another's
streams.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.conformance.harness.compare import value_differences

SCRIPTS_FOLDER = Path(__file__).resolve().parent.parent / "js"
SCRIPTS = sorted(path.stem for path in SCRIPTS_FOLDER.glob("*.mjs") if path.stem != "run")
GENERATIONS = ("nats2", "nats_io")
INSTALL_SECONDS = 120.0
RUN_SECONDS = 60.0
LIMITS = {"account": "{ max_mem: 16MB, max_file: 16MB, max_streams: 2, max_consumers: 1 }"}


class NotInstalled(Exception):
    """The packages are missing, and npm cannot install them."""


class ScriptFailed(Exception):
    """A script ended with an unexpected error; the text is its output."""


def packages() -> Path:
    """Return the folder with node_modules; install the packages of js/package.json if they are missing."""
    manifest = SCRIPTS_FOLDER / "package.json"
    given = os.environ.get("PYJS_NODE_MODULES")
    if given:
        return Path(given)
    digest = hashlib.sha256(manifest.read_bytes()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pyjs-server"
    folder = cache / f"node-{digest}"
    if not folder.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as directory:
            fresh = Path(directory) / "fresh"
            fresh.mkdir()
            shutil.copy(manifest, fresh)
            _install(fresh)
            with suppress(OSError):  # another test worker installed them first
                fresh.rename(folder)
    return folder


def _install(folder: Path) -> None:
    command = ["npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    if done.returncode:
        problem = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr)
        raise NotInstalled(f"npm cannot install what js/package.json names: {problem}")


def server_config() -> str:
    """Return the configuration of a server on which all scripts can run at the same time."""
    lines = [
        'jetstream { store_dir: "<<store>>", domain: hub, max_mem: 256MB, max_file: 1GB }',
        "accounts {",
    ]
    for script in SCRIPTS:
        for generation in GENERATIONS:
            name = f"{script}_{generation}"
            limits = LIMITS.get(script, "enabled")
            lines.append(f"  {name} {{ jetstream: {limits}, users: [{{ user: {name}, password: x }}] }}")
    return "\n".join([*lines, "}"])


def run(script: str, generation: str, port: int, modules: Path) -> list[Any]:
    """Return the values that a script printed, one per line of its output."""
    command = ["node", str(SCRIPTS_FOLDER / "run.mjs"), generation, script, str(port), str(modules)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_SECONDS)
    if done.returncode:
        raise ScriptFailed(f"{script} with {generation}:\n{done.stdout}\n{done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def differences(script: str, peer: list[Any], ours: list[Any]) -> list[str]:
    """Return the differences between the outputs of a script for the two servers, masked like recordings."""
    text = (SCRIPTS_FOLDER / f"{script}.mjs").read_text("utf-8")
    return value_differences(_by_step(peer), _by_step(ours), text)


def _by_step(said: list[Any]) -> dict[str, Any]:
    return {f"{number:02} {line['step']}": line["value"] for number, line in enumerate(said, 1)}
