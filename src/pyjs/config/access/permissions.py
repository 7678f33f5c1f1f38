"""Permissions: the subjects that a user may publish and subscribe to.

This module checks the subjects. An entry for subscriptions may also name a queue group: "subject queue".

Source: nats.docs "Authorization"; behaviour of nats-server 2.15.1.
"""

from __future__ import annotations

from functools import partial

from pyjs.config.errors import Refused
from pyjs.config.kinds import DURATION, INT, fill, read_map
from pyjs.config.options import PermissionOptions, ResponsePermission, SubjectPermissions, UserOptions
from pyjs.config.table import Key, Kind, Reading, Table, read_block, wrong_type
from pyjs.config.values import Value


def is_subject(text: str) -> bool:
    """Return whether `text` is a subject, with or without wildcards."""
    if not text or any(char in " \t\r\n\f" for char in text):
        return False
    tokens = text.split(".")
    return all(tokens) and ">" not in tokens[:-1]


def _read_subjects(
    reading: Reading, key: Key, value: Value, target: object, with_queue: bool
) -> SubjectPermissions | None:
    table = SUBSCRIBE if with_queue else PUBLISH
    allow = table.key_by_name["allow"].kind
    if isinstance(value.data, str | list):
        subjects = allow.read(reading, key, value, None)
        assert isinstance(subjects, tuple) or subjects is None
        return SubjectPermissions(allow=subjects)
    entries = read_map(key, value, "allow: [a, b], deny: c")
    if not entries:
        return None
    permissions = SubjectPermissions()
    read_block(reading, table, entries, permissions)
    permissions.deny = permissions.deny or ()
    return permissions


def _read_list(
    reading: Reading, key: Key, value: Value, target: object, with_queue: bool
) -> tuple[str, ...] | None:
    """Read one subject or a list of subjects.

    As in nats-server, an empty list counts as missing; it causes a warning, except for the key `deny`.
    """
    elements = value.data if isinstance(value.data, list) else [value]
    for element in elements:
        _check_subject(key, element, with_queue)
    if not elements and key.name != "deny":
        cause = f'"{key.name}" is an empty list, which allows every subject'
        reading.warn(value.place, cause, 'write deny: ">" to allow none, or leave it out')
    return tuple(str(element.data) for element in elements) or None


def _check_subject(key: Key, value: Value, with_queue: bool) -> None:
    if not isinstance(value.data, str):
        raise wrong_type(key, value, "a subject", "put it in quotes")
    words = value.data.split() if with_queue else [value.data]
    if len(words) in (1, 2) and all(is_subject(word) for word in words):
        return
    form = 'tokens joined by dots, as in "orders.*"'
    fix = f'write {form}, and for a queue "orders.* queue"' if with_queue else f"write {form}"
    raise Refused(value.place, f'"{key.name}" holds "{value.data}", which is no subject', fix)


def _read_responses(reading: Reading, key: Key, value: Value, target: object) -> ResponsePermission | None:
    if isinstance(value.data, bool):
        return ResponsePermission() if value.data else None
    return fill(reading, RESPONSES, key, value, 'max: 1, expires: "2m"', ResponsePermission())


def _subjects_table(with_queue: bool) -> Table:
    kind = Kind("list of subjects", partial(_read_list, with_queue=with_queue), "str | Sequence[str]")
    return Table(
        "permissions.subjects",
        (
            Key("allow", kind, "The allowed subjects; without them, all."),
            Key("deny", kind, "The forbidden subjects; they override `allow`."),
        ),
    )


PUBLISH, SUBSCRIBE = _subjects_table(with_queue=False), _subjects_table(with_queue=True)
RESPONSES = Table(
    "permissions.allow_responses",
    (
        Key(
            "max",
            INT,
            "Maximum number of answers to one message; negative: no limit.",
            ("max_msgs", "max_messages", "max_responses"),
            attrs=("max_msgs",),
            zero_is_default=True,
        ),
        Key(
            "expires",
            DURATION,
            "Time during which the user may publish to a reply subject; negative: no limit.",
            ("expiration", "ttl"),
            zero_is_default=True,
        ),
    ),
)

PERMISSIONS = Table(
    "permissions",
    (
        Key(
            "publish",
            Kind("subjects", partial(_read_subjects, with_queue=False), "str | Sequence[str] | {}", PUBLISH),
            "The subjects that the user may publish to.",
            ("pub", "import"),
        ),
        Key(
            "subscribe",
            Kind("subjects", partial(_read_subjects, with_queue=True), "str | Sequence[str] | {}", SUBSCRIBE),
            "The subjects that the user may subscribe to; an entry may also name a queue group.",
            ("sub", "export"),
        ),
        Key(
            "allow_responses",
            Kind("bool or map", _read_responses, "bool | {}", RESPONSES),
            "Allow the user to answer received messages on their reply subjects.",
            ("publish_allow_responses",),
        ),
    ),
)


def _read_permissions(reading: Reading, key: Key, value: Value, target: object) -> PermissionOptions:
    permissions = fill(reading, PERMISSIONS, key, value, "publish: a, subscribe: b", PermissionOptions())
    if permissions.allow_responses is not None:
        # With allow_responses and no allow list, all other publishes are denied.
        publish = permissions.publish = permissions.publish or SubjectPermissions()
        publish.allow = publish.allow or ()
    return permissions


PERMISSION_BLOCK = Kind("map", _read_permissions, "{}", PERMISSIONS)


def share_permissions(users: tuple[UserOptions, ...], permissions: PermissionOptions | None) -> None:
    """Set `permissions` on the users that have none."""
    for user in users:
        if user.permissions is None:
            user.permissions = permissions
