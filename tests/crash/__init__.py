"""Faults of process, disk and power on real files: `python -m tests.crash <what>`, short versions for the suite."""
