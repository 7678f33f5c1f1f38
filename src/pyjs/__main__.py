"""Starts the server by `python -m pyjs`."""

import sys

from pyjs.cli import main

sys.exit(main())
