"""Random histories of publishes and requests, played on nats-server and on this server: the results must be equal.

    python -m tests.history --seeds 0-1999
    python -m tests.history --seed 17 -v

A history depends on its seed alone (`making.py`): one stream with random options, then about forty operations. It is
played on one long-lived process of each server (`playing.py`). Every answer, the remaining messages and the final
state are compared. A history that differs is minimized before it is printed (`judging.py`).
"""
