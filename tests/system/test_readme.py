"""The examples in the README work as printed."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.conformance.harness.process import ServerProcess

README = Path(__file__).resolve().parents[2] / "README.md"


def test_the_first_message_arrives(start_server: Callable[..., ServerProcess]) -> None:
    server = start_server()
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    code = blocks[0].replace("127.0.0.1:4222", f"127.0.0.1:{server.port}")

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.stdout, done.stderr) == ("orders.new one loaf of bread\n", "")
