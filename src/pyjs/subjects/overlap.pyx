"""Overlap of subjects: a trie of the tokens of many subjects with wildcards.

Two subjects overlap if some literal subject matches both. A search visits only branches that can match its subject.
These are usually as many as the subject has tokens, but more if wildcards match many branches. A search yields after
some work, so that the caller can continue it later. A subject can have a hundred thousand tokens; the tokens that it
shares with no other subject are stored as one list, and become branches only when a search or another subject
reaches them.

This module knows nothing of streams: the owner of a subject is any value. Compiled: a request may have a hundred
thousand subjects (benchmarks/hostile.py: subjects, filters).
"""

STEP = 5000                     # branches, or subjects, visited between two yields: about half a millisecond

cdef int STEP_SIZE = STEP
cdef int ADD_WORK = 8           # adding a subject takes as long as visiting this many branches


cdef class _Branch:
    """A node of the trie, for the subjects that begin with the same tokens."""

    cdef str token              # token of the only child; None: no child, or several in `children`
    cdef _Branch only
    cdef dict children          # None: at most one child
    cdef tuple owners           # owners of the subject that ends here
    cdef list tail              # tokens below this node of the only subject there, not split into nodes yet; or None
    cdef Py_ssize_t tail_at     # index in `tail` of the first token below this node; always < len(tail)
    cdef tuple tail_owners      # owners of that subject

    def __cinit__(self):
        self.owners = ()

    cdef int hang(self, list tokens, Py_ssize_t at, tuple owners) except -1:
        """Add the subject `tokens`, whose first `at` tokens lead to this node, with its owners.

        The node must have no tail, and no owners if the subject ends here.
        """
        if at == len(tokens):
            self.owners = owners
        else:
            self.tail, self.tail_at, self.tail_owners = tokens, at, owners
        return 0

    cdef int unfold(self) except -1:
        """If there is a tail, replace it with a child for its first token."""
        cdef list tail = self.tail
        cdef _Branch child
        if tail is None:
            return 0
        child = _Branch()
        child.hang(tail, self.tail_at + 1, self.tail_owners)
        if self.children is not None:
            self.children[tail[self.tail_at]] = child
        else:
            self.token, self.only = tail[self.tail_at], child
        self.tail = self.tail_owners = None
        return 0

    cdef bint ends_with(self, list tokens, Py_ssize_t at) except -1:
        """Return whether there is a tail that equals `tokens` from index `at` on."""
        return self.tail is not None and self.tail[self.tail_at:] == tokens[at:]

    cdef _Branch below(self, str token):
        self.unfold()
        if self.children is not None:
            return self.children.get(token)
        return self.only if self.token is not None and self.token == token else None

    cdef _Branch grow(self, str token):
        """Add a child for `token`, and return it."""
        cdef _Branch child = _Branch()
        self.unfold()
        if self.children is not None:
            self.children[token] = child
        elif self.token is None:
            self.token, self.only = token, child
        else:
            self.children = {self.token: self.only, token: child}
            self.token = self.only = None
        return child

    cdef int drop(self, str token) except -1:
        """Remove the child for `token`."""
        if self.children is not None:
            del self.children[token]
        else:
            self.token = self.only = None
        return 0

    cdef bint is_bare(self) noexcept:
        """Return whether the node has neither children nor a tail; it may have owners."""
        return self.token is None and not self.children and self.tail is None

    cdef bint is_taken(self, object owner) except -1:
        """Return whether the subject that ends here has an owner other than `owner`."""
        for each in self.owners:
            if each != owner:
                return True
        return False


cdef class _Search:
    """A search in a SubjectTree, which can stop after any number of branches and continue later."""

    cdef list tokens, branches, places      # the branches to visit; `places` has for each the index of its token
    cdef object owner
    cdef bint found
    cdef bint covering  # search for subjects that cover the given one, instead of subjects that overlap with it

    def __cinit__(self, _Branch root, str subject, object owner, bint covering=False):
        self.covering = covering
        self.tokens = subject.split(".")
        self.branches, self.places = [root], [0]
        self.owner = owner

    cdef int go_on(self, int most) except -1:
        """Visit up to `most` branches; return 0 if the search is unfinished, else 1 + the number of unused visits."""
        while self.branches and not self.found:
            if most == 0:
                return 0
            most -= 1
            self.visit(self.branches.pop(), self.places.pop())
        return most + 1

    cdef int visit(self, _Branch branch, Py_ssize_t at) except -1:
        cdef Py_ssize_t last = len(self.tokens) - 1
        cdef _Branch below
        cdef str token
        if at > last:                       # all tokens matched, or a `>` matches the rest
            self.found = branch.is_taken(self.owner)
            if at > last + 1:
                self.add_all(branch, at, False)
            return 0
        if branch.is_bare():
            return 0
        token = self.tokens[at]
        if token == ">" and not self.covering:
            self.add_all(branch, last + 2, False)
            return 0
        below = branch.below(">")
        if below is not None and below.is_taken(self.owner):
            self.found = True
        elif token == "*" and not self.covering:
            self.add_all(branch, at + 1, True)
        elif token != ">":
            self.add(branch.below("*"), at + 1)
            if token != "*":
                self.add(branch.below(token), at + 1)
        return 0

    cdef int add(self, _Branch branch, Py_ssize_t at) except -1:
        if branch is not None:
            self.branches.append(branch)
            self.places.append(at)
        return 0

    cdef int add_all(self, _Branch branch, Py_ssize_t at, bint one_token) except -1:
        branch.unfold()
        if branch.token is not None and not (one_token and branch.token == ">"):
            self.add(branch.only, at)
        if branch.children is not None:
            for token, below in branch.children.items():
                if not (one_token and token == ">"):
                    self.add(below, at)
        return 0


cdef class SubjectTree:
    """A set of valid subjects with their owners."""

    cdef _Branch root
    cdef readonly object version            # incremented at each change of the set

    def __cinit__(self):
        self.root = _Branch()
        self.version = 0

    @property
    def is_empty(self) -> bool:
        """Whether the set has no subjects."""
        return self.root.is_bare()

    def add(self, str subject, object owner) -> None:
        """Add the valid `subject` for `owner`; a subject can have several owners."""
        cdef _Branch branch = self.root
        cdef _Branch below = branch
        cdef list tokens = subject.split(".")
        cdef Py_ssize_t at = 0, end = len(tokens)
        while at < end and not branch.is_bare():
            below = branch.below(tokens[at])
            branch = branch.grow(tokens[at]) if below is None else below
            at += 1
        if at < end:
            branch.hang(tokens, at, (owner,))
        else:
            branch.owners += (owner,)
        self.version += 1

    def remove(self, str subject, object owner) -> None:
        """Remove `subject`, which must have been added for the same `owner`."""
        cdef _Branch branch = self.root
        cdef list path = [], tokens = subject.split(".")
        cdef Py_ssize_t at = 0, end = len(tokens)
        while at < end and not branch.ends_with(tokens, at):
            path.append(branch)
            branch = branch.below(tokens[at])
            at += 1
        if at < end:
            assert branch.tail_owners == (owner,)
            branch.tail = branch.tail_owners = None
        else:
            index = branch.owners.index(owner)
            branch.owners = branch.owners[:index] + branch.owners[index + 1:]
        while path and not branch.owners and branch.is_bare():
            branch = path.pop()
            branch.drop(tokens[len(path)])
        self.version += 1

    def overlapping(self, str subject, object owner=None):
        """Yield between steps; return whether the valid `subject` overlaps with a subject of another owner."""
        cdef _Search search = _Search(self.root, subject, owner)
        while search.go_on(STEP_SIZE) == 0:
            yield
        return search.found


def first_overlap(subjects):
    """Yield between steps; return the first of the valid `subjects` that overlaps with another of them, or None."""
    return (yield from first_found(subjects, False))


def first_covered(subjects):
    """Yield between steps; return the first of the valid `subjects` that another of them covers, or None.

    A subject covers another subject if it matches every literal subject that the other subject matches.
    """
    return (yield from first_found(subjects, True))


def first_found(subjects, bint covering):
    """Yield between steps; return the first of the valid `subjects` that overlaps with another of them, or None.

    If `covering` is true, return instead the first subject that is covered by another subject.
    """
    cdef SubjectTree tree = SubjectTree()
    cdef _Search search
    cdef list known = list(subjects)
    cdef int left = STEP_SIZE, rest
    if len(known) < 2:  # most streams and consumers have a single subject, which may be long: do not build a tree
        return None
    for at, subject in enumerate(known):
        tree.add(subject, at)
        left -= ADD_WORK
        if left <= 0:
            left = STEP_SIZE
            yield
    for at, subject in enumerate(known):
        search = _Search(tree.root, subject, at, covering)
        left -= 1
        rest = search.go_on(left) if left > 0 else 0
        while rest == 0:
            yield
            rest = search.go_on(STEP_SIZE)
        left = rest - 1
        if search.found:
            return subject
    return None


def at_once(steps):
    """Run the generator `steps` to its end, and return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value
