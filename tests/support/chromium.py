"""Chromium without a window, driven over the DevTools protocol.

Source: https://chromedevtools.github.io/devtools-protocol/, domains Page, Runtime, Network, Emulation, Log, Input.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
import urllib.request
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

FLAGS = (
    "--headless --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    " --disable-component-update --disable-sync --disable-default-apps --disable-extensions --mute-audio"
    " --force-color-profile=srgb --hide-scrollbars --disable-dev-shm-usage --disable-background-timer-throttling"
    " --disable-renderer-backgrounding --disable-backgrounding-occluded-windows --remote-debugging-port=0"
).split()
START_S = 30.0
ANSWER_S = 30.0
WAIT_MS = 15_000
# Resolves when the function returns something true; the look is repeated, since a page has no event for everything.
WAIT = """new Promise((done, failed) => {
  const end = performance.now() + %d;
  const look = () => {
    let found;
    try { found = (%s)(); } catch (error) { found = null; }
    if (found) done(found);
    else if (performance.now() > end) failed(new Error("not in time: " + document.body.innerText.slice(0, 2000)));
    else setTimeout(look, 15);
  };
  look();
})"""


def command() -> str | None:
    """Return the path of the program, or None."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Chromium:
    """One running browser, with its own empty profile below `directory`."""

    def __init__(self, directory: Path) -> None:
        self._profile = directory / "profile"
        program = command()
        assert program is not None
        # The sandbox of Chromium refuses to run as root.
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        self._log = (directory / "chromium.log").open("wb")
        self._process = subprocess.Popen(
            [program, *FLAGS, *sandbox, f"--user-data-dir={self._profile}", "about:blank"],
            stdout=self._log,
            stderr=self._log,
        )
        self._port = self._find_port()

    def _find_port(self) -> int:
        deadline = time.monotonic() + START_S
        file = self._profile / "DevToolsActivePort"
        while time.monotonic() < deadline and self._process.poll() is None:
            with suppress(FileNotFoundError, IndexError, ValueError):
                return int(file.read_text().splitlines()[0])
            time.sleep(0.02)
        raise AssertionError(f"Chromium did not start, see {self._log.name}")

    def open(self) -> Page:
        """Open an empty tab."""
        request = urllib.request.Request(f"http://127.0.0.1:{self._port}/json/new?about:blank", method="PUT")
        with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
            return Page(json.load(answer)["webSocketDebuggerUrl"])

    def stop(self) -> None:
        """End the browser."""
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
        self._log.close()


class Page:
    """One tab. `problems` has every error and warning of its console, `requests` every URL that it asked for."""

    def __init__(self, address: str) -> None:
        self._open = ExitStack()
        opened = connect(address, max_size=None, open_timeout=ANSWER_S, ping_interval=None)
        self._socket: ClientConnection = self._open.enter_context(opened)
        self._ids = count(1)
        self.problems: list[str] = []
        self.requests: list[str] = []
        self._loaded = False
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol, and return its result."""
        number = next(self._ids)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            answer = json.loads(self._socket.recv(ANSWER_S))
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result
            self._note(answer)

    def _note(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        match event.get("method"):
            case "Runtime.exceptionThrown":
                self.problems.append(str(params["exceptionDetails"])[:500])
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                self.problems.append(str(params["args"])[:500])
            case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                self.problems.append(str(params["entry"])[:500])
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
            case "Page.loadEventFired":
                self._loaded = True

    def goto(self, url: str) -> None:
        """Load an address, and return after the load event."""
        self._loaded = False
        result = self.call("Page.navigate", url=url)
        assert "errorText" not in result, result
        self._wait_loaded()

    def leave(self, script: str) -> None:
        """Run a script that makes the page load another address, and return after the load event of that page."""
        self._loaded = False
        self.run(script)
        self._wait_loaded()

    def _wait_loaded(self) -> None:
        while not self._loaded:
            self._note(json.loads(self._socket.recv(ANSWER_S)))

    def run(self, script: str) -> Any:
        """Return the value of an expression; a promise is awaited."""
        result = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait(self, condition: str, most_ms: int = WAIT_MS) -> Any:
        """Wait until an expression is true, and return its value."""
        return self.run(WAIT % (most_ms, f"() => ({condition})"))

    def text(self) -> str:
        """Return the text that the page shows."""
        return str(self.run("document.body.innerText"))

    def press(self, key: str, code: int = 0, text: str = "") -> None:
        """Press and release a key, as on a keyboard."""
        shared = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **shared)
        self.call("Input.dispatchKeyEvent", type="keyUp", **shared)

    def type(self, text: str) -> None:
        """Insert text into the element with the focus."""
        self.call("Input.insertText", text=text)

    def use(self, width: int, height: int, scheme: str = "light") -> None:
        """Set the size of the window, and the color scheme that its user prefers."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def screenshot(self, path: Path) -> None:
        """Write the visible part of the page to a PNG file."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def log_in(self, user: str, password: str) -> None:
        """Send a login with every request from now on."""
        credentials = base64.b64encode(f"{user}:{password}".encode()).decode()
        self.call("Network.setExtraHTTPHeaders", headers={"Authorization": f"Basic {credentials}"})

    def close(self) -> None:
        """Close the tab."""
        self.call("Page.close")
        self._open.close()
