"""What a check found: one line, and what to do about it."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Level(Enum):
    """How serious a finding is."""

    OK = "ok"
    WARN = "warn"  # the server runs, but worse than it could, or with a risk
    FAIL = "FAIL"  # the server does not start, or not as configured


class Finding(NamedTuple):
    """One line of the report."""

    level: Level
    subject: str
    text: str
    fix: str = ""  # what to do; "": nothing

    def as_json(self) -> dict[str, str]:
        """Return the finding as an object."""
        found = {"level": self.level.value, "subject": self.subject, "text": self.text}
        return found | ({"fix": self.fix} if self.fix else {})

    def __str__(self) -> str:
        line = f"{self.level.value:<5} {self.subject:<12} {self.text}"
        return f"{line}\n      {'':<12} -> {self.fix}" if self.fix else line


def ok(subject: str, text: str) -> Finding:
    """Return a finding about something that is as it should be."""
    return Finding(Level.OK, subject, text)


def warn(subject: str, text: str, fix: str) -> Finding:
    """Return a finding about a risk."""
    return Finding(Level.WARN, subject, text, fix)


def fail(subject: str, text: str, fix: str) -> Finding:
    """Return a finding about something that stops the server."""
    return Finding(Level.FAIL, subject, text, fix)
