"""A search for the stored subjects most similar to a filter that matches none, usually because of a typing error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.store.index.subject_walk import SubjectWalk

if TYPE_CHECKING:
    from collections.abc import Generator

    from pyjs.store.store import StreamStore

SUBJECTS_MAX = 2_000  # maximum number of subjects that are compared
STEP = 250  # subjects compared between two yields, in about half a millisecond
CLOSE = 16  # maximum number of subjects compared letter by letter
SHOWN = 3
LENGTH_MAX = 256  # maximum bytes of each subject that are compared and shown
LETTERS_MAX = 64  # maximum characters compared letter by letter, since the time may grow with the third power


def nearest(store: StreamStore, wanted: bytes) -> Generator[None, None, list[str]]:
    """Return up to SHOWN stored subjects that are similar to `wanted`, the most similar first; yield between steps.

    Only the first SUBJECTS_MAX subjects are compared.
    """
    walk = SubjectWalk(store.catalogue, store.make_filter(()))
    while not walk.look(STEP):
        yield
    tokens = wanted[:LENGTH_MAX].split(b".")
    scored: list[tuple[int, bytes]] = []
    for _ in range(0, SUBJECTS_MAX, STEP):
        scored += [(_common(tokens, name[:LENGTH_MAX]), name[:LENGTH_MAX]) for name in walk.take(STEP)]
        scored = sorted(scored, key=lambda row: (-row[0], row[1]))[:CLOSE]
        if walk.done:
            break
        yield
    text = wanted[:LENGTH_MAX].decode("utf-8", "replace")
    found: list[tuple[float, str]] = []
    for _, each in scored:
        yield
        name = each.decode("utf-8", "replace")
        found.append((_likeness(text, name), name))
    return [name for _, name in sorted(found, key=lambda row: -row[0])[:SHOWN]]


def _likeness(text: str, name: str) -> float:
    """Return the similarity of the beginnings of two subjects, from 0 to 1."""
    from difflib import SequenceMatcher  # imported late, since only a filter that matches nothing needs it

    return SequenceMatcher(None, text[:LETTERS_MAX].lower(), name[:LETTERS_MAX].lower()).ratio()


def _common(tokens: list[bytes], name: bytes) -> int:
    """Return the number of tokens that a filter and a subject have in common at the same positions.

    A wildcard matches any token.
    """
    pairs = zip(tokens, name.split(b"."), strict=False)
    return sum(mine == theirs or mine in (b"*", b">") for mine, theirs in pairs)
