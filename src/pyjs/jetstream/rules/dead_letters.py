"""Checks of the metadata that names a stream for dead letters.

These are pure functions of configurations. `problem_of` is also called before letters are sent, since the stream for
letters may have changed after the check.

Source: docs/dead-letters.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.jetstream import errcodes
from pyjs.jetstream.config.choices import INTEREST
from pyjs.jetstream.config.dead_letters import KEYS_BEGIN, PREFIX_KEY, STREAM_KEY, Target, target_of
from pyjs.subjects.tokens import is_subset, is_valid_literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyjs.jetstream.config.consumer import ConsumerConfig
    from pyjs.jetstream.config.stream import StreamConfig
    from pyjs.jetstream.rules.sources import Find

PREFIX_SIZE_MAX = 255
SHOWN_MAX = 64  # characters of a value in the text of an error
CHAIN_MAX = 64  # maximum number of streams in a chain, each of which sends its dead letters to the next
_RESERVED = ("$JS", "$JSC", "$NRG", "$SYS")


def check_stream(config: StreamConfig, find: Find, old: StreamConfig | None = None) -> None:
    """Refuse a stream whose metadata about dead letters is invalid, or names a stream that could not store them.

    `old` is the configuration that `config` replaces, if any. The stream for the letters is checked only if the
    metadata about dead letters changes. So after that stream was deleted, other options can still be changed.

    Raises:
        ApiError: 20005.
    """
    _check(config.name, config.metadata, {}, find, None if old is None else old.metadata)


def check_consumer(
    config: ConsumerConfig, stream: StreamConfig, find: Find, old: ConsumerConfig | None = None
) -> None:
    """Refuse a consumer whose metadata about dead letters is invalid, or names a stream that could not store them.

    `old` is the configuration that `config` replaces, if any.

    Raises:
        ApiError: 20005.
    """
    if not _keys_of(config.metadata):
        return
    if config.metadata.get(STREAM_KEY) and config.ack_policy not in ("explicit", "all"):
        raise _wrong(
            f"a consumer with ack policy {config.ack_policy} gives no message up: remove {STREAM_KEY} from"
            " its metadata"
        )
    _check(stream.name, stream.metadata, config.metadata, find, None if old is None else old.metadata)


def problem_of(target: Target, source: str, config: StreamConfig | None) -> str:
    """Return the reason why the stream of `target` cannot store dead letters of `source`, or "" if it can.

    `config` is the configuration of the stream of `target`, or None if there is no such stream.
    """
    name = _shown(target.stream)
    if config is None:
        return f"the stream {name} does not exist: create it first"
    wanted = target.subjects_of(source).encode()
    if config.mirror is not None:
        return f"the stream {name} is a mirror and takes no messages: use another stream"
    if config.sealed or config.no_ack or config.allow_msg_counter or config.allow_msg_schedules:
        fields = ("sealed", "no_ack", "allow_msg_counter", "allow_msg_schedules")
        found = next(field for field in fields if getattr(config, field))
        return f"the stream {name} has {found}, which does not suit dead letters: use another stream"
    if config.subject_transform is not None:
        return f"the stream {name} has a subject transform, which changes the letters' subjects: use another stream"
    if config.retention == INTEREST:
        return f"the stream {name} has retention interest, which drops letters that no consumer awaits: use limits"
    if not any(is_subset(wanted, subject.encode()) for subject in config.subjects):
        return f"the stream {name} has no subject that covers {wanted.decode()}: add that to its subjects"
    return ""


def _check(
    source: str,
    of_stream: Mapping[str, str],
    of_consumer: Mapping[str, str],
    find: Find,
    old: Mapping[str, str] | None,
) -> None:
    keys = _keys_of(of_consumer or of_stream)
    unknown = next((key for key in keys if key not in (STREAM_KEY, PREFIX_KEY)), "")
    if unknown:
        raise _wrong(f"metadata {_shown(unknown)} is unknown: the keys are {STREAM_KEY} and {PREFIX_KEY}")
    target = target_of(of_stream, of_consumer)
    if target is None:
        return
    _check_prefix(target.prefix)
    if target.stream == source:
        raise _wrong(f"{STREAM_KEY} is the stream itself, whose letters would never end: use another stream")
    if old is not None and _keys_of(old) == keys:
        return
    problem = problem_of(target, source, find(target.stream))
    if problem:
        raise _wrong(f"{STREAM_KEY}: {problem}")
    _check_chain(source, target, find)


def _check_chain(source: str, target: Target, find: Find) -> None:
    """Refuse dead letters that would go through a circle of streams, or through more than CHAIN_MAX streams."""
    chain = [source, target.stream]
    while len(chain) <= CHAIN_MAX:
        config = find(chain[-1])
        following = None if config is None else target_of(config.metadata, {})
        if following is None:
            return
        chain.append(following.stream)
        if following.stream in chain[:-1]:
            raise _wrong(
                f"{STREAM_KEY} leads in a circle: {' -> '.join(chain[:8])}: end it at one of these streams"
            )
    raise _wrong(
        f"{STREAM_KEY} leads over more than {CHAIN_MAX} streams: {' -> '.join(chain[:8])} ...: end it earlier"
    )


def _check_prefix(prefix: str) -> None:
    raw = prefix.encode()
    if not is_valid_literal(raw) or len(raw) > PREFIX_SIZE_MAX or prefix.split(".")[0] in _RESERVED:
        raise _wrong(
            f"{PREFIX_KEY} is {_shown(prefix)}: it is the start of a subject, without wildcards, of at most"
            f" {PREFIX_SIZE_MAX} bytes, and not in {', '.join(_RESERVED)}"
        )


def _keys_of(metadata: Mapping[str, str]) -> dict[str, str]:
    """Return the part of the metadata that is about dead letters."""
    return {key: value for key, value in metadata.items() if key.startswith(KEYS_BEGIN)}


def _shown(text: str) -> str:
    """Return a client's string in quotes, truncated to a length that fits into an error."""
    return f'"{text}"' if len(text) <= SHOWN_MAX else f'"{text[:SHOWN_MAX]}..."'


def _wrong(text: str) -> errcodes.ApiError:
    return errcodes.DEAD_LETTERS_CONFIG.error(err=text)
