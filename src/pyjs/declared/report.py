"""The lines and the JSON of a plan and of its results."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from pyjs.declared.planning import Verb

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyjs.declared.asking import Outcome
    from pyjs.declared.planning import Action, Plan

SIGNS = {Verb.CREATE: "+", Verb.UPDATE: "~", Verb.SAME: "=", Verb.REFUSE: "!"}
DONE = {Verb.CREATE: "created", Verb.UPDATE: "updated", Verb.SAME: "unchanged"}
LINES_MAX = 100  # lines of one application in the log


def plan_lines(plan: Plan) -> Iterator[str]:
    """Yield the lines of `pyjs-server plan` for one account."""
    for action in plan.actions:
        yield plan_line(action)
    for name in plan.others:
        yield f"- {printable(name)}  not in the file, left alone"


def plan_line(action: Action) -> str:
    """Return the line of `pyjs-server plan` for one action."""
    return f"{SIGNS[action.verb]} {described(action)}"


def printable(text: str) -> str:
    """Return `text` with unprintable characters replaced with their escapes."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def described(action: Action, *, is_done: bool = False) -> str:
    """Return a description of the asset and its planned or completed action."""
    named = f"{action.asset.kind} {action.asset.shown_name}"
    changes = ", ".join(map(str, action.changes))
    if action.verb is Verb.SAME:
        text = named
    elif action.verb is Verb.REFUSE:
        reason = f"cannot change {changes} ({action.reason})" if changes else action.reason
        text = f"{named}  {reason}"
    else:
        word = DONE[action.verb] if is_done else action.verb.value
        text = f"{named}  {word}{f' {changes}' if changes else ''}"
    return printable(text)


def plan_json(plan: Plan) -> dict[str, Any]:
    """Return the plan of one account as JSON."""
    return {
        "account": plan.account,
        "assets": [
            {
                "kind": action.asset.kind,
                "name": action.asset.shown_name,
                "action": action.verb.value,
                "changes": [change._asdict() for change in action.changes],
                **({"reason": action.reason} if action.reason else {}),
            }
            for action in plan.actions
        ],
        "not_in_file": plan.others,
    }


def is_done(plans: Iterable[Plan]) -> bool:
    """Return whether every action of the plans is SAME."""
    return all(action.verb is Verb.SAME for plan in plans for action in plan.actions)


def outcome_lines(account: str, outcomes: list[Outcome]) -> Iterator[tuple[bool, str]]:
    """Yield (whether it is an error, text) for each line of the log about a plan that was carried out.

    An asset that stays as it was has no line. After LINES_MAX lines, one more line has the number of omitted lines.
    """
    count = 0
    for outcome in outcomes:
        action = outcome.action
        if action.verb is Verb.SAME:
            continue
        count += 1
        if count > LINES_MAX:
            continue
        text = described(action, is_done=not outcome.error)
        if outcome.error and action.verb is not Verb.REFUSE:
            text += f": {printable(outcome.error)}"
        yield bool(outcome.error), f"Declared in account {account}: {SIGNS[action.verb]} {text}"
    if count > LINES_MAX:
        yield False, f"Declared in account {account}: {count - LINES_MAX} more lines are left out"


def totals(outcomes: Iterable[Outcome]) -> str:
    """Return a string with the numbers of assets that were created, updated and so on."""
    counts = Counter("failed" if each.error else DONE[each.action.verb] for each in outcomes)
    return (
        ", ".join(f"{counts[word]} {word}" for word in (*DONE.values(), "failed") if counts[word])
        or "nothing"
    )
