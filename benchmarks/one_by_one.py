"""One message at a time: the next is sent when the one before is confirmed and has arrived.

Producer and consumer are processes of their own, as everywhere here: in one they would wait for each other. The
consumer tells the producer through a socket of their own when a message came, by the clock that both share.
"""
import asyncio
import contextlib
import socket
import struct
import time

from benchmarks.systems.contract import Ready, Samples, System, Work, bodies

ARRIVAL = struct.Struct("d")
CALL_S_MAX = 30.0


async def send_all(system: System, work: Work, ready: Ready) -> Samples:
    samples = Samples([], [])
    loop = asyncio.get_running_loop()
    with _channel(work) as told:
        async with system.sending(work) as send:
            ready()
            for body in bodies(work):
                sent = time.monotonic()
                await send(body)
                samples.confirm_s.append(time.monotonic() - sent)
                arrival = await asyncio.wait_for(loop.sock_recv(told, ARRIVAL.size), CALL_S_MAX)
                samples.receive_s.append(ARRIVAL.unpack(arrival)[0] - sent)
    return samples


async def take_all(system: System, work: Work, ready: Ready) -> None:
    left, done = work.count, asyncio.Event()
    with _channel(work) as telling:

        def arrived() -> None:
            nonlocal left
            with contextlib.suppress(BrokenPipeError):  # the producer has failed, and says so itself
                telling.send(ARRIVAL.pack(time.monotonic()))
            left -= 1
            if not left:
                done.set()

        async with system.taking(work, arrived):
            ready()
            await asyncio.wait_for(done.wait(), work.time_s_max)


def _channel(work: Work) -> socket.socket:
    end = socket.socket(fileno=work.channel)
    end.setblocking(False)
    return end
