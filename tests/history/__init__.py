"""Random histories of publishes and requests, played on nats-server and on this server: both must end equal.

    python -m tests.history --seeds 0-1999
    python -m tests.history --seed 17 -v

A history comes from its seed alone (`making.py`): one stream of random options, then about forty operations. It is
played on one long-lived process of each server (`playing.py`), and every answer, every message that is left and the
state are compared. A history that differs is made as short as it can be before it is printed (`judging.py`).
"""
