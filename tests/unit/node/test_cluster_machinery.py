"""What a node asks of the world: whether another node's process is still there."""
import asyncio
import socket

from angarium.node.cluster.machinery import Machinery

_is_refused = Machinery().is_refused


def _ask_while(close_after_accepts: int) -> bool:
    """Whether a listener that closes after that many connections is found to be gone."""

    async def scenario() -> bool:
        accepted = 0

        async def accept(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal accepted
            accepted += 1
            if accepted == close_after_accepts:
                server.close()
            writer.close()

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        try:
            return await _is_refused(*server.sockets[0].getsockname())
        finally:
            server.close()

    return asyncio.run(scenario())


def test_a_process_that_is_not_there_refuses() -> None:
    with socket.socket() as bound:  # and does not listen
        bound.bind(("127.0.0.1", 0))
        assert asyncio.run(_as_coroutine(*bound.getsockname()))


async def _as_coroutine(host: str, port: int) -> bool:
    return await _is_refused(host, port)


def test_a_dying_process_that_still_accepts_for_a_moment_is_found_out() -> None:
    """The kernel closes the sockets of one that was killed one by one: the links may go before the listener."""
    assert _ask_while(close_after_accepts=1)


def test_a_living_process_does_not_refuse() -> None:
    assert not _ask_while(close_after_accepts=1_000)
