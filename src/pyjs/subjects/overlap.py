"""Which of many subjects overlap: a trie of their tokens, wildcards included.

Two subjects overlap when some literal subject matches both. A search visits the branches that can still meet its
subject, so that its cost is the depth of the subject unless wildcards meet many branches; it yields now and then, and
whoever must not take long does the rest later.

Knows nothing of streams: a subject has an owner, which is any value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable
    from typing import TypeVar

    T = TypeVar("T")

STEP = 2000  # branches, or subjects, visited between two yields: about half a millisecond


class _Branch:
    """What follows the same first tokens."""

    __slots__ = ("children", "owners")

    def __init__(self) -> None:
        self.children: dict[str, _Branch] = _NONE
        self.owners: tuple[object, ...] = ()  # of the subject that ends here


_NONE: dict[str, _Branch] = {}  # the children of most branches; never changed


class SubjectTree:
    """A set of subjects with their owners."""

    def __init__(self) -> None:
        self._root = _Branch()
        self.version = 0  # changes with the set

    def add(self, subject: str, owner: object) -> None:
        """Add a valid subject."""
        branch = self._root
        for token in subject.split("."):
            below = branch.children.get(token)
            if below is None:
                if branch.children is _NONE:
                    branch.children = {}
                below = branch.children[token] = _Branch()
            branch = below
        branch.owners += (owner,)
        self.version += 1

    def remove(self, subject: str, owner: object) -> None:
        """Undo `add`."""
        path = [self._root]
        tokens = subject.split(".")
        for token in tokens:
            path.append(path[-1].children[token])
        owners = path[-1].owners
        at = owners.index(owner)
        path[-1].owners = owners[:at] + owners[at + 1 :]
        for at in range(len(tokens) - 1, -1, -1):
            if path[at + 1].owners or path[at + 1].children:
                break
            del path[at].children[tokens[at]]
        self.version += 1

    def overlapping(self, subject: str, owner: object = None) -> Generator[None, None, bool]:
        """Return whether a subject of somebody but `owner` overlaps with the valid `subject`."""
        tokens = subject.split(".")
        last = len(tokens) - 1
        waiting = [(self._root, 0)]
        visited = 0
        while waiting:
            visited += 1
            if visited % STEP == 0:
                yield
            branch, at = waiting.pop()
            if at > last:  # it matched everything, or was ended by a `>`
                if _is_taken(branch, owner):
                    return True
                if at > last + 1:
                    waiting += [(below, at) for below in branch.children.values()]
                continue
            token, children = tokens[at], branch.children
            if token == ">":
                waiting += [(below, last + 2) for below in children.values()]
            elif token == "*":
                waiting += [(below, at + 1) for key, below in children.items() if key != ">"]
            else:
                waiting += [(children[key], at + 1) for key in (token, "*") if key in children]
            rest = children.get(">")
            if rest is not None and _is_taken(rest, owner):
                return True
        return False


def _is_taken(branch: _Branch, owner: object) -> bool:
    return any(each != owner for each in branch.owners)


def first_overlap(subjects: Iterable[str]) -> Generator[None, None, str | None]:
    """Return the first of the valid `subjects` that overlaps with another one of them, None: none does."""
    tree, known = SubjectTree(), list(subjects)
    for at, subject in enumerate(known):
        tree.add(subject, at)
        if at % STEP == STEP - 1:
            yield
    for at, subject in enumerate(known):
        if (yield from tree.overlapping(subject, at)):
            return subject
        if at % (STEP // 8) == 0:
            yield
    return None


def at_once(steps: Generator[None, None, T]) -> T:
    """Return the result of work in steps, all done now."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result
