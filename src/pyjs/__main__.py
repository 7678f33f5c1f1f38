"""The way to start the server with `python -m pyjs`."""

import sys

from pyjs.cli import main

sys.exit(main())
