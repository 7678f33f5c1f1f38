"""Plays one script against one server process and returns a recording.

It is single-threaded and uses non-blocking sockets. It waits for frames, and sleeps only before `until` asks again:
`sync` and the end of a script send a PING after everything else and read until its PONG; `wait` reads until the
frames have arrived. A timeout is recorded as a frame, since it is a result like any other.

A recording is JSON: `connections` (name -> frames in the order of arrival; a name opened again is `a#2`), `http`
(answers in the order of the script) and `runs` (connection -> the number of starts of the server at that time).
"""

from __future__ import annotations

import http.client
import json
import selectors
import shlex
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .frames import Frame, FrameReader
from .process import ServerProcess
from .script import Script, ScriptError, Step, unescape

Recording = dict[str, Any]

WAIT_SECONDS = 30.0
POLL_SECONDS = 0.01  # between two requests of `until`, so that server and player are not busy all the time
CONNECT_DEFAULTS: dict[str, Any] = {
    "verbose": False,
    "pedantic": False,
    "headers": True,
    "no_responders": True,
    "protocol": 1,
    "lang": "conformance",
    "version": "1",
}


def play(
    script: Script, command: list[str], directory: Path, on_worker: int = 0, *, is_spread: bool = False
) -> Recording:
    """Run `script` against a fresh server of `command` and return the recording.

    If `on_worker` is not 0, the server has that number of workers, and every client is connected to the last one. If
    `is_spread`, the workers share the streams.
    """
    config = f"workers: {on_worker}\n{script.config}" if on_worker else script.config
    command = [*command, "--spread_workers"] if is_spread else command
    server = ServerProcess(command, config, directory, script.uses_http, may_fork=not on_worker)
    server.start()
    player = Player(script, server, f"{server.name}-{on_worker}" if on_worker else server.name)
    try:
        for step in script.steps:
            player.do(step)
        player.finish()
    finally:
        player.drop()
        if on_worker:
            server.stop()  # this waits for the worker processes; those of a killed server end later
        server.kill()
    return player.recording


class Conn:
    """One client connection, its frames and how far the script has read them."""

    def __init__(self, name: str, port: int) -> None:
        self.name = name
        self.frames: list[Frame] = []
        self.cursor = 0  # the script has waited for all frames before this index
        self.closed = False
        self.requests = 0  # the number of inboxes used
        self.keep_pings = False
        self.socket = socket.create_connection(("127.0.0.1", port), WAIT_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = FrameReader()
        self._has_inbox = False

    def send(self, data: bytes) -> None:
        """Write `data`; ignore that the server has closed the connection."""
        try:
            self.socket.sendall(data)
        except OSError:
            pass

    def receive(self) -> None:
        """Read and record everything that has arrived."""
        try:
            data = self.socket.recv(1 << 20)
        except TimeoutError:
            return
        except OSError:
            data = b""
        for frame in self._reader.feed(data):
            self._record(frame)
        if not data:
            rest = self._reader.rest()
            self.frames += [rest] if rest else []
            self.frames.append({"op": "close"})
            self.closed = True
            self.socket.close()

    def inbox(self) -> str:
        """Return a new reply subject that this connection listens on."""
        if not self._has_inbox:
            self.send(f"SUB _INBOX.{self.name}.* inbox\r\n".encode())
            self._has_inbox = True
        self.requests += 1
        return f"_INBOX.{self.name}.{self.requests}"

    def _record(self, frame: Frame) -> None:
        if frame["op"] == "PING" and not self.keep_pings:
            self.send(b"PONG\r\n")
        else:
            self.frames.append(frame)


class Player:
    """Plays a script on a server: one method for each kind of statement."""

    def __init__(self, script: Script, server: ServerProcess, server_name: str) -> None:
        self.recording: Recording = {"connections": {}, "http": [], "runs": {}}
        self._script = script
        self._server_name = server_name  # of the worker process that the clients must be connected to
        self._server = server
        self._conns: dict[str, Conn] = {}
        self._runs = 1  # number of times the server was started
        self._selector = selectors.DefaultSelector()
        # connections that the server cannot write to: nothing reads from them before the end of the script
        self._stalled: list[socket.socket] = []

    def do(self, step: Step) -> None:
        """Carry out one step.

        Raises:
            ScriptError: the step makes no sense here.
        """
        try:
            getattr(self, "_" + step.verb.replace("-", "_"))(step.conn, step.text)
        except (KeyError, IndexError, ValueError, json.JSONDecodeError) as error:
            raise ScriptError(f"{self._script.name}:{step.line}: {step.verb}: {error!r}") from error

    def finish(self) -> None:
        """Wait until all open connections have received their answers, so that the recording is complete."""
        for name, conn in self._conns.items():
            if not conn.closed:
                self._sync(name, "")

    def drop(self) -> None:
        """Close every socket."""
        for stalled in self._stalled:
            stalled.close()
        for conn in self._conns.values():
            self._forget(conn)
        self._selector.close()

    # -- connections

    def _open(self, name: str, _text: str) -> None:
        conn = self._connection(name)
        connections = self.recording["connections"]
        count = sum(1 for key in connections if key.split("#")[0] == name)
        key = name if not count else f"{name}#{count + 1}"
        connections[key] = conn.frames
        self.recording["runs"][key] = self._runs
        self._conns[name] = conn
        self._selector.register(conn.socket, selectors.EVENT_READ, conn)
        self._wait_for(conn, 1, lambda frame: frame["op"] in ("INFO", "-ERR"), "INFO")

    def _connection(self, name: str) -> Conn:
        """Return a connection to the wanted worker: the kernel chooses one, so repeat until it is the right one."""
        if self._server_name == self._server.name:
            return Conn(name, self._server.port)
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            conn = Conn(name, self._server.port)
            while not conn.frames:
                conn.receive()
            info = conn.frames[0].get("info", {})
            if conn.closed or info.get("server_name") == self._server_name:
                return conn
            conn.socket.close()
            if time.monotonic() > deadline:
                raise ScriptError(f"no connection reaches {self._server_name}")

    def _connect(self, name: str, text: str) -> None:
        options = CONNECT_DEFAULTS | (json.loads(unescape(text)) if text else {})
        options = {key: value for key, value in options.items() if value is not None}
        self._open(name, "")
        conn = self._conns[name]
        conn.send(b"CONNECT " + json.dumps(options).encode() + b"\r\nPING\r\n")
        ended = "INFO" if options.get("protocol") == 1 else "PONG"
        self._wait_for(conn, 1, lambda frame: frame["op"] in (ended, "close"), "the second INFO")

    def _close(self, name: str, _text: str) -> None:
        conn = self._conns[name]
        self._forget(conn)
        conn.closed = True

    def _closed(self, name: str, _text: str) -> None:
        self._wait_for(self._conns[name], 1, lambda frame: frame["op"] == "close", "close")

    def _keep(self, name: str, text: str) -> None:
        if text != "pings":
            raise ValueError("the statement is: keep NAME pings")
        self._conns[name].keep_pings = True

    def _stall(self, name: str, _text: str) -> None:
        """Stop reading and recording this connection: how many bytes still arrive differs between runs."""
        conn = self._conns[name]
        self._selector.unregister(conn.socket)
        conn.closed = True
        self._stalled.append(conn.socket)

    # -- sending

    def _send(self, name: str, text: str) -> None:
        self._conns[name].send(unescape(text) + b"\r\n")

    def _send_exact(self, name: str, text: str) -> None:
        self._conns[name].send(unescape(text))

    def _send_bytewise(self, name: str, text: str) -> None:
        for byte in unescape(text) + b"\r\n":
            self._conns[name].send(bytes([byte]))

    def _pub(self, name: str, text: str) -> None:
        self._conns[name].send(_publication(text, None))

    def _req(self, name: str, text: str) -> None:
        conn = self._conns[name]
        inbox = conn.inbox()
        conn.send(_publication(text, inbox))
        self._wait_reply(conn, inbox)

    def _js(self, name: str, text: str) -> None:
        endpoint, _, body = text.partition(" ")
        self._req(name, f"$JS.API.{endpoint} : {body}")

    def _pull(self, name: str, text: str) -> None:
        stream, consumer, *body = text.split(" ", 2)
        conn = self._conns[name]
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        conn.send(_publication(f"{subject} : {body[0] if body else ''}", conn.inbox()))

    def _ack(self, name: str, text: str) -> None:
        target, verb = self._ack_target(self._conns[name], text)
        self._conns[name].send(_publication(f"{target} : {verb}", None))

    def _acksync(self, name: str, text: str) -> None:
        conn = self._conns[name]
        target, verb = self._ack_target(conn, text)
        inbox = conn.inbox()
        conn.send(_publication(f"{target} : {verb}", inbox))
        self._wait_reply(conn, inbox)

    def _acknext(self, name: str, text: str) -> None:
        conn = self._conns[name]
        target, verb = self._ack_target(conn, text)
        conn.send(_publication(f"{target} : {verb}", conn.inbox()))

    def _answer(self, name: str, text: str) -> None:
        """Answer the most recent flow control request."""
        conn = self._conns[name]
        asked = [frame["reply"] for frame in conn.frames if str(frame.get("reply", "")).startswith("$JS.FC.")]
        block = b"NATS/1.0\r\n" + unescape(text) + b"\r\n\r\n" if text else b""
        head = f"HPUB {asked[-1]} {len(block)} {len(block)}" if text else f"PUB {asked[-1]} 0"
        conn.send(head.encode() + b"\r\n" + block + b"\r\n")

    @staticmethod
    def _ack_target(conn: Conn, text: str) -> tuple[str, str]:
        replies = [f["reply"] for f in conn.frames if str(f.get("reply", "")).startswith("$JS.ACK.")]
        which, _, verb = text.partition(" ")
        if which.startswith("#"):
            return replies[int(which[1:]) - 1], verb
        return replies[-1], text

    # -- waiting

    def _sync(self, name: str, _text: str) -> None:
        conn = self._conns[name]
        conn.send(b"PING\r\n")
        self._wait_for(conn, 1, lambda frame: frame["op"] in ("PONG", "close"), "PONG")

    def _wait(self, name: str, text: str) -> None:
        words = text.split()
        count = int(words.pop(0)) if words and words[0].isdigit() else 1
        self._wait_for(self._conns[name], count, _pattern(words), text)

    def _until(self, name: str, text: str) -> None:
        endpoint, body, path, value = _split_until(text)
        conn = self._conns[name]
        inbox, polls = conn.inbox(), 0
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            cursor = conn.cursor
            polls += 1
            polled = inbox if polls == 1 else f"{inbox}-{polls}"  # as clients do: a new one for each request
            conn.send(_publication(f"$JS.API.{endpoint} : {body}", polled))
            reply = self._wait_reply(conn, polled)
            if reply is None:
                return
            if _at(reply["payload"].get("json"), path) == json.loads(value):
                reply["subject"] = inbox  # the number of polls differs from run to run
                return
            conn.frames.remove(reply)
            conn.cursor = min(cursor, len(conn.frames))
            time.sleep(POLL_SECONDS)
        conn.frames.append({"op": "timeout", "waiting for": text})

    def _wait_reply(self, conn: Conn, inbox: str) -> Frame | None:
        return self._wait_for(conn, 1, lambda frame: frame.get("subject") == inbox, inbox)

    def _wait_for(self, conn: Conn, count: int, wanted: Callable[[Frame], bool], what: str) -> Frame | None:
        """Read until `count` wanted frames follow the cursor; move the cursor behind the last of them."""
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            while conn.cursor < len(conn.frames):
                frame = conn.frames[conn.cursor]
                conn.cursor += 1
                count -= wanted(frame)
                if count == 0:
                    return frame
            left = deadline - time.monotonic()
            if conn.closed or left <= 0:
                conn.frames.append({"op": "timeout", "waiting for": what})
                conn.cursor = len(conn.frames)
                return None
            self._read(left)

    def _read(self, seconds: float) -> None:
        for key, _ in self._selector.select(seconds):
            conn: Conn = key.data
            fileobj = conn.socket
            conn.receive()
            if conn.closed:
                self._selector.unregister(fileobj)

    # -- the server

    def _restart(self, _conn: str, _text: str) -> None:
        self._server.stop()
        self._after_the_end()

    def _kill(self, _conn: str, _text: str) -> None:
        self._server.kill()
        self._after_the_end()

    def _signal(self, _conn: str, text: str) -> None:
        self._server.signal(text)

    def _after_the_end(self) -> None:
        for name, conn in self._conns.items():
            if not conn.closed:
                self._closed(name, "")
        self._server.start()
        self._runs += 1

    def _http(self, _conn: str, text: str) -> None:
        path, *words = text.split()
        answer = self._get(path)
        if words and words[0] == "shape" and "json" in answer:
            kept = frozenset(words[1].split(",")) if len(words) > 1 else frozenset()
            answer["json"] = shape(answer["json"], kept, "")
        self.recording["http"].append(answer | {"run": self._runs})

    def _get(self, path: str) -> dict[str, Any]:
        client = http.client.HTTPConnection("127.0.0.1", self._server.http_port, timeout=WAIT_SECONDS)
        try:
            client.request("GET", path)
            response = client.getresponse()
            body = response.read()
        except (OSError, http.client.HTTPException) as error:
            return {"path": path, "failed": type(error).__name__}
        finally:
            client.close()
        answer = {"path": path, "status": response.status, "content_type": response.getheader("Content-Type")}
        try:
            return answer | {"json": json.loads(body)}
        except ValueError:
            return answer | {"text": body.decode("utf-8", "backslashreplace")}

    def _forget(self, conn: Conn) -> None:
        if conn.socket.fileno() >= 0:
            self._selector.unregister(conn.socket)
            conn.socket.close()


def shape(value: Any, kept: frozenset[str], path: str) -> Any:
    """Return `value` with every scalar replaced by its type, except below the dotted paths in `kept`."""
    if path in kept:
        return value
    if isinstance(value, dict):
        return {key: shape(inner, kept, f"{path}.{key}".lstrip(".")) for key, inner in value.items()}
    if isinstance(value, list):
        return [shape(inner, kept, path) for inner in value]
    kind = (
        "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__
    )
    return f"({kind})"


def _publication(text: str, inbox: str | None) -> bytes:
    """Return the bytes of `SUBJECT [reply R] [hdr "K: V"]... [: PAYLOAD]`."""
    head, _, body = text.partition(" :")
    body_bytes = unescape(body.removeprefix(" "))
    words = shlex.split(head)
    subject = words.pop(0)
    reply = inbox
    block = b""
    while words:
        kind, value, *words = words
        if kind == "reply":
            reply = value
        elif kind == "hdr":
            block += unescape(value) + b"\r\n"
        else:
            raise ValueError(f"unknown word {kind!r}")
    names = unescape(" ".join(part for part in (subject, reply) if part))
    if not block:
        return b"PUB %b %d\r\n" % (names, len(body_bytes)) + body_bytes + b"\r\n"
    block = b"NATS/1.0\r\n" + block + b"\r\n"
    return (
        b"HPUB %b %d %d\r\n" % (names, len(block), len(block) + len(body_bytes))
        + block
        + body_bytes
        + b"\r\n"
    )


def _pattern(words: list[str]) -> Callable[[Frame], bool]:
    if not words:
        return lambda frame: frame["op"] in ("MSG", "HMSG")
    kind, value = words[0], " ".join(words[1:])
    if kind == "op":
        return lambda frame: frame["op"] == value
    if kind == "status":
        return lambda frame: frame.get("headers", {}).get("status") == value
    if kind == "subject":
        return lambda frame: frame.get("subject") == value
    raise ValueError(f"unknown pattern {kind!r}: op, status or subject")


def _split_until(text: str) -> tuple[str, str, str, str]:
    request, _, condition = text.rpartition(" -> ")
    endpoint, _, body = request.partition(" ")
    path, sign, value = condition.split(" ", 2)
    if sign != "=":
        raise ValueError("the statement is: until NAME ENDPOINT [JSON] -> PATH = VALUE")
    return endpoint, body, path, value


def _at(value: Any, path: str) -> Any:
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else _item(value, key)
    return value


def _item(value: Any, key: str) -> Any:
    """Return the item of a list at `key`; None: there is none."""
    return value[int(key)] if isinstance(value, list) and key.isdigit() and int(key) < len(value) else None
