"""Goal: every registered command is listed and run by whom it concerns; the reply is one composite that says who was
expected and who did not answer, and why."""
import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from angarium.core.commands import CommandSpec, Kind, Parameter, Scope
from angarium.core.errors import LocalProtocolError, Rejected
from angarium.core.wire.frames import Reply, Request
from angarium.node.administration import Administration, AdministrationWays, Composite
from angarium.node.cluster.asking import GONE, Asking
from angarium.node.cluster.services import Answer, Question, decode_admin
from angarium.node.registry import Registry

_T = TypeVar("_T")
GREET = CommandSpec("test.greet", "say hello", Scope.NODE, (Parameter("times", "how often", Kind.WHOLE),))
DECIDE = CommandSpec("test.decide", "decide something", Scope.CLUSTER)


def run(work: Coroutine[Any, Any, _T]) -> _T:
    return asyncio.run(work)


class Cluster:
    """Nodes n1, n2 and n3, of which some are silent."""

    def __init__(self, *silent: str, view: tuple[str, ...] = ("n1", "n2", "n3")) -> None:
        self.view = list(view)
        self.silent = silent
        self.asking = Asking(self._send, lambda name: name in self.view)
        ways = AdministrationWays(nodes=lambda: ["n1", "n2", "n3"], ask=self._ask, ask_manager=self._manager)
        self.administration = Administration("n1", ways)
        self.administration.registry.register(GREET, lambda arguments: "hello " * arguments.get("times", 1))
        self.administration.registry.register(DECIDE, lambda _: {"decided": True})

    async def _ask(self, nodes: list[str], command: str, arguments: dict[str, Any]) -> Composite:
        return await self.asking.ask(nodes, command, arguments, timeout_s=0.5 if self.silent else 30.0)

    async def _manager(self, request: Request) -> Reply:
        return Reply(request.number, "", "", [request.command, request.arguments])

    def _send(self, node: str, message: bytes) -> None:
        question = decode_admin(message)
        assert isinstance(question, Question)
        if node not in self.silent:
            asyncio.get_running_loop().call_soon(self._answer, node, question)

    def _answer(self, node: str, question: Question) -> None:
        async def answer() -> None:
            reply = await self.administration.local(question.command, question.arguments)
            self.asking.answered(node, Answer(question.number, reply.code, reply.reason, reply.result))

        self.task = asyncio.get_running_loop().create_task(answer())

    def request(self, command: str, /, **arguments: Any) -> Reply:
        return run(self.administration.answer(Request(5, command, arguments)))

    def run(self, command: str, /, node: str = "", **arguments: Any) -> dict[str, Any]:
        reply = self.request("admin.run", command=command, node=node, arguments=arguments)
        assert not reply.code, reply.reason
        result: dict[str, Any] = reply.result
        return result


# -- the registry --------------------------------------------------------------------------------------------


def test_everything_is_listed_with_what_it_takes() -> None:
    listed = {command["name"]: command for command in Cluster().request("admin.commands").result}
    assert listed["test.greet"]["scope"] == "node"
    times = {"name": "times", "help": "how often", "kind": "whole number", "required": False}
    assert listed["test.greet"]["parameters"] == [times]
    assert listed["destination.list"]["scope"] == "manager" and listed["admin.run"]["help"]


def test_a_name_is_registered_once_and_with_whoever_performs_it() -> None:
    registry = Registry()
    registry.register(GREET, lambda _: "")
    with pytest.raises(LocalProtocolError, match="twice"):
        registry.register(GREET, lambda _: "")
    with pytest.raises(LocalProtocolError, match="message managers"):
        registry.register_managers([DECIDE])


def test_a_handler_may_wait_and_may_refuse() -> None:
    registry = Registry()

    async def slow(arguments: dict[str, Any]) -> int:
        await asyncio.sleep(0)
        if arguments.get("times") == 0:
            raise Rejected("bad-argument", "not at all")
        return 7

    registry.register(GREET, slow)
    assert run(registry.run("test.greet", {})) == 7
    with pytest.raises(Rejected, match="not at all"):
        run(registry.run("test.greet", {"times": 0}))


def test_what_is_asked_plainly_is_answered_plainly_by_this_node() -> None:
    cluster = Cluster("n2", "n3")
    assert cluster.request("test.greet", times=2).result == "hello hello "
    assert cluster.request("test.greet", tmies=2).code == "bad-argument"
    assert "did you mean 'test.greet'" in cluster.request("test.gret").reason
    assert cluster.request("destination.list").code == "unknown-command", "a message manager is asked elsewhere"


# -- composites ----------------------------------------------------------------------------------------------


def test_all_answer() -> None:
    composite = Cluster().run("test.greet", times=1)
    assert (composite["expected"], composite["answered"], composite["missing"]) == (3, 3, [])
    assert [(reply["node"], reply["result"]) for reply in composite["replies"]] == [
        ("n1", "hello "), ("n2", "hello "), ("n3", "hello "),
    ]  # fmt: skip


def test_who_is_silent_and_who_is_gone_are_named_with_the_reason() -> None:
    composite = Cluster("n2", view=("n1", "n2")).run("test.greet")
    assert (composite["expected"], composite["answered"]) == (3, 1)
    assert composite["missing"] == [
        {"node": "n2", "reason": "timed out: no answer within 0.5 s"}, {"node": "n3", "reason": GONE},
    ]  # fmt: skip


def test_one_that_goes_while_it_is_asked_is_not_waited_for() -> None:
    cluster = Cluster("n2")

    async def ask() -> tuple[Composite, float]:
        loop = asyncio.get_running_loop()
        began = loop.time()
        asking = loop.create_task(cluster.asking.ask(["n1", "n2"], "test.greet", timeout_s=30.0))
        await asyncio.sleep(0)
        cluster.view.remove("n2")
        cluster.asking.view_changed()
        return await asking, loop.time() - began

    composite, seconds = run(ask())
    assert composite.missing == {"n2": GONE} and list(composite.replies) == ["n1"] and seconds < 10


def test_an_answer_that_is_late_repeated_or_of_another_is_ignored() -> None:
    asking = Asking(lambda node, message: None, lambda name: True)

    async def ask() -> Composite:
        work = asyncio.get_running_loop().create_task(asking.ask(["n1", "n2"], "x", timeout_s=0.05))
        await asyncio.sleep(0)
        for node, number in (("n3", 1), ("n1", 99), ("n1", 1), ("n1", 1)):
            asking.answered(node, Answer(number, "", "", node))
        composite = await work
        asking.answered("n2", Answer(1, "", "", "too late"))
        return composite

    composite = run(ask())
    assert {name: reply.result for name, reply in composite.replies.items()} == {"n1": "n1"}
    assert list(composite.missing) == ["n2"]


def test_one_node_may_be_asked() -> None:
    composite = Cluster("n1", "n3").run("test.greet", node="n2")
    assert (composite["expected"], composite["answered"]) == (1, 1)
    reply = Cluster().request("admin.run", command="test.greet", node="n9")
    assert reply.code == "unknown-node" and "n1, n2, n3" in reply.reason


def test_what_the_cluster_decides_is_done_once_and_what_a_manager_has_is_asked_there() -> None:
    decided = Cluster("n2", "n3").run("test.decide")
    assert decided["expected"] == 1 and decided["replies"][0]["result"] == {"decided": True}
    managed = Cluster().run("destination.describe", name="orders")
    assert managed["replies"][0]["result"] == ["destination.describe", {"name": "orders"}]
    assert Cluster().request("admin.run", command="test.decide", node="n2").code == "bad-argument"


def test_mistakes_are_refused_before_anybody_is_asked() -> None:
    cluster = Cluster()
    assert cluster.request("admin.run", command="test.greet", arguments={"tmies": 2}).code == "bad-argument"
    assert cluster.request("admin.run", command="nothing").code == "unknown-command"
    assert cluster.request("admin.run", command="admin.run").code == "bad-argument"
    assert cluster.request("admin.run").code == "bad-argument"
    assert cluster.request("admin.run", unread="no JSON").reason == "no JSON"
