"""Resets of consumers in a simulation.

After a reset to a sequence, earlier deliveries and acknowledgements of messages from this sequence on do not count.

Only consumers of streams with limits retention are reset, since other streams remove acknowledged messages. Between
the request and its answer, it is unknown which messages a consumer delivers again. An answered reset is durable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.sim.checkers import demand

if TYPE_CHECKING:
    from tests.sim.checkers import ConsumerModel, StreamModel
    from tests.sim.world import World


def reset_consumer(world: World, at: int, model: StreamModel) -> None:
    """Reset a consumer to a sequence or to its ack floor."""
    world.process.run()  # handle earlier requests first
    world.collect()
    there = [consumer for consumer in model.consumers.values() if consumer.exists and not consumer.resetting]
    if model.config["retention"] != "limits" or not there:
        return
    consumer = world.rng.choice(there)
    wanted, chance = 0, world.rng.random()
    delivered = [seq for seq, publish in model.at.items() if publish.number in consumer.delivered]
    if chance < 0.5 and delivered:
        wanted = world.rng.choice(delivered)
    elif chance < 0.8:
        wanted = world.rng.randrange(1, model.max_seq + 3)
    consumer.confirmed, consumer.waiting = {}, []
    consumer.resetting, consumer.resets = True, consumer.resets + 1
    consumer.start_seq = max(consumer.start_seq, wanted)

    def answered(body: dict[str, Any]) -> None:
        world.say(f"reset {consumer.name} of {model.name}: {body.get('error', body.get('reset_seq'))}")
        consumer.resetting = False
        if "error" in body:
            demand(world.faults or model.deleting or consumer.deleting, f"{consumer.name}: {body}")
            return
        demand(
            wanted in (0, body["reset_seq"]),
            f"{consumer.name}: reset to {wanted}, not to {body['reset_seq']}",
        )
        restart(model, consumer, body["reset_seq"])

    world.say(f"reset {consumer.name} of {model.name} to {wanted}")
    world.request_api(
        at, f"CONSUMER.RESET.{model.name}.{consumer.name}", {"seq": wanted} if wanted else {}, answered
    )


def restart(model: StreamModel, consumer: ConsumerModel, seq: int) -> None:
    """Expect a consumer to deliver again every message from a sequence on."""
    consumer.start_seq = seq
    consumer.waiting = []
    for publish in model.at.values():
        if publish.seq >= seq:
            for what in (consumer.delivered, consumer.acked, consumer.confirmed):
                what.pop(publish.number, None)
