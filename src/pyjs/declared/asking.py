"""The requests to the JetStream API by which assets are looked up and applied.

The generators yield lists of requests, and receive the answers in the same order; None stands for a missing answer.
They yield an empty list to let other work run. The server sends the requests to itself (server/declaring), and
`pyjs-server plan` sends them through a connection.
"""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from pyjs.base.errors import PyjsError
from pyjs.declared.assets import ConsumerAsset
from pyjs.declared.comparing import Contents
from pyjs.declared.planning import Action, Plan, Stored, StoredStream, Verb, freed, make_plan
from pyjs.jetstream.config.consumer_requests import read_create
from pyjs.jetstream.config.json_strict import parse_time_ns
from pyjs.jetstream.config.stream_requests import read_stream
from pyjs.jetstream.errcodes import ApiError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from typing import TypeAlias, TypeVar

    from pyjs.declared.assets import AccountAssets
    from pyjs.jetstream.config.consumer import ConsumerConfig

    Answer: TypeAlias = "dict[str, Any] | None"
    Result = TypeVar("Result")
    Exchange: TypeAlias = "Generator[list[Ask], list[Answer], Result]"

AT_ONCE = 64  # requests without an answer
PAGES_AT_ONCE = 4
PAGE = 256  # maximum number of streams or consumers in one answer
STREAMS_MAX = 10_000_000
INFOS_STEP = 16  # streams or consumers read in one turn: two milliseconds
NO_ANSWER = "no server answers"
TEMPORARY = (
    10005,
    10008,
    10118,
)  # too few servers, JetStream unavailable, the stream is offline
NOT_FOUND = 10059  # there is no such stream


class Ask(NamedTuple):
    """One request to the JetStream API."""

    words: str  # the subject after "$JS.API."
    body: dict[str, Any]

    @property
    def payload(self) -> bytes:
        """The body in JSON."""
        return orjson.dumps(self.body)


class LookFailed(PyjsError):
    """Raised when the stored streams or consumers cannot be listed; the message states the reason."""

    def __init__(self, reason: str, *, is_temporary: bool) -> None:
        super().__init__(reason)
        self.is_temporary = is_temporary


class InvalidAnswer(LookFailed):
    """Raised when an answer is not a valid answer of the JetStream API."""

    def __init__(self) -> None:
        super().__init__("an answer is invalid", is_temporary=False)


class Outcome(NamedTuple):
    """The result of one action of a plan."""

    action: Action
    error: str = ""
    is_temporary: bool = False  # the same request may succeed later


def plan(assets: AccountAssets, now_ns: int) -> Exchange[Plan]:
    """Look up the stored assets, and return the plan for one account.

    Raises:
        LookFailed: a request for a list was refused or not answered, or the answer is invalid.
    """
    stored = Stored()

    def take(info: dict[str, Any]) -> None:
        _take_stream(info, stored)

    def take_rest(page: dict[str, Any]) -> None:
        offline = page.get("offline") or {}
        for name in page.get("missing") or ():
            stored.unavailable[name] = offline.get(name) or NO_ANSWER

    yield from _infos("STREAM.LIST", "streams", take, take_rest)
    yield from _look_at_consumers(assets, stored)
    made = yield from _in_steps(make_plan(assets, stored, now_ns))
    yield from _in_steps(freed(stored.streams))
    return made


def _in_steps(steps: Generator[None, None, Result]) -> Exchange[Result]:
    """Run the generator `steps` to its end and return its result; yield [] after each step."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result
        yield []


def _take_stream(info: dict[str, Any], stored: Stored) -> None:
    """Add a listed stream to `stored`; a stream with unknown options counts as unavailable.

    Raises:
        InvalidAnswer: a field is missing or invalid.
    """
    try:
        state, name = info["state"], info["config"]["name"]
        contents = Contents(
            int(state.get("messages", 0)),
            int(state.get("bytes", 0)),
            int(state.get("num_subjects", 0)),
            parse_time_ns(state["first_ts"]) if state.get("messages") else 0,
        )
        config = read_stream(orjson.dumps(info["config"]), strict=False).config
    except ApiError as error:
        stored.unavailable[name] = f"its configuration cannot be read: {error.description}"
    except (AttributeError, KeyError, TypeError, ValueError):
        raise InvalidAnswer from None
    else:
        stored.streams[name] = StoredStream(config, contents)


def _look_at_consumers(assets: AccountAssets, stored: Stored) -> Exchange[None]:
    """Look up the consumers of each stored stream for which the file declares consumers or new consumer limits.

    If the consumers of a stream cannot be listed, the stream is recorded as unavailable.

    Raises:
        InvalidAnswer: a list of consumers is invalid.
    """
    changing = [
        name
        for name, asset in assets.streams.items()
        if name in stored.streams
        and asset.config.consumer_limits != stored.streams[name].config.consumer_limits
    ]
    for stream in dict.fromkeys([*(stream for stream, _ in assets.consumers), *changing]):
        if stream not in stored.streams:
            continue
        found = stored.consumers[stream] = {}
        take = partial(_take_consumer, stream, found)
        try:
            yield from _infos(f"CONSUMER.LIST.{stream}", "consumers", take)
        except InvalidAnswer:
            raise
        except LookFailed as error:  # only this stream is affected: its server may just have ended
            stored.unavailable[stream] = NO_ANSWER if error.is_temporary else str(error)
            found.clear()


def _take_consumer(stream: str, found: dict[str, ConsumerConfig], info: dict[str, Any]) -> None:
    """Add a listed consumer to `found`.

    Raises:
        InvalidAnswer: a field is missing or invalid.
    """
    try:
        body = orjson.dumps({"stream_name": stream, "config": info["config"]})
        found[info["name"]] = read_create(body, strict=False).config
    except (ApiError, KeyError, TypeError):
        raise InvalidAnswer from None


def _infos(
    words: str,
    name: str,
    take: Callable[[dict[str, Any]], None],
    take_rest: Callable[[dict[str, Any]], None] | None = None,
) -> Exchange[None]:
    """Request all pages of a list; call `take` for each element, and `take_rest` for each page.

    Pages are not collected, because freeing all of them at once would take too long.

    Raises:
        LookFailed: a page cannot be requested, or is invalid.
    """
    pages = yield from _pages(words, [0])
    offsets = _other_offsets(pages[0])
    while pages:
        page = pages.pop(0)
        infos = page.get(name) or []
        if not isinstance(infos, list):
            raise InvalidAnswer
        for at, info in enumerate(infos):
            if at % INFOS_STEP == 0:
                yield []
            take(info)
        if take_rest is not None:
            take_rest(page)
        if not pages:
            pages = yield from _pages(words, list(islice(offsets, PAGES_AT_ONCE)))


def _pages(words: str, offsets: list[int]) -> Exchange[list[dict[str, Any]]]:
    """Return the pages of a list that begin at `offsets`.

    Raises:
        LookFailed: a page was refused or not answered, or is invalid.
    """
    if not offsets:
        return []
    answers = yield [Ask(words, {"offset": offset}) for offset in offsets]
    pages = [_page(each) for each in answers]
    answers.clear()  # the caller has them too
    return pages


def _other_offsets(page: dict[str, Any]) -> Iterator[int]:
    """Return the offsets of the pages after `page`, the first page of a list.

    Raises:
        InvalidAnswer: the total or the limit of the page is invalid.
    """
    total, limit = page.get("total", 0), page.get("limit", PAGE)
    if type(total) is not int or type(limit) is not int or not 0 < limit <= PAGE or total > STREAMS_MAX:
        raise InvalidAnswer
    return iter(range(limit, total, limit))


def _page(answer: Answer) -> dict[str, Any]:
    if answer is None:
        raise LookFailed(NO_ANSWER, is_temporary=True)
    error = answer.get("error")
    if error is None:
        return answer
    if error.get("err_code") == NOT_FOUND:  # deleted since the streams were listed
        return {}
    raise LookFailed(error.get("description", ""), is_temporary=_is_temporary(error))


def _is_temporary(error: dict[str, Any]) -> bool:
    return error.get("code") == 503 or error.get("err_code") in TEMPORARY


def carry_out(planned: Plan) -> Exchange[list[Outcome]]:
    """Send the requests of a plan, wave after wave; return the outcomes of all actions, in the order of the plan."""
    outcomes = {id(each): Outcome(each, each.reason, each.reason == NO_ANSWER) for each in planned.actions}
    waves: dict[int, list[Action]] = {}
    for each in planned.actions:
        if each.verb in (Verb.CREATE, Verb.UPDATE):
            waves.setdefault(each.wave, []).append(each)
    for _, now in sorted(waves.items()):
        for at in range(0, len(now), AT_ONCE):
            some = now[at : at + AT_ONCE]
            answers = yield [_request(each) for each in some]
            for action, answer in zip(some, answers, strict=True):
                outcomes[id(action)] = _outcome(action, answer)
    return list(outcomes.values())


def _request(action: Action) -> Ask:
    asset = action.asset
    if isinstance(asset, ConsumerAsset):
        return Ask(f"CONSUMER.CREATE.{asset.stream}.{asset.name}", action.config)
    return Ask(f"STREAM.{action.verb.name}.{asset.name}", action.config)


def _outcome(action: Action, answer: Answer) -> Outcome:
    if answer is None:
        return Outcome(action, NO_ANSWER, is_temporary=True)
    error = answer.get("error")
    if error is None:
        return Outcome(action)
    return Outcome(action, error.get("description", ""), _is_temporary(error))
