"""A whole broker in one process: one client manager, one message manager, the in-memory bus, one store.

This module connects: sockets and disk turn into events, machines turn events into commands, commands go to sockets, bus
and disk, in order. One timer serves both machines. What becomes of a message is decided by the machines. Only what goes
first is decided here: a lone frame does not wait for the loop's next turn, and of a few durable writes confirms and
deliveries leave before all else that follows.
"""
import asyncio
import logging
import os
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from angarium.core.destination import events as mm
from angarium.core.destination.message_manager import MessageManager
from angarium.core.ids import format_id
from angarium.core.session import events as cm
from angarium.core.session.client_manager import ClientManager
from angarium.core.stream.events import AppendBlock, DeleteFile, FileEvent, ReadBlocks, SyncFile
from angarium.core.stream.table import held_streams
from angarium.core.wire import frames
from angarium.node.broker_desk import BrokerDesk
from angarium.node.config import NodeConfig, parse_address
from angarium.node.disk_room import DiskRoom
from angarium.node.event_log import EventLog
from angarium.node.holding import Holding
from angarium.node.identity import Identity, take_up_identity
from angarium.node.limits import Fitted, fit, raise_descriptors_max
from angarium.node.live_config import LiveConfig
from angarium.node.loading import load
from angarium.node.memory import rss_bytes
from angarium.node.wall_clock import WallClock
from angarium.runtime.bus import InProcessBus
from angarium.runtime.disk import Disk
from angarium.runtime.interrupts import interrupted_processors
from angarium.runtime.listener import Listener
from angarium.runtime.polling import Polling
from angarium.runtime.stream_disk import StreamDisk
from angarium.store.durable import DurableStore
from angarium.store.stream_files import StreamFiles

_log = logging.getLogger("angarium")
_DRAIN_S_MAX = 2.0
_HURRY_TOKENS_MAX = 8  # of so few writes confirms and deliveries leave before all else that follows
_ARM_AFTER_S = 0.001  # timers may be as late
VERSION = version("angarium")  # looked up in files: once, not for each status


@dataclass(frozen=True, slots=True)
class ReadyInfo:
    address: str
    host: str  # of the address
    data: str
    name: str
    recovered: str  # what was found in the store, for people; empty if it was new


class Broker:
    def __init__(self, live: LiveConfig, store: DurableStore, name: str, events: EventLog) -> None:
        self._config = config = live.config
        self._store = store
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._started_at = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: float | None = None
        self._holding = Holding(unwritten_bytes_max=config.node.unwritten_bytes_max)
        self._blocked = ""
        self._commands: deque[mm.Command] = deque()
        self._running = self._is_arming = self._is_stopped = False
        self.failure: asyncio.Future[None] = self._loop.create_future()  # set when the node must stop

        loaded = load(store)
        state = loaded.state
        files = StreamFiles(Path(config.node.data), free_bytes_min=config.stream.free_bytes_min)
        held = held_streams(state.streams)
        state.stream_files = files.scan(held, unsynced_blocks_max=4 * config.stream.sync_fragments)
        identity = take_up_identity(
            state.node, site=config.node.site, wall_ms=int(time.time() * 1000),
            chance=int.from_bytes(os.urandom(8), "big"),
        )  # fmt: skip
        # From the reserve if need be: a node starts on a full disk, so that its consumers can empty it.
        store.commit(identity.operations + loaded.operations, reserved=True)
        self._managers(config, identity)
        self.messages_recovered = bool(state.destinations)
        self._polling = Polling(config.node.poll_s_max, near=interrupted_processors(Path(config.node.data)))
        self._disk = Disk(
            store,
            config.disk,
            durable=self._durable,
            written=self._written,
            read=self._read,
            delayed=self._delayed,
            blocked=self._writes_blocked,
            failed=self._failed,
            polling=self._polling,
        )
        self._stream_disk = StreamDisk(files, told=self._stream_files_told, failed=self._failed)
        self._run_mm(self._message_manager.restore(state, now=self._loop.time()))
        self._desk = BrokerDesk(self, name, live, events)

    def _managers(self, config: NodeConfig, identity: Identity) -> None:
        self._limits = self._fit(config)
        settings = self._limits.session
        self._wall_clock = WallClock(self._clock_stepped)
        at_zero_ms = self._wall_clock.ms_at_zero
        self._disk_room = DiskRoom(self._store, self._disk_free_bytes_min, self._disk_measured)
        self._message_manager = MessageManager(
            self._limits.destination, config.stream, wall_ms_at_zero=at_zero_ms
        )
        self._client_manager = ClientManager(
            settings, identity.ids, node=self._name, incarnation=identity.incarnation, wall_ms_at_zero=at_zero_ms
        )
        self._incarnation = identity.incarnation
        self._address = ""  # where clients connect, once they can
        self._bus = InProcessBus(self._from_bus, self._handled)
        self._listener = Listener(config.listener, frame_bytes_max=settings.frame_bytes_max, tell=self._from_client)

    def _fit(self, config: NodeConfig, told: Sequence[str] = ()) -> Fitted:
        descriptors_max = raise_descriptors_max(config.session.connections_max)
        group_bytes_max = self._store.group_bytes_max
        fitted = fit(
            config.session, config.destination, group_bytes_max=group_bytes_max, descriptors_max=descriptors_max
        )
        for text in fitted.lowered:
            if text not in told:
                _log.warning("limit-lowered: %s", text)
        return fitted

    async def start(self) -> ReadyInfo:
        host, port = parse_address(self._config.node.listen)
        addresses = await self._listener.start(host, port)
        recovery = self._store.recovery
        recovered = ""
        if self.messages_recovered:
            count = len(self._message_manager.destinations)
            groups = recovery.groups_replayed
            replayed = f"{groups:,} journal group{'' if groups == 1 else 's'} in {recovery.recovery_s:.2f} s"
            recovered = f"{count:,} destination{'' if count == 1 else 's'}, {replayed}"
        bound_host, bound_port = addresses[0]
        shown = f"[{bound_host}]" if ":" in bound_host else bound_host
        self._address = f"angarium://{shown}:{bound_port}"
        return ReadyInfo(self._address, bound_host, self._config.node.data, self._name, recovered)

    async def stop(self, reason: str) -> bool:
        """Say goodbye, write what is queued, close the store. False if something unconfirmed was given up."""
        await self._desk.stop()
        self._listener.stop_accepting()
        self._run_cm(self._client_manager.handle(cm.ShutDown(reason), now=self._loop.time()))
        await self._listener.close(drain_s_max=_DRAIN_S_MAX)
        self._is_stopped = True
        self._wall_clock.stop()
        self._polling.rest()
        self._disk_room.stop()
        if self._timer is not None:
            self._timer.cancel()
        await self._stream_disk.close()
        written = await self._disk.close()
        await asyncio.to_thread(self._store.close)
        return written

    # -- events in ---------------------------------------------------------------------------------------

    def _from_client(self, event: cm.Event) -> None:
        commands = self._client_manager.handle(event, now=self._loop.time())
        if isinstance(event, cm.FramesReceived):
            self._run_received(event, commands)
        else:
            self._run_cm(commands)
        if isinstance(event, cm.ConnectionLost):
            self._holding.ended(event.connection)

    def _run_received(self, event: cm.FramesReceived, commands: list[cm.Command]) -> None:
        """What goes to the bus is put to the account of the connection, each frame with its share of the bytes."""
        connection = event.connection
        is_lone = len(event.received) == 1  # whoever works one by one is not kept waiting for the loop's next turn
        if is_lone and len(commands) == 1 and type(command := commands[0]) is cm.ToBus and self._bus.is_idle:
            self._from_bus(mm.FromSession(command.session, command.destination, command.frame, command.payload))
            self._received(event)
            return
        posts = sum([type(posted) is cm.ToBus for posted in commands])
        share_bytes = sum([item.size_bytes for item in event.received]) // posts if posts else 0
        self._holding.posted(connection, posts, posts * share_bytes)
        self._run_cm(commands, connection, share_bytes)
        if is_lone:
            self._bus.run()
        self._received(event)

    def _received(self, event: cm.FramesReceived) -> None:
        self._disk_changed()
        if self._holding.received(event.connection, event.received):
            self._listener.hold(event.connection, True)

    def _handled(self, connection: int, size_bytes: int) -> None:
        if self._holding.handled(connection, size_bytes):
            self._listener.hold(connection, False)

    def _disk_changed(self) -> None:
        disk = self._disk
        for connection in self._holding.disk_changed(
            unwritten_bytes=disk.unwritten_bytes, freeing_bytes=disk.freeing_bytes, is_blocked=bool(self._blocked)
        ):
            self._listener.hold(connection, False)

    def _disk_free_bytes_min(self) -> int:
        return self._message_manager.settings.node_disk_free_bytes_min

    def _disk_measured(self, room_bytes: int) -> None:
        self._run_mm(self._message_manager.handle(mm.DiskMeasured(room_bytes), now=self._loop.time()))

    def _clock_stepped(self, at_zero_ms: float) -> None:
        self._run_mm(self._message_manager.handle(mm.ClockStepped(at_zero_ms), now=self._loop.time()))

    def _from_bus(self, envelope: mm.FromSession) -> None:
        self._run_mm(self._message_manager.handle(envelope, now=self._loop.time()))

    def _durable(self, tokens: list[int]) -> None:
        """If only a few writes are durable, confirms and deliveries leave before anything else is done. Confirms go
        first: no producer waits for a delivery to be made."""
        if len(tokens) > _HURRY_TOKENS_MAX:
            return
        if confirms := self._message_manager.confirms(tokens):
            self._run_mm(confirms)
        if deliveries := self._message_manager.deliveries(tokens, now=self._loop.time()):
            self._run_mm(deliveries)

    def _written(self, tokens: list[int]) -> None:
        now = self._loop.time()
        commands: list[mm.Command] = []
        for token in tokens:
            commands += self._message_manager.handle(mm.Written(token), now=now)
        self._run_mm(commands)
        self._disk_changed()

    def _read(self, event: mm.BatchesRead) -> None:
        self._run_mm(self._message_manager.handle(event, now=self._loop.time()))

    def _delayed(self, event: mm.DelayedRead) -> None:
        self._run_mm(self._message_manager.handle(event, now=self._loop.time()))

    def _stream_files_told(self, events: list[FileEvent]) -> None:
        now = self._loop.time()
        commands: list[mm.Command] = []
        for event in events:
            commands += self._message_manager.handle(event, now=now)
        self._run_mm(commands)

    def _writes_blocked(self, reason: str) -> None:
        self._blocked = reason
        event = mm.WritesBlocked(reason) if reason else mm.WritesUnblocked()
        self._run_mm(self._message_manager.handle(event, now=self._loop.time()))
        self._disk_changed()

    def fail(self, context: dict[str, Any]) -> None:
        """Something raised where nothing may: the node stops rather than go on with a machine in doubt."""
        self._failed(context.get("exception") or RuntimeError(context["message"]))

    def _failed(self, error: BaseException) -> None:
        if not self.failure.done():
            self.failure.set_exception(error)

    def _tick(self) -> None:
        self._timer = self._timer_at = None
        now = self._loop.time()
        self._run_cm(self._client_manager.handle(cm.Tick(), now=now))
        self._run_mm(self._message_manager.handle(mm.Tick(), now=now))

    # -- commands out --------------------------------------------------------------------------------------

    def _run_cm(self, commands: list[cm.Command], sender: int = 0, share_bytes: int = 0) -> None:
        for command in commands:
            match command:
                case cm.SendFrame(connection, session, frame, payload):
                    self._listener.send(connection, session, frame, payload)
                case cm.ToBus(session, destination, frame, payload):
                    self._bus.post(mm.FromSession(session, destination, frame, payload), sender, share_bytes)
                case cm.CloseConnection(connection):
                    self._listener.close_connection(connection)
                case cm.AskNode(session, frame):
                    assert isinstance(frame, frames.Request)
                    self._loop.call_soon(self._desk.asked, session, frame)
                case cm.OwnPublished() | cm.ManagerReplied():
                    self._desk.own(command)
                case mm.Report():
                    self._report(command)
        if not self._running:
            self._listener.flush()
            self._arm_soon()

    def _run_mm(self, commands: list[mm.Command]) -> None:
        """Commands run in the order in which they were given, also when running one leads to more."""
        self._commands += commands
        if self._running:
            return
        self._running = True
        while self._commands:
            match command := self._commands.popleft():
                case mm.ToSession(session, frame, payload):
                    event = cm.FromBus(session, frame, payload)
                    self._run_cm(self._client_manager.handle(event, now=self._loop.time()))
                case mm.Write():
                    self._disk.write(command)
                case mm.Read():
                    answer = self._disk.read(command)
                    if answer is not None:
                        self._read(answer)
                case mm.ReadDelayed():
                    self._disk.read_delayed(command)
                case mm.Report():
                    self._report(command)
                case ReadBlocks():
                    self._stream_disk.read(command)
                case AppendBlock() | SyncFile() | DeleteFile():
                    self._stream_disk.write(command)
        self._running = False
        self._listener.flush()
        self._arm_soon()

    def _arm_soon(self) -> None:
        """A moment later: to find the next deadline takes as long as a frame does, and somebody may wait for that."""
        if not self._is_arming:
            self._is_arming = True
            self._loop.call_later(_ARM_AFTER_S, self._arm)

    def _arm(self) -> None:
        self._is_arming = False
        if self._is_stopped:
            return
        at, other = self._client_manager.deadline(), self._message_manager.deadline()
        if at is None or (other is not None and other < at):
            at = other
        if at is None or (self._timer_at is not None and self._timer_at <= at):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._loop.call_at(at, self._tick)

    def _report(self, report: mm.Report) -> None:
        _log.log(report.level, "%s: %s", report.code, report.text)

    # -- for the desk --------------------------------------------------------------------------------------

    def tell(self, session: bytes, reply: frames.Reply) -> None:
        self._run_cm(self._client_manager.handle(cm.FromBus(session, reply), now=self._loop.time()))

    def own(self, event: cm.PublishOwn | cm.AskManager) -> None:
        """Something that the node itself publishes, or asks a message manager."""
        self._run_cm(self._client_manager.handle(event, now=self._loop.time()))

    def change_settings(self, config: NodeConfig) -> None:
        """Those that count while it runs (`acquirable.py`)."""
        before, self._config, now = self._config, config, self._loop.time()
        logging.getLogger().setLevel(config.node.log_level.upper())
        self._holding.unwritten_bytes_max = config.node.unwritten_bytes_max
        self._listener.settings = config.listener
        if (config.session, config.destination) != (before.session, before.destination):
            self._limits = self._fit(config, told=self._limits.lowered)
            self._run_cm(self._client_manager.handle(cm.SettingsChanged(self._limits.session), now=now))
        self._run_mm(self._message_manager.handle(mm.SettingsChanged(self._limits.destination, config.stream), now=now))

    def status(self) -> dict[str, object]:
        destinations = self._message_manager.destinations.values()
        store = self._store.statistics()
        return {
            "name": self._name,
            "version": VERSION,
            "incarnation": format_id(self._incarnation),
            "pid": os.getpid(),
            "uptime_s": round(self._loop.time() - self._started_at, 3),
            "listen": self._address,
            "data": str(Path(self._config.node.data).resolve()),
            "connections": self._client_manager.connection_count,
            "sessions": self._client_manager.session_count,
            "destinations": len(destinations),
            "messages_in": sum(d.counters.messages_in for d in destinations),
            "messages_out": sum(d.counters.messages_out for d in destinations),
            "damaged": sum(d.counters.damaged for d in destinations),
            "blocked": self._blocked or self._message_manager.node_limits.reason,
            "node_limits": self._message_manager.held(),
            "unwritten_bytes": self._disk.unwritten_bytes,
            "streams": len(self._message_manager.streams.table),
            "streams_open": self._message_manager.streams.open_count,
            "limits": {
                "frame_bytes_max": self._limits.session.frame_bytes_max,
                "body_bytes_max": self._limits.session.body_bytes_max,
                "connections_max": self._limits.session.connections_max,
            },
            "rss_bytes": rss_bytes(),
            "store": {name: getattr(store, name) for name in type(store).__slots__},
        }
