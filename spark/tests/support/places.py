"""The locations of the sources that these tests use."""

from __future__ import annotations

import os

from tests.style.tree import ROOT

SOURCES = ROOT / "spark" / "src"  # sources of pyjs-spark
FAST = ROOT / "spark" / "fast" / "src"  # sources of pyjs-spark-fast
PYTHONPATH = os.pathsep.join([str(SOURCES), str(FAST)])
