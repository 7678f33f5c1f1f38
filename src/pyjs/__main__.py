"""The program, as `python -m pyjs` and as the command `pyjs-server`: settings of the process, then the command line.

Nearly all of a start are imports. Two settings make them some percent cheaper, so they come first. pyjs.cli changes
nothing of its process: programs and tests may import it.
"""

from __future__ import annotations

import os
import sys

from pyjs.server.system.collector import collect_seldom


def main() -> int:
    """Set up the process, run the command line and return its exit code."""
    collect_seldom()
    find_functions_late()
    # Deferred so that both hold for its imports too: up to 10 ms less for every server.
    from pyjs.cli import main as run

    return run()


def find_functions_late() -> None:
    """Let compiled modules find each function of the interpreter at its first call, not all when they are loaded."""
    if hasattr(sys, "setdlopenflags"):  # not on Windows
        sys.setdlopenflags(os.RTLD_LAZY)


if __name__ == "__main__":
    sys.exit(main())
