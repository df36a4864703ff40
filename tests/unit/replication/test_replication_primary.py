"""The primary: ordering, committing, waiting, and what it asks of group services."""
from angarium.core.destination.events import WritesBlocked, WritesUnblocked
from angarium.core.groups import messages as g
from angarium.core.groups.configuration import EMPTY, Position, Replica
from angarium.core.replication import messages as m
from angarium.core.replication.events import (
    Command,
    DiskBlocked,
    FromGroups,
    LocallyWritten,
    MessageReceived,
    PayloadReceived,
    ReplicationSettings,
    SendOrder,
    StartMessageManager,
    StopMessageManager,
    Tick,
    ToManager,
    WriteLocal,
    WritesAsked,
    Written,
)
from angarium.core.report import Report
from angarium.core.storage import Put, Table
from tests.unit.replication.replication_parts import A, B, C, Told, configuration, messages, of, replica, write


def alone(settings: ReplicationSettings | None = None) -> Told:
    primary = Told(replica(A, settings=settings))
    primary.configured(configuration(1, A, members="a"))
    return primary


def leading(settings: ReplicationSettings | None = None, *, min_copies: int = 1) -> Told:
    """With b in sync, and c away."""
    primary = Told(replica(A, settings=settings))
    primary.configured(configuration(1, A, B, min_copies=min_copies))
    primary.tell(MessageReceived(B, m.Hello("g", 1, EMPTY)))
    assert of(StartMessageManager, primary.commands)
    return primary


def test_alone_a_write_is_told_when_the_local_disk_has_it() -> None:
    primary = alone()
    [local] = primary.tell(WritesAsked([write(1), write(2)]))
    assert isinstance(local, WriteLocal)
    tables = [operation.table for operation in local.operations]
    assert tables == [Table.BATCH, Table.BATCH, Table.REPLICA, Table.REPLICA]
    assert primary.tell(LocallyWritten(local.token)) == [Written([1, 2])]


def test_many_writes_are_one_order_and_told_when_every_in_sync_disk_has_them() -> None:
    primary = leading()
    local, order = primary.tell(WritesAsked([write(1), write(2)]))
    assert isinstance(local, WriteLocal) and isinstance(order, SendOrder) and isinstance(order.message, m.Order)
    assert (len(order.message.writes), order.message.previous, order.message.last) == (2, EMPTY, 2)
    assert primary.tell(LocallyWritten(local.token)) == []
    assert primary.tell(MessageReceived(B, m.Ack("g", 1, 1))) == [Written([1])]
    assert primary.tell(MessageReceived(B, m.Ack("g", 1, 1))) == []
    assert primary.tell(MessageReceived(B, m.Ack("g", 1, 2))) == [Written([2])]


def test_an_acknowledgement_of_a_stranger_or_of_what_was_never_ordered_counts_for_nothing() -> None:
    primary = leading()
    [local, _] = primary.tell(WritesAsked([write(1)]))
    assert isinstance(local, WriteLocal)
    primary.tell(LocallyWritten(local.token))
    assert primary.tell(MessageReceived(C, m.Ack("g", 1, 1))) == []
    assert primary.tell(MessageReceived(B, m.Ack("g", 1, 9))) == []
    assert primary.tell(MessageReceived(B, m.Ack("g", 1, 1))) == [Written([1])]


def test_a_value_that_everybody_heard_is_not_sent_again() -> None:
    primary = leading()
    payload = b"p" * 1_000
    primary.tell(PayloadReceived(b"cm", 5, payload))
    _, order = primary.tell(WritesAsked([write(1, payload)]))
    assert isinstance(order, SendOrder) and order.payload == b"" and isinstance(order.message, m.Order)
    assert order.message.writes[0].operations == [
        m.PutThere(Table.BATCH, b"key 1", m.Reference(b"cm", 5, 0, 1_000))
    ]
    [again] = primary.tell(MessageReceived(B, m.AskOrders("g", 1, EMPTY)))
    assert getattr(again, "payload", None) == payload  # who asks gets it in full


def test_past_the_window_writes_wait_and_past_what_may_wait_the_message_manager_is_told() -> None:
    primary = alone(ReplicationSettings(window_orders_max=2, waiting_bytes_max=60))
    commands = primary.tell(WritesAsked([write(token) for token in range(1, 4)]))
    assert len(of(WriteLocal, commands)) == 1 and not of(ToManager, commands)
    assert primary.machine.unwritten_bytes == 3 * 22
    commands = primary.tell(WritesAsked([write(4), write(5)]))
    assert [type(command) for command in commands] == [ToManager]
    assert isinstance(commands[0], ToManager) and isinstance(commands[0].event, WritesBlocked)
    commands = primary.tell(LocallyWritten(1))
    assert commands[0] == Written([1, 2])
    assert len(of(WriteLocal, commands)) == 1
    assert commands[-1] == ToManager(WritesUnblocked())


def test_one_write_larger_than_the_window_goes_alone() -> None:
    primary = alone(ReplicationSettings(window_bytes_max=100))
    commands = primary.tell(WritesAsked([write(1, b"x" * 500), write(2)]))
    assert len(of(WriteLocal, commands)) == 1
    assert primary.tell(LocallyWritten(1))[0] == Written([1])


def test_what_is_ordered_ahead_of_the_own_disk_leaves_room_in_its_reserve() -> None:
    """Once: what was ordered before the disk was found to be full took all of the reserve: nobody could empty it."""
    primary = alone(ReplicationSettings(ahead_bytes_max=1_000))
    commands = primary.tell(WritesAsked([write(token, b"x" * 400) for token in range(1, 6)]))
    assert _batches(commands) == [b"key 1", b"key 2"]
    assert _batches(primary.tell(DiskBlocked("no space left"))) == []
    assert _batches(primary.tell(WritesAsked([write(6, b"y" * 400, freeing=True)]))) == [b"key 6"]
    primary.tell(LocallyWritten(2))
    assert _batches(primary.tell(DiskBlocked(""))) == [b"key 3", b"key 4"]


def _batches(commands: list[Command]) -> list[bytes]:
    """Keys of what goes to the own disk."""
    return [
        operation.key
        for command in commands if isinstance(command, WriteLocal)
        for operation in command.operations if isinstance(operation, Put) and operation.table == Table.BATCH
    ]  # fmt: skip


def test_what_nobody_waits_for_waits_for_company() -> None:
    primary = alone()
    assert primary.tell(WritesAsked([write(1, patient=True)]), now=1.0) == []
    assert primary.machine.deadline() == 0.2  # the heartbeat's
    primary.tell(Tick(), now=1.001)
    assert primary.machine.deadline() == 1.003
    assert len(of(WriteLocal, primary.tell(Tick(), now=1.003))) == 1
    primary.tell(WritesAsked([write(2, patient=True)]), now=2.0)
    [local] = of(WriteLocal, primary.tell(WritesAsked([write(3)]), now=2.001))
    assert isinstance(local, WriteLocal) and len(local.operations) == 3


def test_on_a_full_disk_what_makes_room_is_ordered_first() -> None:
    primary = alone()
    told = primary.tell(DiskBlocked("no space left"))
    assert told == [ToManager(WritesBlocked("no space left"))]
    [local] = primary.tell(WritesAsked([write(1), write(2, freeing=True)]))
    assert isinstance(local, WriteLocal) and local.operations[0] == Put(Table.BATCH, b"key 2", b"v")
    assert primary.tell(LocallyWritten(local.token)) == [Written([2])]
    unblocked, [later] = (of(ToManager, primary.tell(DiskBlocked(""))), of(WriteLocal, primary.commands))
    assert unblocked == [ToManager(WritesUnblocked())]
    assert isinstance(later, WriteLocal) and later.operations[0] == Put(Table.BATCH, b"key 1", b"v")


def test_with_too_few_copies_nothing_is_ordered_and_the_reason_is_told() -> None:
    primary = leading(min_copies=2)
    told = primary.configured(configuration(2, A, min_copies=2))
    [blocked] = of(ToManager, told)
    assert isinstance(blocked, ToManager) and isinstance(blocked.event, WritesBlocked)
    assert blocked.event.reason == "group 'g' has 1 of min_copies 2 in sync; bring replicas back"
    assert blocked.event.code == "too-few-copies", "the disk has room"
    assert primary.tell(WritesAsked([write(1)])) == []
    told = primary.configured(configuration(3, A, B, min_copies=2))
    assert ToManager(WritesUnblocked()) in told and of(WriteLocal, told)


def test_a_late_backup_is_waited_for_until_the_configuration_is_without_it() -> None:
    primary = leading()
    [local, _] = primary.tell(WritesAsked([write(1)]), now=0.1)
    assert isinstance(local, WriteLocal)
    primary.tell(LocallyWritten(local.token), now=0.1)
    for now in (0.2, 0.4, 0.6, 0.8, 1.0):
        assert not messages(primary.tell(Tick(), now=now))[1:]
    asked = messages(primary.tell(Tick(), now=1.2))
    assert g.ShrinkAsk("g", 1, A, (B,)) in asked
    assert not of(Written, primary.commands)
    assert Written([1]) in primary.configured(configuration(2, A), now=1.3)


def test_that_a_backup_is_late_is_told_once_however_often_it_is_asked_to_be_taken_out() -> None:
    """Without a majority of the voters that goes on for long: it was an event every second."""
    primary = leading()
    [local, _] = primary.tell(WritesAsked([write(1)]), now=0.1)
    assert isinstance(local, WriteLocal)
    primary.tell(LocallyWritten(local.token), now=0.1)
    asked: list[object] = []
    told: list[Command] = []
    for tenth in range(2, 100):
        commands = primary.tell(Tick(), now=tenth / 10)
        asked += [message for message in messages(commands) if isinstance(message, g.ShrinkAsk)]
        told += of(Report, commands)
    assert len(asked) > 3 and [getattr(report, "code", "") for report in told] == ["replica-late"]
    primary.configured(configuration(2, A, B), now=10.0)
    for tenth in range(102, 120):
        told += of(Report, primary.tell(Tick(), now=tenth / 10))
    assert len(told) == 2, "in another epoch it is news"


def test_one_that_was_taken_out_is_not_asked_for_before_it_is_there_again() -> None:
    """It had acknowledged everything, and its group is idle: it may be dead all the same."""
    primary = leading()
    primary.configured(configuration(2, A), now=1.0)
    asked = [message for second in range(2, 20) for message in messages(primary.tell(Tick(), now=float(second)))]
    assert all(isinstance(message, m.Order) for message in asked)
    assert g.AdmitAsk("g", 2, A, B) in messages(primary.tell(MessageReceived(B, m.Hello("g", 2, EMPTY)), now=20.0))


def test_a_primary_that_stood_still_accuses_nobody() -> None:
    primary = leading()
    [local, _] = primary.tell(WritesAsked([write(1)]), now=0.1)
    assert isinstance(local, WriteLocal)
    primary.tell(LocallyWritten(local.token), now=0.1)
    primary.tell(Tick(), now=0.2)
    assert all(isinstance(message, m.Order) for message in messages(primary.tell(Tick(), now=5.0)))
    for now in (5.2, 5.4, 5.6, 5.8):
        primary.tell(Tick(), now=now)
    assert g.ShrinkAsk("g", 1, A, (B,)) in messages(primary.tell(Tick(), now=6.0))


def test_one_that_joins_is_required_from_the_moment_of_asking() -> None:
    primary = leading()
    asked = messages(primary.tell(MessageReceived(C, m.Hello("g", 1, EMPTY))))
    assert g.AdmitAsk("g", 1, A, C) in asked
    [local, _] = primary.tell(WritesAsked([write(1)]))
    assert isinstance(local, WriteLocal)
    primary.tell(LocallyWritten(local.token))
    assert not of(Written, primary.tell(MessageReceived(B, m.Ack("g", 1, 1))))
    # That it was too late to ask tells nothing: an earlier question may have been heard.
    assert not of(Written, primary.tell(FromGroups(g.ChangeRefused("g", 1, "stale-epoch", "", None))))
    primary.tell(FromGroups(g.ChangeRefused("g", 1, "not-a-member", "", None)))
    assert of(Written, primary.tell(Tick(), now=0.2))


def test_who_has_something_else_or_too_little_has_to_copy_from_a_backup_rather_than_from_us() -> None:
    primary = leading(ReplicationSettings(recent_orders_max=1))
    commands = primary.tell(WritesAsked([write(token) for token in range(1, 5)]))
    [local] = of(WriteLocal, commands)
    assert isinstance(local, WriteLocal)
    primary.tell(LocallyWritten(local.token))
    primary.tell(MessageReceived(B, m.Ack("g", 1, 4)))
    for position in (Position(1, 1), Position(1, 5), Position(7, 2)):
        [copy] = messages(primary.tell(MessageReceived(C, m.Hello("g", 1, position))))
        assert isinstance(copy, m.MustCopy) and (copy.host, copy.start) == (B, Position(1, 4))
    [copy] = messages(primary.tell(MessageReceived(C, m.Hello("g", 1, EMPTY, avoid=B))))
    assert isinstance(copy, m.MustCopy) and copy.host == A


def test_one_that_is_new_copies_rather_than_being_told_every_order_there_was() -> None:
    primary = leading(ReplicationSettings(range_bytes=100))

    def order(token: int) -> None:
        [local] = of(WriteLocal, primary.tell(WritesAsked([write(token, b"v" * 40)])))
        assert isinstance(local, WriteLocal)
        primary.tell(LocallyWritten(local.token))
        primary.tell(MessageReceived(B, m.Ack("g", 1, token)))

    order(1)
    [few, *_] = messages(primary.tell(MessageReceived(Replica("c", b"another"), m.Hello("g", 1, EMPTY))))
    assert isinstance(few, m.Welcome)
    order(2)
    [copy] = messages(primary.tell(MessageReceived(C, m.Hello("g", 1, EMPTY))))
    assert isinstance(copy, m.MustCopy) and (copy.host, copy.start) == (B, Position(1, 2))
    assert copy.reason == "what follows 0/0 is more than one that is new is told"
    [away, *_] = messages(primary.tell(MessageReceived(C, m.Hello("g", 1, Position(1, 1)))))
    assert isinstance(away, m.Welcome), "it has been away for a moment"
    [counted_on, *_] = messages(primary.tell(MessageReceived(B, m.Hello("g", 1, EMPTY))))
    assert isinstance(counted_on, m.Welcome), "the configuration counts on it"


def test_it_hands_over_when_all_is_acknowledged_and_orders_nothing_more() -> None:
    primary = leading()
    [local, _] = primary.tell(WritesAsked([write(1)]))
    assert isinstance(local, WriteLocal)
    assert primary.tell(FromGroups(g.HandOverAsk("g", 1, A))) == []
    assert primary.tell(WritesAsked([write(2)])) == []
    primary.tell(LocallyWritten(local.token))
    commands = primary.tell(MessageReceived(B, m.Ack("g", 1, 1)))
    assert commands[0] == Written([1])
    assert messages(commands) == [g.HandOverReady("g", 1, A, Position(1, 1))]


def test_a_higher_epoch_stops_it_at_once() -> None:
    primary = leading()
    assert [type(command) for command in primary.tell(MessageReceived(B, m.Stale("g", 2)))] == [StopMessageManager]
    assert primary.tell(WritesAsked([write(1)])) == []
    assert primary.machine.deadline() is None


def test_a_backup_that_nobody_takes_out_blocks_producers_with_the_reason() -> None:
    """Without a majority of the voters no configuration comes: whoever sends shall know what he waits for."""
    primary = leading()
    [local, _] = primary.tell(WritesAsked([write(1)]), now=0.1)
    assert isinstance(local, WriteLocal)
    primary.tell(LocallyWritten(local.token), now=0.1)
    told: list[object] = []
    for tenth in range(2, 40):
        told += of(ToManager, primary.tell(Tick(), now=tenth / 10))
    [blocked] = told
    assert isinstance(blocked, ToManager) and isinstance(blocked.event, WritesBlocked)
    assert blocked.event.code == "copies-behind" and "group 'g' waits for b" in blocked.event.reason
    primary.tell(MessageReceived(B, m.Ack("g", 1, 1)), now=4.0)
    assert ToManager(WritesUnblocked()) in primary.tell(Tick(), now=4.1)


def test_nobody_copies_from_the_store_that_his_own_node_has_lost() -> None:
    primary = leading(ReplicationSettings(recent_orders_max=1))
    [local] = of(WriteLocal, primary.tell(WritesAsked([write(token) for token in range(1, 5)])))
    assert isinstance(local, WriteLocal)
    primary.tell(LocallyWritten(local.token))
    primary.tell(MessageReceived(B, m.Ack("g", 1, 4)))
    copy, *asked = messages(primary.tell(MessageReceived(Replica("b", b"new"), m.Hello("g", 1, EMPTY))))
    assert isinstance(copy, m.MustCopy) and copy.host == A
    assert g.ShrinkAsk("g", 1, A, (B,)) in asked, "and nobody waits for it any longer"
