"""The program, as `python -m pyjs` and as the command `pyjs-server`: settings of the process, then the command line.

Nearly all of the start-up time is spent on imports. Two settings make imports some percent faster, so they
are made first. pyjs.cli does not change settings of the process, so programs and tests may import it.
"""

from __future__ import annotations

import os
import sys

from pyjs.server.system.collector import collect_seldom


def main() -> int:
    """Set up the process, run the command line and return its exit code."""
    collect_seldom()
    find_functions_late()
    # Imported here, so that both settings apply to its imports too: up to 10 ms less for every server.
    from pyjs.cli import main as run

    return run()


def find_functions_late() -> None:
    """Make compiled modules look up each interpreter function when it is first called, instead of at the import."""
    if hasattr(sys, "setdlopenflags"):  # not on Windows
        sys.setdlopenflags(os.RTLD_LAZY)


if __name__ == "__main__":
    sys.exit(main())
