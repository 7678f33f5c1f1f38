"""The command `pyjs-pipeline`."""
