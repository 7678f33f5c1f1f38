"""The comparison of a stream of the server with the model of this stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.sim.checkers import StreamModel, demand

if TYPE_CHECKING:
    from tests.sim.world import World

NS_PER_S = 1_000_000_000
WAITS = 30  # tenths of a second that a request may wait for a change that the disk has stopped


def audit_stream(world: World, model: StreamModel, stream: Any, restarted: bool) -> None:
    """Read a stream and its consumers, and compare them with the model."""
    model.latest_ns = max(model.latest_ns, world.now())
    world.adopt_limits(model, stream)
    store = stream.store
    _messages(store)  # what a read finds damaged no longer counts
    state = _answer(world, f"STREAM.INFO.{model.name}", {"deleted_details": True})["state"]
    first, last, messages = store.first_seq, store.last_seq, _messages(store)
    world.say(f"audit {model.name}: {state['messages']} of {first}..{last}")
    young = restarted or world.now() - world.life_began_ns < NS_PER_S // 5  # the timers have not run yet
    model.audit(messages, state, world.now(), young, restarted, world.power_lost)
    for consumer in model.consumers.values():
        if consumer.exists:
            info = _answer(world, f"CONSUMER.INFO.{model.name}.{consumer.name}", {})
            demand("error" not in info, f"{consumer.name}: {info}")
            # A failed store refuses the deletion, but forgets the message until the next start.
            model.audit_consumer(consumer, info, counted=not store.failed)


def _messages(store: Any) -> list[Any]:
    seqs = range(store.first_seq, store.last_seq + 1)
    return [message for seq in seqs if (message := store.get(seq)) is not None]


def _answer(world: World, subject: str, body: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a request."""
    found: list[dict[str, Any]] = []
    world.request_api(0, subject, body, found.append)
    world.process.run()
    world.collect()
    for _ in range(WAITS if world.faults else 0):
        if found or world.disk.dead:
            break
        world.process.advance(NS_PER_S // 10)
        world.process.settle()
        world.collect()
    demand(found, f"{subject} is not answered")
    return found[0]
