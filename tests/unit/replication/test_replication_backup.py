"""Backups, copies, files and promises, machine by machine."""
import msgspec

from angarium.core.groups import messages as g
from angarium.core.groups.configuration import EMPTY, Position
from angarium.core.replication import messages as m
from angarium.core.replication.backup import Backup
from angarium.core.replication.events import (
    FilesAsked,
    FromGroups,
    LocalFile,
    LocallyWritten,
    MessageReceived,
    PayloadReceived,
    RangeRead,
    ReadRange,
    ReplicationSettings,
    SendOrder,
    SendTo,
    StartMessageManager,
    StopMessageManager,
    Tick,
    ToManager,
    WriteLocal,
    WritesAsked,
)
from angarium.core.replication.history import NOWHERE
from angarium.core.replication.ranges import pack_items
from angarium.core.report import Report
from angarium.core.storage import Put, Table
from angarium.core.stream.blocks import Block
from angarium.core.stream.events import AppendBlock, BlocksRead, FileSynced, FileWritten, ReadBlocks, SyncFile
from angarium.core.stream.table import StreamRecord
from tests.unit.replication.replication_parts import A, B, C, Told, configuration, messages, of, replica, write

STREAM = b"s" * 16


def order(previous: Position, *numbers: int, epoch: int = 1, last: int = 0, committed: int = 0) -> MessageReceived:
    writes = [m.OrderedWrite(epoch, [m.PutHere(Table.BATCH, b"k%d" % number, 1)]) for number in numbers]
    end = previous.number + len(numbers)
    message = m.Order("g", epoch, previous, committed, last or end, writes)
    return MessageReceived(A, message, b"v" * len(numbers))


def following(settings: ReplicationSettings | None = None, *, position: Position = EMPTY, in_sync: bool = True) -> Told:
    """Known to its primary."""
    backup = Told(replica(B, position=position, settings=settings))
    given = configuration(1, A, B) if in_sync else configuration(1, A)
    assert messages(backup.configured(given)) == [m.Hello("g", 1, position)]
    backup.tell(MessageReceived(A, m.Welcome("g", 1, 0, position.number)))
    return backup


# -- orders --------------------------------------------------------------------------------------------


def test_what_is_durable_is_acknowledged_once_for_a_whole_group() -> None:
    backup = following()
    backup.tell(order(EMPTY, 1, 2))
    [local] = backup.commands
    assert isinstance(local, WriteLocal)
    [later] = backup.tell(order(Position(1, 2), 3))
    assert isinstance(later, WriteLocal)
    assert backup.tell(LocallyWritten(later.token)) == [SendTo(A, m.Ack("g", 1, 3))]


def test_a_copy_that_was_removed_stores_nothing_more_until_it_is_wanted_again() -> None:
    backup = following()
    backup.tell(order(EMPTY, 1))
    [local] = backup.commands
    assert isinstance(local, WriteLocal)
    backup.tell(LocallyWritten(local.token))
    [fence] = backup.configured(configuration(2, A, members="ac"))
    assert isinstance(fence, WriteLocal)
    assert backup.tell(LocallyWritten(fence.token)) == []
    assert backup.tell(MessageReceived(A, m.Welcome("g", 2, 0, 1))) == []
    assert backup.tell(order(Position(1, 1), 2, epoch=2)) == []
    assert backup.machine.deadline() is None
    [fence] = backup.configured(configuration(3, A))
    assert isinstance(fence, WriteLocal)
    assert messages(backup.tell(LocallyWritten(fence.token))) == [m.Hello("g", 3, Position(1, 1))]


def test_a_gap_is_asked_for_and_what_came_early_is_kept() -> None:
    backup = following()
    assert backup.tell(order(Position(1, 1), 2, 3)) == [SendTo(A, m.AskOrders("g", 1, EMPTY))]
    assert backup.tell(order(Position(1, 3), 4)) == []
    [local] = backup.tell(order(EMPTY, 1, last=4))
    assert isinstance(local, WriteLocal) and len(local.operations) == 4 + 2
    assert backup.tell(order(EMPTY, 1, 2, 3)) == []  # it has them


def test_a_heartbeat_shows_a_lost_tail() -> None:
    backup = following()
    assert backup.tell(order(Position(1, 2))) == [SendTo(A, m.AskOrders("g", 1, EMPTY))]
    assert backup.tell(Tick(), now=0.1) == []
    assert backup.tell(Tick(), now=0.6) == [SendTo(A, m.AskOrders("g", 1, EMPTY))]


def test_a_payload_that_comes_late_is_waited_for_and_then_fetched() -> None:
    backup = following()
    there = m.OrderedWrite(1, [m.PutThere(Table.BATCH, b"k", m.Reference(b"cm", 1, 0, 300))])
    referring = MessageReceived(A, m.Order("g", 1, EMPTY, 0, 1, [there]))
    assert backup.tell(referring, now=1.0) == []
    assert backup.machine.deadline() == 1.02
    assert backup.tell(Tick(), now=1.02) == [SendTo(A, m.AskOrders("g", 1, EMPTY))]
    [local] = backup.tell(PayloadReceived(b"cm", 1, b"p" * 300), now=1.03)
    assert isinstance(local, WriteLocal) and local.operations[0] == Put(Table.BATCH, b"k", b"p" * 300)


def test_nothing_is_acknowledged_before_the_primary_knows_us() -> None:
    backup = Told(replica(B))
    backup.configured(configuration(1, A, B))
    [local] = of(WriteLocal, backup.tell(order(EMPTY, 1)))
    assert isinstance(local, WriteLocal)
    assert not of(SendTo, backup.tell(LocallyWritten(local.token)))
    assert backup.tell(MessageReceived(A, m.Welcome("g", 1, 0, 1))) == [SendTo(A, m.Ack("g", 1, 1))]


def test_orders_of_a_primary_that_does_not_know_us_yet_are_forgotten_once_committed() -> None:
    backup = Told(replica(B, settings=ReplicationSettings(recent_orders_max=1)))
    backup.configured(configuration(1, A, B))
    backup.tell(order(EMPTY, 1, 2))
    backup.tell(order(Position(1, 2), 3, committed=2))
    assert len(backup.machine.window) == 1


def test_a_lower_epoch_is_refused_with_the_newer_and_a_higher_one_is_not_taken_before_its_configuration() -> None:
    backup = following()
    backup.configured(configuration(2, C, B))
    assert backup.tell(order(EMPTY, 1)) == [SendTo(A, m.Stale("g", 2))]
    message = m.Order("g", 3, EMPTY, 0, 1, [m.OrderedWrite(3, [])])
    assert backup.tell(MessageReceived(A, message)) == []
    assert backup.machine.local.handed == EMPTY


def test_an_order_that_does_not_follow_is_not_taken() -> None:
    backup = following(position=Position(1, 5))
    backup.configured(configuration(2, A, B))
    foreign = m.Order("g", 2, Position(2, 5), 0, 6, [m.OrderedWrite(2, [])])
    assert not of(WriteLocal, backup.tell(MessageReceived(A, foreign), now=0.1))
    assert backup.machine.local.handed == Position(1, 5)


# -- promises ------------------------------------------------------------------------------------------


def test_a_promise_is_given_when_it_is_on_disk_behind_all_that_was_accepted() -> None:
    backup = following()
    [local] = backup.tell(order(EMPTY, 1))
    [fence] = backup.tell(FromGroups(g.FenceAsk("g", 1, B)))
    assert isinstance(local, WriteLocal) and isinstance(fence, WriteLocal)
    assert backup.tell(order(Position(1, 1), 2)) == []
    assert backup.tell(LocallyWritten(local.token)) == []
    said = [g.Fenced("g", 1, B, Position(1, 1))]
    assert messages(backup.tell(LocallyWritten(fence.token))) == said
    assert messages(backup.tell(Tick(), now=0.5)) == said  # again: who asked may be gone
    assert messages(backup.tell(FromGroups(g.FenceAsk("g", 1, B)), now=0.6)) == said
    assert backup.configured(configuration(1, A, B)) == []
    assert messages(backup.configured(configuration(2, A, B))) == [m.Hello("g", 2, Position(1, 1))]


def test_who_knows_a_higher_epoch_or_has_no_whole_store_promises_nothing() -> None:
    backup = following()
    backup.configured(configuration(3, A, B))
    assert backup.tell(FromGroups(g.FenceAsk("g", 2, B))) == []
    assert backup.tell(FromGroups(g.FenceAsk("g", 3, C))) == []
    guest = following(in_sync=False)
    guest.tell(MessageReceived(A, m.MustCopy("g", 1, A, Position(1, 9), [(1, 1)], "")))
    assert guest.tell(FromGroups(g.FenceAsk("g", 1, B))) == []


def test_a_primary_that_promises_stops_at_once() -> None:
    primary = Told(replica(A))
    primary.configured(configuration(1, A))
    commands = primary.tell(FromGroups(g.FenceAsk("g", 1, A)))
    assert [type(command) for command in commands] == [StopMessageManager, WriteLocal]


# -- promotion -----------------------------------------------------------------------------------------


def test_a_promoted_backup_starts_when_all_have_its_tail() -> None:
    backup = following()
    [local] = backup.tell(order(EMPTY, 1, 2))
    assert isinstance(local, WriteLocal)
    backup.tell(LocallyWritten(local.token))
    assert not of(StartMessageManager, backup.configured(configuration(2, B, C)))
    backup.tell(MessageReceived(C, m.Hello("g", 2, Position(1, 1))))
    assert not of(StartMessageManager, backup.commands)
    [tail] = backup.tell(MessageReceived(C, m.AskOrders("g", 2, Position(1, 1))))
    assert isinstance(tail, SendTo) and isinstance(tail.message, m.Order)
    assert [order.epoch for order in tail.message.writes] == [1]  # as it was ordered
    assert of(StartMessageManager, backup.tell(MessageReceived(C, m.Ack("g", 2, 2))))
    [local, sent] = backup.tell(WritesAsked([write(1)]))
    assert isinstance(sent, SendOrder) and isinstance(sent.message, m.Order)
    assert (sent.message.previous, sent.message.writes[0].epoch) == (Position(1, 2), 2)
    assert backup.machine.local.history.epochs == [(1, 1), (2, 3)]


def test_a_configuration_that_names_an_earlier_start_of_our_node_makes_nobody_primary() -> None:
    restarted = Told(replica(A, position=Position(1, 3)))
    restarted.machine._incarnation = b"another"
    assert not of(StartMessageManager, restarted.configured(configuration(1, A)))
    assert restarted.machine.role is None


def test_a_store_in_the_middle_of_a_copy_is_never_primary() -> None:
    guest = following(in_sync=False)
    guest.tell(MessageReceived(A, m.MustCopy("g", 1, A, Position(1, 9), [(1, 1)], "")))
    guest.configured(configuration(2, B))
    assert not of(StartMessageManager, guest.commands)


# -- copying -------------------------------------------------------------------------------------------


def test_nobody_copies_while_the_configuration_counts_on_him() -> None:
    backup = following(position=Position(1, 5))
    assert backup.tell(MessageReceived(A, m.MustCopy("g", 1, A, Position(1, 9), [(1, 1)], ""))) == []
    assert backup.machine.local.written == Position(1, 5)


def test_nobody_copies_for_what_he_had_before() -> None:
    """He says hello again instead: whoever told him so takes him for one that has to copy."""
    backup = following(position=Position(1, 5), in_sync=False)
    late = m.MustCopy("g", 1, C, Position(1, 9), [(1, 1)], "", after=Position(1, 3))
    assert messages(backup.tell(MessageReceived(A, late), now=10.0)) == [m.Hello("g", 1, Position(1, 5))]
    assert not backup.machine.local.is_copying
    backup.tell(MessageReceived(A, msgspec.structs.replace(late, after=Position(1, 5))), now=10.0)
    assert backup.machine.local.is_copying


def test_who_copies_does_not_begin_again_for_what_he_had_before() -> None:
    guest = following(in_sync=False)
    guest.tell(MessageReceived(A, m.MustCopy("g", 1, C, Position(1, 9), [(1, 1)], "", after=Position(0, 0))))
    backup = guest.machine.role
    assert isinstance(backup, Backup)
    copying = backup.guest
    late = m.MustCopy("g", 1, C, Position(1, 9), [(1, 1)], "", after=Position(1, 3))
    assert guest.tell(MessageReceived(A, late)) == []
    assert backup.guest is copying
    guest.tell(MessageReceived(A, msgspec.structs.replace(late, after=Position(1, 9))))  # too old by now
    assert backup.guest is not copying


def test_a_copy_goes_range_by_range_with_what_was_ordered_meanwhile() -> None:
    guest = following(in_sync=False)
    begun = of(WriteLocal, guest.tell(MessageReceived(A, m.MustCopy("g", 1, C, Position(1, 9), [(1, 1)], ""))))
    token = getattr(begun[0], "token", 0)
    asked: list[Table] = []
    now, ended = 0.0, False
    for _ in range(100):
        now += 0.01
        commands = guest.tell(LocallyWritten(token), now=now)
        reads = of(ReadRange, commands)
        if not reads:
            break
        [read] = reads
        assert isinstance(read, ReadRange)
        [ask] = of(SendTo, guest.tell(RangeRead(read.token, read.high, b"d", 0, 0, None), now=now))
        assert isinstance(ask, SendTo) and ask.replica == C and isinstance(ask.message, m.RangeAsk)
        asked.append(ask.message.table)
        if ask.message.table == Table.BATCH:
            # Order 10 is written here while the host, still at 9, reads.
            guest.tell(order(Position(1, 9), 10), now=now)
            data = pack_items([(b"a", b"1"), (b"k10", b"old")])
            part = m.RangePart("g", 1, ask.message.request, ask.message.high, 9, 9)
            [local] = of(WriteLocal, guest.tell(MessageReceived(C, part, data), now=now))
            assert isinstance(local, WriteLocal)
            assert local.operations[1:] == [
                Put(Table.BATCH, b"a", b"1"), Put(Table.BATCH, b"k10", b"old"), Put(Table.BATCH, b"k10", b"v"),
            ]  # fmt: skip
        else:
            same = m.RangeSame("g", 1, ask.message.request, 9, 10)
            [local] = of(WriteLocal, guest.tell(MessageReceived(C, same), now=now))
        token = getattr(local, "token", 0)
    [end] = of(WriteLocal, guest.commands)
    assert len(asked) == len(set(asked)) and Table.REPLICA not in asked
    assert isinstance(end, WriteLocal)
    ended = messages(guest.tell(LocallyWritten(end.token), now=now)) == [m.Hello("g", 1, Position(1, 10))]
    assert ended and guest.machine.local.written == Position(1, 10)


def test_a_copy_says_how_far_it_is_and_never_that_it_is_done_before_it_is() -> None:
    """Equal ranges count as well; of a host that has become larger than it said, no more than 99 %."""
    guest = following(in_sync=False)
    assert guest.machine.copied_percent is None
    [begun] = of(WriteLocal, guest.tell(MessageReceived(A, m.MustCopy("g", 1, C, Position(1, 9), [(1, 1)], ""))))
    token, now = getattr(begun, "token", 0), 0.0
    percents: list[int | None] = []
    told: list[str] = []
    for step in range(100):
        now += 3.0
        reads = of(ReadRange, guest.tell(LocallyWritten(token), now=now))
        if not reads:
            break
        [read] = reads
        assert isinstance(read, ReadRange)
        [ask] = of(SendTo, guest.tell(RangeRead(read.token, read.high, b"d", 0, 0, None), now=now))
        assert isinstance(ask, SendTo) and isinstance(ask.message, m.RangeAsk)
        request, high = ask.message.request, ask.message.high
        same, part = m.RangeSame("g", 1, request, 9, 9, 30, 100), m.RangePart("g", 1, request, high, 9, 9, 30, 100)
        answer = part if step % 2 else same
        payload = pack_items([(read.low, b"1")]) if step % 2 else b""
        commands = guest.tell(MessageReceived(C, answer, payload), now=now)
        told += [command.text for command in of(Report, commands) if isinstance(command, Report)]
        percents.append(guest.machine.copied_percent)
        [local] = of(WriteLocal, commands)
        token = getattr(local, "token", 0)
    assert percents[:4] == [30, 60, 90, 99] and set(percents[4:]) <= {99}
    assert "60 % of the rows" in told[0] or "90 % of the rows" in told[0]
    [end] = of(WriteLocal, guest.commands)
    guest.tell(LocallyWritten(getattr(end, "token", 0)), now=now)
    assert guest.machine.copied_percent is None


def asking(now: float = 0.0) -> tuple[Told, m.RangeAsk]:
    """A guest of c, and what it has asked for."""
    guest = following(in_sync=False)
    [begun] = of(WriteLocal, guest.tell(MessageReceived(A, m.MustCopy("g", 1, C, Position(1, 9), [(1, 1)], ""))))
    return guest, asked_next(guest, getattr(begun, "token", 0), now)


def asked_next(guest: Told, written: int, now: float = 0.0) -> m.RangeAsk:
    [read] = of(ReadRange, guest.tell(LocallyWritten(written), now=now))
    assert isinstance(read, ReadRange)
    [ask] = messages(guest.tell(RangeRead(read.token, read.high, b"d", 0, 0, None), now=now))
    assert isinstance(ask, m.RangeAsk)
    return ask


def test_a_host_that_does_not_answer_is_asked_once_more_and_then_given_up_for_another() -> None:
    guest, ask = asking(now=1.0)
    assert guest.machine.deadline() == 2.5
    assert guest.tell(Tick(), now=2.4) == []
    assert guest.tell(Tick(), now=2.5) == [SendTo(C, ask)]
    assert guest.machine.deadline() == 4.0
    assert guest.tell(Tick(), now=3.9) == []
    assert messages(guest.tell(Tick(), now=4.0)) == [m.Hello("g", 1, Position(1, 9), True, C)]
    assert of(ReadRange, guest.tell(MessageReceived(A, m.Welcome("g", 1, 9, 9, A)), now=4.1))


def test_a_guest_that_stood_still_asks_once_more_before_it_gives_up_its_host() -> None:
    guest, ask = asking(now=1.0)
    assert guest.tell(Tick(), now=60.0) == [SendTo(C, ask)]
    assert guest.machine.deadline() == 61.5


def test_a_host_that_asks_for_patience_is_not_given_up() -> None:
    guest, ask = asking()
    now = 0.0
    for _ in range(20):
        assert guest.tell(MessageReceived(C, m.RangeLater("g", 1, ask.request, "busy")), now=now) == []
        now += ReplicationSettings().heartbeat_s
        assert guest.machine.deadline() == now
        assert guest.tell(Tick(), now=now) == [SendTo(C, ask)]
    assert guest.tell(Tick(), now=now + 1.5) == [SendTo(C, ask)]
    assert messages(guest.tell(Tick(), now=now + 3.0)) == [m.Hello("g", 1, Position(1, 9), True, C)]


def test_of_several_answers_to_one_question_one_is_taken() -> None:
    """The second was read later: it is not what the rest of the copy is as of."""
    guest, ask = asking()
    assert guest.tell(Tick(), now=1.5) == [SendTo(C, ask)]
    answers = [
        MessageReceived(C, m.RangePart("g", 1, ask.request, ask.high, at, at), pack_items([(b"k", b"%d" % at)]))
        for at in (9, 10)
    ]
    [local] = guest.tell(answers[0], now=1.6)
    assert isinstance(local, WriteLocal) and Put(ask.table, b"k", b"9") in local.operations
    same = MessageReceived(C, m.RangeSame("g", 1, ask.request, 10, 10))
    later = MessageReceived(C, m.RangeLater("g", 1, ask.request, "busy"))
    for again in (*answers, same, later):
        assert guest.tell(again, now=1.7) == [], "while the first is being written"
    following_ask = asked_next(guest, local.token, now=1.8)
    for again in (*answers, same, later):
        assert guest.tell(again, now=1.9) == [], "while the next one is asked for"
    assert guest.machine.deadline() == 1.8 + 1.5 and following_ask.request != ask.request


def test_a_question_that_is_repeated_while_it_is_read_is_answered_once() -> None:
    host = following()
    ask = m.RangeAsk("g", 1, 7, Table.BATCH, b"", b"\xff", b"", 0)
    [read] = host.tell(MessageReceived(C, ask))
    assert isinstance(read, ReadRange)
    assert host.tell(MessageReceived(C, ask)) == []
    answer = [SendTo(C, m.RangePart("g", 1, 7, b"\x07", 0, 0), b"data")]
    assert host.tell(RangeRead(read.token, b"\x07", b"d", 0, 0, b"data")) == answer
    assert of(ReadRange, host.tell(MessageReceived(C, ask))), "the answer may be lost"


def test_a_copy_that_was_cut_short_by_a_crash_starts_over() -> None:
    stored = replica(B)
    stored.local.is_copying, stored.local.handed = True, NOWHERE
    guest = Told(stored)
    assert messages(guest.configured(configuration(1, A))) == [m.Hello("g", 1, NOWHERE, True)]


def test_a_host_answers_only_when_it_is_in_sync_and_far_enough() -> None:
    host = following()
    ask = m.RangeAsk("g", 1, 7, Table.BATCH, b"", b"\xff", b"", 3)
    assert isinstance(messages(host.tell(MessageReceived(C, ask)))[0], m.RangeLater)
    [local] = host.tell(order(EMPTY, 1, 2, 3))
    assert isinstance(local, WriteLocal)
    host.tell(LocallyWritten(local.token))
    [read] = host.tell(MessageReceived(C, ask))
    assert isinstance(read, ReadRange)
    answer = host.tell(RangeRead(read.token, b"\x07", b"d", 3, 4, b"data", 5, 50))
    assert answer == [SendTo(C, m.RangePart("g", 1, 7, b"\x07", 3, 4, 5, 50), b"data")]
    [read] = host.tell(MessageReceived(C, ask))
    assert isinstance(read, ReadRange)
    host.configured(configuration(2, A, B))
    assert host.tell(RangeRead(read.token, b"\x07", b"d", 3, 4, b"data")) == []


# -- files ---------------------------------------------------------------------------------------------


def test_a_file_is_told_to_be_durable_when_it_is_with_all() -> None:
    primary = Told(replica(A))
    primary.configured(configuration(1, A, B))
    primary.tell(MessageReceived(B, m.Hello("g", 1, EMPTY)))
    block = Block(1, True, b"content")
    commands = primary.tell(FilesAsked([AppendBlock(STREAM, 0, block), SyncFile(STREAM, 1)]))
    assert of(LocalFile, commands) == [LocalFile(AppendBlock(STREAM, 0, block)), LocalFile(SyncFile(STREAM, 1))]
    assert len(of(SendOrder, commands)) == 2
    assert primary.tell(FileWritten(STREAM, 1)) == []
    assert primary.tell(FileSynced(STREAM, 1)) == []
    assert primary.tell(MessageReceived(B, m.FileAck("g", 1, STREAM, 1, 0))) == [ToManager(FileWritten(STREAM, 1))]
    assert primary.tell(MessageReceived(B, m.FileAck("g", 1, STREAM, 1, 1))) == [ToManager(FileSynced(STREAM, 1))]


def test_an_order_that_names_a_stream_waits_for_its_file() -> None:
    backup = following()
    record = msgspec.msgpack.encode(StreamRecord(STREAM, 2, 10))
    named = m.OrderedWrite(1, [m.PutHere(Table.STREAM, b"k", len(record))])
    ask = backup.tell(MessageReceived(A, m.Order("g", 1, EMPTY, 0, 1, [named]), record))
    assert ask == [SendTo(A, m.BlocksAsk("g", 1, STREAM, 0, 2))]
    for number in range(2):
        message = m.FileBlock("g", 1, STREAM, number, 1, number == 1)
        [appended, *synced] = of(LocalFile, backup.tell(MessageReceived(A, message, b"content")))
        assert isinstance(appended, LocalFile) and isinstance(appended.command, AppendBlock)
    assert synced == [LocalFile(SyncFile(STREAM, 2))]
    backup.tell(FileWritten(STREAM, 2))
    assert not of(WriteLocal, backup.commands)
    assert of(WriteLocal, backup.tell(FileSynced(STREAM, 2)))


def test_nobody_waits_for_a_file_that_the_primary_has_not() -> None:
    backup = following()
    record = msgspec.msgpack.encode(StreamRecord(STREAM, 2, 10))
    named = m.OrderedWrite(1, [m.PutHere(Table.STREAM, b"k", len(record))])
    backup.tell(MessageReceived(A, m.Order("g", 1, EMPTY, 0, 1, [named]), record))
    assert of(WriteLocal, backup.tell(MessageReceived(A, m.FileGone("g", 1, STREAM))))


def test_a_file_that_the_primary_has_again_is_waited_for() -> None:
    """A destination was moved back, with its very large messages."""
    backup = following()
    backup.tell(MessageReceived(A, m.FileGone("g", 1, STREAM)))
    backup.tell(MessageReceived(A, m.FileBlock("g", 1, STREAM, 0, 1, False), b"content"))
    record = msgspec.msgpack.encode(StreamRecord(STREAM, 2, 10))
    named = m.OrderedWrite(1, [m.PutHere(Table.STREAM, b"k", len(record))])
    told = backup.tell(MessageReceived(A, m.Order("g", 1, EMPTY, 0, 1, [named]), record))
    assert not of(WriteLocal, told) and of(SendTo, told) == [SendTo(A, m.BlocksAsk("g", 1, STREAM, 1, 2))]


def test_a_primary_serves_blocks_from_its_file() -> None:
    primary = Told(replica(A))
    primary.configured(configuration(1, A, B))
    [read] = primary.tell(MessageReceived(B, m.BlocksAsk("g", 1, STREAM, 3, 5)))
    assert isinstance(read, LocalFile) and isinstance(read.command, ReadBlocks)
    assert read.command.token < 0 and (read.command.first, read.command.count) == (3, 2)
    sent = primary.tell(BlocksRead(read.command.token, [Block(9, False, b"x")]))
    assert sent == [SendTo(B, m.FileBlock("g", 1, STREAM, 3, 9, False), b"x")]
