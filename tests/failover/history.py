"""A history of operations on registers as clients saw them, completed with the data that is stored at the end.

A register is a subject of a stream (its newest message) or a whole stream (its last sequence). A write may expect a
sequence. It is unknown whether a write without an answer took effect; since each value is written only once and
nothing is removed, the final data shows it. Then porcupine/main.go checks whether some order of all operations
explains every answer; in this order, each operation takes effect between its call and its return.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

FOREVER_NS = (1 << 62) - 1
UNKNOWN = -1


@dataclass(slots=True)
class Operation:
    """One operation of one client; a sequence is UNKNOWN if no answer named it, or no client requested it."""

    register: str
    kind: str  # write, read, or loose (a read that may be stale)
    client: int
    call: int  # time of the call in ns
    value: str = ""
    expect: int = UNKNOWN
    back: int = FOREVER_NS  # time of the answer in ns
    # stored or found sequence; of a refused write, the newest sequence, which the refusal names
    seq: int = UNKNOWN
    done: bool = False  # the write took effect, or the read was answered
    is_dense: bool = False  # the register is a stream: sequences have no gaps


class History:
    """The operations of some streams."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.found: Counter[str] = Counter()  # violations that were found without a search
        self.examples: list[str] = []

    def complete(self, stored: dict[str, dict[str, int]], now_ns: int) -> None:
        """Determine from the stored values whether writes without an answer took effect.

        `stored` has the sequence of each stored value, by register. For each register, a read at `now_ns` is added,
        so that the final data must be explained too.
        """
        kept = []
        for operation in self.operations:
            seqs = stored.get(operation.register, {})
            if operation.kind == "loose":
                self._check_loose(operation, seqs)
            elif self._is_evidence(operation, seqs):
                kept.append(operation)
        registers = {operation.register: operation.is_dense for operation in kept}
        for register, is_dense in registers.items():
            seqs = stored.get(register, {})
            value, seq = max(seqs.items(), key=lambda item: item[1], default=("", 0))
            value = "" if is_dense else value
            kept.append(
                Operation(
                    register, "read", 0, now_ns, value, back=now_ns + 1, seq=seq, done=True, is_dense=is_dense
                )
            )
        self.operations = kept

    def _is_evidence(self, operation: Operation, seqs: dict[str, int]) -> bool:
        """Complete an operation; return whether the checker needs it."""
        if operation.kind == "read":
            return operation.done
        at = seqs.get(operation.value)
        if operation.done and at != operation.seq:
            self._violation("acked lost" if at is None else "moved", f"{operation} is at {at}")
        refused = not operation.done and operation.back != FOREVER_NS
        if refused and at is not None:
            self._violation("refused and stored", f"{operation} is at {at}")
        if operation.done or (refused and operation.seq != UNKNOWN):
            return True
        if at is None:
            return False
        operation.done, operation.seq, operation.back = True, at, FOREVER_NS
        return True

    def _check_loose(self, operation: Operation, seqs: dict[str, int]) -> None:
        """Check a read that may be stale: it must have found a value that is stored at the same sequence."""
        if not operation.done or operation.seq == 0:
            return
        if seqs.get(operation.value) != operation.seq:
            self._violation("read, never stored", f"{operation}, {seqs.get(operation.value)}")

    def _violation(self, name: str, text: str) -> None:
        self.found[name] += 1
        if self.found[name] <= 3:
            self.examples.append(f"{name}: {text}")

    def write(self, path: Path) -> None:
        """Write the operations as JSON lines."""
        with path.open("w") as file:
            file.writelines(json.dumps(asdict(operation)) + "\n" for operation in self.operations)
