"""The cast of a story: a quiet world, a producer, consumers, and what they commonly do."""
from angarium.core.wire.frames import DestinationKind
from angarium.sim.network import Link, NetworkSettings
from angarium.sim.sessions import SimConsumer, SimProducer
from angarium.sim.world import World, WorldSettings

QUEUE, TOPIC = DestinationKind.QUEUE, DestinationKind.TOPIC
GRACE_S = 2.0


def quiet_world(
    *, network: NetworkSettings | None = None, bus_delay_s_max: float = 0.02, answer_delay_s_max: float = 0.0
) -> World:
    """Nothing goes wrong in it unless the story says so. The invariants are checked after every event."""
    settings = WorldSettings(
        grace_s=GRACE_S,
        network=network or NetworkSettings(),
        bus_delay_s_max=bus_delay_s_max,
        answer_delay_s_max=answer_delay_s_max,
        check_every=1,
    )
    return World(1, settings)


def producer_in(world: World, destination: str = "orders", kind: DestinationKind = QUEUE) -> SimProducer:
    producer = world.client("producer").open_session().produce(destination, kind)
    world.run_until(lambda: producer.facts.identity)
    return producer


def consumer_in(
    world: World, name: str, destination: str = "orders", kind: DestinationKind = QUEUE, *, subscription: str = "",
    prefetch: int = 10,
) -> SimConsumer:  # fmt: skip
    session = world.client(name).open_session()
    consumer = session.consume(destination, kind, subscription=subscription, prefetch=prefetch)
    world.run_until(lambda: consumer.is_open)
    return consumer


def publish(world: World, producer: SimProducer, *bodies: bytes) -> None:
    """... and wait for the confirm."""
    producer.publish(list(bodies))
    world.run_until(lambda: producer.unconfirmed == 0)


def settle_on_arrival(*consumers: SimConsumer) -> None:
    for consumer in consumers:
        consumer.on_arrival = lambda consumer, low, high: consumer.settle(low, high)
        consumer.settle(0, 1_000)


def link_of(consumer: SimConsumer) -> Link:
    link = consumer.session.client.link
    assert link is not None
    return link


def restart(world: World) -> None:
    """Cleanly."""
    world.broker.shut_down()
    world.broker.start()


def stored(world: World, destination: str = "orders") -> list[int]:
    """The sequences in the log, in its order."""
    log = world.ledger.messages.by_name[destination]
    return [log.messages[position][1] for position in sorted(log.messages)]
