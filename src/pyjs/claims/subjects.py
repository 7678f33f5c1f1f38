"""Checks of subjects in claims, with nats-server's error messages."""

from __future__ import annotations

from pyjs.claims.fields import Issue


def subject_issues(subject: str) -> list[Issue]:
    """Return the issues in a subject."""
    if not subject:
        return [Issue("subject cannot be empty")]
    issues = []
    if " " in subject:
        issues.append(Issue(f'subject "{subject}" cannot have spaces'))
    if subject[0] == "." or subject[-1] == ".":
        issues.append(Issue(f'subject "{subject}" cannot start or end with a `.`'))
    if ".." in subject:
        issues.append(Issue(f'subject "{subject}" cannot contain consecutive `.`'))
    return issues


def permission_issues(entry: str, *, with_queue: bool) -> list[Issue]:
    """Return the issues in an entry of a permission list: a subject, or a subject and a queue."""
    words = entry.split(" ")
    if len(words) > 2:
        return [Issue(f'Permission Subject "{entry}" contains too many spaces')]
    issues = [issue for word in words for issue in subject_issues(word)]
    if len(words) == 2 and not with_queue:
        issues.append(Issue(f'Permission Subject "{entry}" is not allowed to contain queue'))
    return issues


def has_wildcards(subject: str) -> bool:
    """Return whether a subject has a wildcard token."""
    tokens = subject.split(".")
    return "*" in tokens or tokens[-1] == ">"


def is_contained(subject: str, other: str) -> bool:
    """Return whether `other` covers `subject`, token by token."""
    mine, theirs = subject.split("."), other.split(".")
    if len(mine) < len(theirs) or (len(mine) > len(theirs) and theirs[-1] != ">"):
        return False
    for at, token in enumerate(theirs):
        if at == len(theirs) - 1 and token == ">":
            return True
        if token not in (mine[at], "*"):
            return False
    return True


def is_valid_subject(subject: str) -> bool:
    """Return whether a server accepts `subject` in a subscription."""
    if not subject or any(char in " \t\r\n\f" for char in subject):
        return False
    tokens = subject.split(".")
    return all(tokens) and ">" not in tokens[:-1]


def renaming_issues(subject: str, original: str) -> list[Issue]:
    """Return the issues in an import's local `subject`; it must have each wildcard of `original` exactly once."""
    issues = subject_issues(subject)
    if not original:
        issues.append(Issue("subject cannot be empty"))
    if " " in subject:
        issues.append(Issue(f'subject "{subject}" cannot have spaces'))
    if (subject.split(".")[-1] == ">") != (original.split(".")[-1] == ">"):
        issues.append(Issue("both, renaming subject and subject, need to end or not end in >"))
    wildcards, references = original.split(".").count("*"), 0
    for token in subject.split("."):
        references += token == "*"
        if token[:1] == "$" and token[1:].isdecimal():
            if int(token[1:]) > wildcards:
                text = f'Reference ${int(token[1:])} in "{subject}" reference * in "{original}" that do not exist'
                issues.append(Issue(text))
            else:
                references += 1
    if references != wildcards:
        issues.append(Issue("subject does not contain enough * or reference wildcards $[0-9]"))
    return issues


def without_references(subject: str) -> str:
    """Return a local subject in which `*` replaces `$1`, `$2`, ..."""
    return ".".join(
        "*" if token[:1] == "$" and token[1:].isdecimal() else token for token in subject.split(".")
    )
