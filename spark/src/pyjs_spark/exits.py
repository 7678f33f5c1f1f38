"""Exit codes of `pyjs-pipeline`."""

FAILED, REFUSED, LOST, UNREACHABLE = 1, 2, 3, 4
FOUND = 5  # a check found a fault that is not a loss
INTERRUPTED, TERMINATED = 128 + 2, 128 + 15  # by SIGINT or SIGTERM, with the codes that shells use
