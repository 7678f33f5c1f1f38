"""Kinds of pipelines that have modules of their own: how the command line reaches each of them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Verb = Callable[[Any, argparse.Namespace], int]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of pipeline; its verbs take the results of its readers."""

    text: str  # one line of help
    add_arguments: Callable[[argparse.ArgumentParser], None]
    from_arguments: Callable[[argparse.Namespace, dict[str, str]], Any]  # with the options that were given
    from_tables: Callable[
        [Mapping[str, object], Mapping[str, str]], Any
    ]  # of a file, and options before its own
    run: Verb
    validate: Verb
    explain: Verb
    status: Verb
    is_watched: bool = False  # a run keeps a status file and draws a plot when asked to

    def verb(self, command: str) -> Verb:
        """Return the function of a command; the name of a kind means `run` without a file."""
        verbs = {"validate": self.validate, "explain": self.explain, "status": self.status}
        return verbs.get(command, self.run)
