"""The finding of a check: one line, and a remedy if there is a problem."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Level(Enum):
    """The severity of a finding."""

    OK = "ok"
    WARN = "warn"  # the server runs, but has a risk, or performs worse than it could
    FAIL = "FAIL"  # the server does not start, or does not run as configured


class Finding(NamedTuple):
    """One result of a check, with a remedy if there is a problem."""

    level: Level
    subject: str
    text: str
    fix: str = ""  # the remedy; "": none is needed

    def as_json(self) -> dict[str, str]:
        """Return the fields as a dict for JSON; `fix` is left out if it is empty."""
        found = {"level": self.level.value, "subject": self.subject, "text": self.text}
        return found | ({"fix": self.fix} if self.fix else {})

    def __str__(self) -> str:
        line = f"{self.level.value:<5} {self.subject:<12} {self.text}"
        return f"{line}\n      {'':<12} -> {self.fix}" if self.fix else line


def ok(subject: str, text: str) -> Finding:
    """Return a finding without a problem."""
    return Finding(Level.OK, subject, text)


def warn(subject: str, text: str, fix: str) -> Finding:
    """Return a finding about a risk."""
    return Finding(Level.WARN, subject, text, fix)


def fail(subject: str, text: str, fix: str) -> Finding:
    """Return a finding about a problem that prevents the server from running as configured."""
    return Finding(Level.FAIL, subject, text, fix)
