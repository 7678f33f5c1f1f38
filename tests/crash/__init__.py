"""Faults of process, disk and power on real files: `python -m tests.crash NAME`; the suite runs short versions."""
