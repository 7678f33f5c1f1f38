"""Plays a history on a real server, and checks after each edit that the streams equal the file.

The file declares the streams of account A. Account R gets the same configurations by plain requests, and must end
with the same streams.
"""

from __future__ import annotations

import io
import json
import os
import time
from pathlib import Path
from typing import Any

from tests.conformance.harness.process import ServerProcess, our_command
from tests.declared.making import Step, Way, make
from tests.support.raw import RawClient

from pyjs.config.errors import ConfigError
from pyjs.config.load import load_options
from pyjs.operating import plan
from pyjs.server.declaring.part import read_declared

ACCOUNTS = """
accounts {
  A { users: [{user: a, password: p}], jetstream { BLOCKS } }
  R { users: [{user: r, password: p}], jetstream: enabled }
}
jetstream { store_dir: "<<store>>" }
"""
WAIT_S = 30.0
Report = dict[str, Any]


class Mismatch(AssertionError):
    """The server and the file differ."""


class Played:
    """One server with its file."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._server = ServerProcess(our_command(), "", directory, with_http=False, may_fork=True)

    def play(self, history: list[Step]) -> None:
        """Play a history. Raises Mismatch."""
        self._server._config = ACCOUNTS.replace("BLOCKS", "")
        self._server.start()
        try:
            for at, step in enumerate(history):
                try:
                    self._step(step)
                except AssertionError as error:
                    raise Mismatch(
                        f"step {at}, {step.way.value}: {error}\n{step.file()}\n{step.drift}"
                    ) from error
        finally:
            self._server.kill()

    def _step(self, step: Step) -> None:
        self._drift(step)
        before = self._names()
        self._server._config = ACCOUNTS.replace("BLOCKS", step.file())
        path = self._write()
        code, planned = self._plan(path)
        if code == 1:
            self._expect_refusal(before)
            return
        way = Way.RELOAD if self._has_memory() else step.way
        self._apply(step, way)
        self._expect_applied(step, way, planned, before)

    def _write(self) -> Path:
        """Write the file of a running server, as an operator edits it."""
        path = self._server.config_path
        head = path.read_text("utf-8").splitlines()[:2]
        text = self._server._config.replace("<<store>>", str(self._directory / "store"))
        path.write_text("\n".join([*head, text]), "utf-8")
        return path

    def _client(self, user: str) -> RawClient:
        connect = b'CONNECT {"verbose":false,"headers":true,"no_responders":true,"user":"%b","pass":"p"}\r\n'
        return RawClient(self._server.port, connect=connect % user.encode())

    def _drift(self, step: Step) -> None:
        client = self._client("a")
        for words, body in step.drift:
            if words == "PUB":
                client.send(b"PUB %b 5\r\nhello\r\n" % body["subject"].encode())
            else:
                client.request(b"$JS.API." + words.encode(), json.dumps(body).encode() if body else b"")
        client.fence()
        client.close()

    def _names(self) -> set[str]:
        client = self._client("a")
        names = set(client.api("STREAM.NAMES")["streams"] or ())
        client.close()
        return names

    def _plan(self, path: Path) -> tuple[int, Report]:
        """Return the exit code and the plan of account A."""
        out, err = io.StringIO(), io.StringIO()
        arguments = plan.parse(["-c", str(path), "--json"])
        try:
            options = load_options(str(path), lambda name: Path(name).read_text("utf-8"), os.environ, {})
            declared = read_declared(options)
        except ConfigError as error:
            return 1, {"error": str(error)}
        code = plan.run(arguments, options, declared, out, err)
        assert code != 1, err.getvalue()
        accounts = json.loads(out.getvalue())["accounts"]
        return code, accounts[0] if accounts else {"assets": []}

    def _expect_refusal(self, before: set[str]) -> None:
        assert "Failed to reload" in self._reload("Failed to reload server configuration")
        assert self._names() == before, "a refused reload changed streams"

    def _reload(self, end: str) -> str:
        """Reload; return the new part of the log when it has `end`."""
        start = len(self._log())
        self._server.signal("HUP")
        return self._wait(end, start)

    def _wait(self, end: str, start: int = 0) -> str:
        deadline = time.monotonic() + WAIT_S
        while end not in self._log()[start:]:
            assert time.monotonic() < deadline, f"no {end!r} in\n{self._log()[start:]}"
            time.sleep(0.002)  # a log file has no event to wait for
        return self._log()[start:]

    def _log(self) -> str:
        return (self._directory / "log").read_text("utf-8", "replace")

    def _has_memory(self) -> bool:
        """Return whether a stream is in memory: it is lost at a restart, so that the plan before it is another."""
        client = self._client("a")
        infos = client.api("STREAM.LIST")["streams"]
        client.close()
        return any(each["config"]["storage"] == "memory" for each in infos)

    def _apply(self, step: Step, way: Way) -> None:
        if way is Way.RELOAD:
            self._server_log = self._reload("Reloaded server configuration")
            start = len(self._log()) - len(self._server_log)
            if "{ " in step.file():
                self._server_log = self._wait("Declared in account A: ", start)
                self._server_log = self._wait_totals(start)
            return
        if way is Way.RESTART:
            self._server.stop()
        elif way is Way.KILL:
            self._server.signal("HUP")
            time.sleep(step.kill_after_ms / 1000)  # the fault comes at any moment
            self._server.kill()
        else:
            self._server.stop()
            self._server._spawn()
            time.sleep(0.1 + step.kill_after_ms / 200)  # the fault comes at any moment of the start
            self._server.kill()
        self._server.start()
        self._server_log = self._log()

    def _wait_totals(self, start: int) -> str:
        deadline = time.monotonic() + WAIT_S
        while not any(_is_total(line) for line in self._log()[start:].splitlines()):
            assert time.monotonic() < deadline, self._log()[start:]
            time.sleep(0.002)  # a log file has no event to wait for
        return self._log()[start:]

    # -- judging -------------------------------------------------------------------------------------------------

    def _expect_applied(self, step: Step, way: Way, planned: Report, before: set[str]) -> None:
        refused = {_key(each) for each in planned["assets"] if each["action"] == "refuse"}
        if way in (Way.RELOAD, Way.RESTART):
            self._expect_as_planned(planned)
        _, after = self._plan(self._server.config_path)
        for each in after["assets"]:
            expected = "refuse" if _key(each) in refused else "same"
            assert each["action"] == expected, f"planned {planned}, and now {each}"
        assert before <= self._names(), "a stream is gone"
        self._expect_equal(step, {name for _, name in refused})

    def _expect_as_planned(self, planned: Report) -> None:
        """Compare the log of the server with the plan before it."""
        words = {"create": ("+", "created"), "update": ("~", "updated"), "refuse": ("!", "")}
        wanted = []
        for each in planned["assets"]:
            if each["action"] != "same":
                sign, word = words[each["action"]]
                wanted.append(f"{sign} {each['kind']} {each['name']}  {word}")
        lines = [line.partition("Declared in account A: ")[2] for line in self._server_log.splitlines()]
        said = [line for line in lines if line[:2] in ("+ ", "~ ", "! ")]
        assert len(said) == len(wanted), f"planned {wanted}, done {said}"
        for line, start in zip(said, wanted, strict=True):
            assert line.startswith(start), f"planned {start}, done {line}"
            assert line[0] == "!" or "error" not in line

    def _expect_equal(self, step: Step, refused: set[str]) -> None:
        """Compare each stream and consumer with the one that plain requests create in account R."""
        mine, reference = self._client("a"), self._client("r")
        for name in reference.api("STREAM.NAMES")["streams"] or ():
            reference.api(f"STREAM.DELETE.{name}")
        for name, options in step.streams.items():
            if name in refused:
                continue
            made = reference.api(f"STREAM.CREATE.{name}", name=name, **options)
            found = mine.api(f"STREAM.INFO.{name}")
            config, wanted = _config(found), _config(made)
            if options.get("mirror", {}).get("name") in refused:  # account R does not have the origin
                wanted["mirror_direct"] = config["mirror_direct"]
            assert config == wanted, f"{name}: {config}, wanted {wanted}"
        for name, options in step.kv.items():
            if name not in refused:
                config = _config(mine.api(f"STREAM.INFO.KV_{name}"))
                assert (config["max_msgs_per_subject"], config["max_age"]) == (
                    options["history"],
                    options["ttl"],
                )
        for stream, consumers in step.consumers.items():
            for name, options in consumers.items():
                if stream in refused or f"{stream} > {name}" in refused:
                    continue
                body = {"durable_name": name, "name": name, **options}
                if stream in step.streams:
                    made = reference.api(f"CONSUMER.CREATE.{stream}.{name}", stream_name=stream, config=body)
                    found = mine.api(f"CONSUMER.INFO.{stream}.{name}")
                    assert _config(found) == _config(made), f"{stream} > {name}"
        mine.close()
        reference.close()


def _is_total(line: str) -> bool:
    said = line.partition("Declared in account A: ")[2]
    return bool(said) and said[:2] not in ("+ ", "~ ", "! ")


def _key(each: Report) -> tuple[str, str]:
    return each["kind"], each["name"]


def _config(info: Report) -> Report:
    """Return the configuration in an answer, without what the server or an operator adds."""
    config = dict(info["config"])
    metadata = {key: text for key, text in config.pop("metadata", {}).items() if not key.startswith("_nats.")}
    config.pop("pause_until", None)
    return {**config, "metadata": metadata}


def played(directory: Path, seed: int, nodes: int) -> Played:
    """Return the servers for a history."""
    if nodes == 1:
        return Played(directory)
    from tests.declared.cluster import PlayedCluster  # which is made from this module

    return PlayedCluster(directory, seed)


def run(seeds: range, directory: Path, tell: Any, steps: int = 5, nodes: int = 1) -> list[int]:
    """Play the histories of `seeds`; return those that differ."""
    failed = []
    for seed in seeds:
        place = directory / str(seed)
        place.mkdir()
        try:
            played(place, seed, nodes).play(make(seed, steps, nodes))
        except AssertionError as error:
            failed.append(seed)
            tell(f"seed {seed}: {error}")
    return failed
