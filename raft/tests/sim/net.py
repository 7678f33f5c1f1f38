"""A network in memory: it drops, delays, duplicates, reorders and damages batches, and cuts connections."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from random import Random


@dataclass
class Weather:
    """The probabilities of faults."""

    drop: float = 0.0
    repeat: float = 0.0
    damage: float = 0.0
    delay_max: int = 1  # maximum delay, in ticks


@dataclass
class SimNet:
    """Batches in transit between nodes."""

    rng: Random
    weather: Weather = field(default_factory=Weather)
    cuts: set[tuple[int, int]] = field(default_factory=set)  # (from, to)
    sent: int = 0
    _way: list[tuple[int, int, int, int, bytes, bool]] = field(default_factory=list)

    def send(self, now: int, source: int, target: int, data: bytes) -> None:
        """Send a batch; b"" is a heartbeat of the node."""
        copies = 2 if self.rng.random() < self.weather.repeat else 1
        for _ in range(copies):
            if (source, target) in self.cuts or self.rng.random() < self.weather.drop:
                continue
            self.sent += 1
            at = now + self.rng.randint(0, self.weather.delay_max)
            sent = self._damaged(data)
            heapq.heappush(self._way, (at, self.sent, source, target, sent, sent != data))

    def forget(self, node: int) -> None:
        """Drop the batches in transit from and to a process that has ended."""
        self._way = [each for each in self._way if node not in each[2:4]]
        heapq.heapify(self._way)

    def _damaged(self, data: bytes) -> bytes:
        if not data or self.rng.random() >= self.weather.damage:
            return data
        out = bytearray(data)
        out[self.rng.randrange(len(out))] ^= 1 << self.rng.randrange(8)
        return bytes(out)

    def arrived(self, now: int) -> list[tuple[int, int, bytes, bool]]:
        """Return the source, target and bytes of each batch that has arrived by `now`, and whether it is damaged."""
        found = []
        while self._way and self._way[0][0] <= now:
            _, _, source, target, data, is_damaged = heapq.heappop(self._way)
            if (source, target) not in self.cuts:
                found.append((source, target, data, is_damaged))
        return found
