"""The pictures of docs/dashboard.md: `make screenshots`.

A server with a small shop: orders are published all the time, one consumer keeps up, one is stuck.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

from tests.conformance.harness.process import ServerProcess, our_command
from tests.style.tree import ROOT
from tests.support.chromium import Chromium, Page
from tests.support.raw import RawClient

FOLDER = ROOT / "docs" / "dashboard"
SIZE = (1000, 680)
CONFIG = """
jetstream: {store_dir: "<<store>>", max_file_store: 64MB}
http_authorization { user: ops, password: hush, messages: true }
"""
STREAMS = ("ORDERS", "PAYMENTS", "SHIPMENTS", "STOCK", "AUDIT")
CONSUMERS = (("ORDERS", "BILLING"), ("ORDERS", "PACKING"), ("PAYMENTS", "LEDGER"), ("STOCK", "SHOP"))
PUSHED = ("PACKING", "LEDGER")
PERIOD_S = 0.05
WATCHED_S = 70.0  # until the charts are full
ORDER = {"town": "Utrecht", "lines": [{"item": "loaf", "count": 2}, {"item": "roll", "count": 6}]}


def named(name: str) -> bytes:
    """Return the CONNECT of a client with a name."""
    return b'CONNECT {"verbose":false,"headers":true,"no_responders":true,"name":"%b"}\r\n' % name.encode()


class Shop:
    """Clients that publish and consume until `stop`."""

    def __init__(self, port: int) -> None:
        self._admin = RawClient(port, connect=named("admin"))
        self._shop = RawClient(port, connect=named("shop"))
        self._billing = RawClient(port, connect=named("billing-1"), inbox=b"_INBOX.billing")
        self._stopped = threading.Event()
        for name in STREAMS:
            self._admin.api(f"STREAM.CREATE.{name}", name=name, subjects=[f"{name.lower()}.>"])
        full = {"subjects": ["catalogue.>"], "max_msgs": 50, "discard": "new"}
        self._admin.api("STREAM.CREATE.CATALOGUE", name="CATALOGUE", **full)
        for stream, consumer in CONSUMERS:
            push = {"deliver_subject": f"push.{consumer}"} if consumer in PUSHED else {}
            config: dict[str, object] = {
                "durable_name": consumer,
                "ack_policy": "none" if push else "explicit",
                **push,
            }
            config |= {"max_ack_pending": 25} if consumer == "BILLING" else {}
            self._admin.api(f"CONSUMER.CREATE.{stream}.{consumer}", stream_name=stream, config=config)
        for consumer in PUSHED:
            self._admin.send(b"SUB push.%b %b\r\n" % (consumer.encode(), consumer.encode()))
        wanted = b'{"batch": 100, "expires": 3600000000000}'
        subject = b"$JS.API.CONSUMER.MSG.NEXT.ORDERS.BILLING"
        self._billing.send(b"SUB bills 7\r\nPUB %b bills %d\r\n%b\r\n" % (subject, len(wanted), wanted))
        threading.Thread(target=self._work, daemon=True).start()
        threading.Thread(target=self._read, daemon=True).start()

    def _work(self) -> None:
        number = 0
        while not self._stopped.wait(PERIOD_S):
            for _ in range(5 + number // 40 % 4):
                number += 1
                self._publish(STREAMS[number % 3] if number % 7 else "STOCK", number)
            if number < 400:
                self._publish("CATALOGUE", number)

    def _publish(self, stream: str, number: int) -> None:
        payload = json.dumps({"id": number, **ORDER}).encode()
        head = b"NATS/1.0\r\nTrace: t-%06d\r\nNats-Msg-Id: %b-%d\r\n\r\n" % (number, stream.encode(), number)
        subject = f"{stream.lower()}.eu.{'new' if number % 4 else 'changed'}".encode()
        sizes = len(head), len(head) + len(payload)
        self._shop.send(b"HPUB %b %d %d\r\n%b%b\r\n" % (subject, *sizes, head, payload))

    def _read(self) -> None:
        with suppress(ConnectionError):  # the server ends first
            for _ in self._admin.frames():
                pass

    def stop(self) -> None:
        self._stopped.set()


def watch(page: Page, seconds: float) -> None:
    """Leave a page open for some time."""
    for _ in range(round(seconds)):
        page.run("new Promise((done) => setTimeout(done, 1000))")


def shown(page: Page, view: str, ready: str) -> None:
    page.run(f"location.hash = '#/{view}'")
    page.wait(ready)


def take(origin: str, browser: Chromium) -> None:
    """Take the pictures."""
    page = browser.open()
    page.log_in("ops", "hush")
    page.use(*SIZE)
    page.goto(f"{origin}/dashboard#/consumer?acc=$G&stream=ORDERS&consumer=BILLING")
    watch(page, WATCHED_S / 2)
    watching = browser.open()
    watching.log_in("ops", "hush")
    watching.use(*SIZE, "dark")
    watching.goto(f"{origin}/dashboard#/overview")
    watch(watching, WATCHED_S / 2)
    page.screenshot(FOLDER / "consumer.png")
    watching.screenshot(FOLDER / "overview-dark.png")
    page.use(SIZE[0], 480)
    shown(
        page,
        "messages?acc=$G&stream=ORDERS&subject=*.eu.new&open=40",
        "document.querySelector('.message h2')",
    )
    page.screenshot(FOLDER / "messages.png")


def main() -> int:
    """Write the pictures, and print their sizes."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        server = ServerProcess(our_command(), CONFIG, directory, with_http=True, name="shop-1")
        server.start()
        browser = Chromium(directory)
        shop = Shop(server.port)
        try:
            take(f"http://127.0.0.1:{server.http_port}", browser)
        finally:
            shop.stop()
            browser.stop()
            server.kill()
    for picture in sorted(FOLDER.glob("*.png")):
        print(picture.relative_to(ROOT), picture.stat().st_size)
    return 0


if __name__ == "__main__":
    sys.exit(main())
