"""The words accepted by options of a stream; jetstream/config/stream.py declares the words of each option.

A server without streams needs these words, but not the declarations. Source: nats.docs "Streams".
"""

from __future__ import annotations

LIMITS, INTEREST, WORKQUEUE = "limits", "interest", "workqueue"  # retention
OLD, NEW = "old", "new"  # discard
FILE, MEMORY = "file", "memory"  # storage
NONE, S2 = "none", "s2"  # compression
DEFAULT, ASYNC = "default", "async"  # persist_mode
