"""Calls in the background whose process died: run again, or unknown with the reason; nothing is repeated or lost."""

import asyncio
import sqlite3

import pytest

from glidepath import Agent, CancelToken, Limits, LoopOutcome, approve, tool
from glidepath.messages import ToolResultMessage, UserMessage
from glidepath.sessions import MemoryStore, SqliteStore
from glidepath.spi import AfterDecision, Plugin
from glidepath.testing import ScriptedModel, call, virtual

LIMITS = Limits(max_iterations=12)


def make_order(ledger, *, idempotent=False, name="order"):
    async def order(item: str) -> str:
        """Order it."""
        ledger.append(f"begun {item}")
        await asyncio.sleep(10)
        ledger.append(f"done {item}")
        return f"ordered {item}"

    return tool(order, name=name, background=True, idempotent=idempotent)


def told(result, kind=ToolResultMessage):
    return [message.text for message in result.messages if isinstance(message, kind)]


def die_meanwhile(tmp_path, first, later, *turns):
    """Start a call, see the store as a crash would leave it two turns later, and continue from there with `later`."""

    @tool(idempotent=True)
    async def look() -> str:
        """Look, and copy the disk."""
        if not (tmp_path / "b.db").exists():
            with sqlite3.connect(tmp_path / "a.db") as here, sqlite3.connect(tmp_path / "b.db") as there:
                here.backup(there)
        return "seen"

    def make(path, tools, *script):
        store = SqliteStore(tmp_path / path)
        model = ScriptedModel([*script, "Done.", "Done."])
        return store, Agent(model=model, tools=[*tools, look], limits=LIMITS, store=store)

    async def run():
        store, agent = make("a.db", [first], call("order", item="tea"), call("look"))
        await agent.run("Go.", session="s")
        await store.close()
        store, agent = make("b.db", later, *turns)
        result = await agent.resume("s")
        await store.close()
        return result

    return virtual(run)()


def test_g13_one_that_may_be_repeated_starts_again_and_is_collected(tmp_path):
    ledger, again = [], []
    result = die_meanwhile(
        tmp_path,
        make_order(ledger, idempotent=True),
        [make_order(again, idempotent=True)],
        call("collect", id="bg-1"),
    )
    assert again == ["begun tea", "done tea"]
    assert told(result)[-1] == "ordered tea"
    assert result.unknown_effects == ()


@pytest.mark.parametrize(
    ("later", "reason"),
    [
        (lambda ledger: [make_order(ledger)], "process died"),
        (lambda ledger: [make_order(ledger, name="other")], "no longer exists"),
        (lambda ledger: [tool(buy, name="order", background=True, idempotent=True)], "arguments"),
    ],
    ids=["not idempotent", "tool gone", "other arguments"],
)
def test_g13_any_other_is_unknown_with_the_reason_and_never_repeated(tmp_path, later, reason):
    ledger = []
    result = die_meanwhile(tmp_path, make_order([]), later(ledger), call("collect", id="bg-1"))
    assert ledger == []
    collected = [one for one in result.messages if isinstance(one, ToolResultMessage)][-1]
    assert collected.kind == "unknown_effect"
    assert reason in collected.text
    assert [one.name for one in result.unknown_effects] == ["order"]
    assert any(text.startswith("bg-1 (order): ") for text in told(result, UserMessage))


class Watching(Plugin):
    name = "watching"

    def after_tool_call(self, context):
        return None


async def buy(count: int) -> str:
    """Buy."""
    raise AssertionError(count)


@pytest.mark.parametrize("hooks", [[], [Watching()]], ids=["", "with a hook"])
@pytest.mark.parametrize("idempotent", [True, False])
def test_what_a_stopped_pause_cuts_starts_again_or_is_unknown(idempotent, hooks):
    ledger = []

    @tool(requires_approval=True)
    async def pay() -> str:
        """Pay."""
        return "paid"

    async def run():
        token, store = CancelToken(), MemoryStore()
        turns = [call("order", item="tea"), call("pay"), call("collect", id="bg-1"), "Done."]
        agent = Agent(
            model=ScriptedModel(turns), tools=[make_order(ledger, idempotent=idempotent), pay], limits=LIMITS,
            store=store, plugins=hooks,
        )  # fmt: skip
        asyncio.get_running_loop().call_later(3, token.cancel, "shut down")  # while it waits for the order
        paused = await agent.run("Go.", session="s", cancel=token)
        assert paused.outcome is LoopOutcome.PAUSED
        assert ledger == ["begun tea"]
        return await agent.resume("s", decisions={paused.pending[0].call.id: approve()})

    result = virtual(run)()
    assert result.outcome is LoopOutcome.DONE
    if idempotent:
        assert told(result)[-1] == "ordered tea"
        assert ledger == ["begun tea", "begun tea", "done tea"]
    else:
        assert "unknown" in told(result)[-1]
        assert ledger == ["begun tea"]
        assert [one.name for one in result.unknown_effects] == ["order"]


def test_g13_a_resume_gives_what_the_hooks_have_left(tmp_path):
    class Redact(Plugin):
        name = "redact"

        def after_tool_call(self, context):
            return AfterDecision(content="[redacted]") if context.call.name == "order" else None

    @tool(background=True)
    async def order(item: str) -> str:
        """Order it."""
        return f"s3cr3t {item}"

    @tool(requires_approval=True)
    async def pay() -> str:
        """Pay."""
        return "paid"

    async def run():
        store = SqliteStore(tmp_path / "a.db")
        turns = [call("order", item="tea"), call("pay")]
        settings = {"tools": [order, pay], "limits": LIMITS, "store": store}
        agent = Agent(model=ScriptedModel(turns), plugins=[Redact()], **settings)
        paused = await agent.run("Go.", session="s")
        later = Agent(model=ScriptedModel([call("collect", id="bg-1"), "Done."]), **settings)  # without the hook
        result = await later.resume("s", decisions={paused.pending[0].call.id: approve()})
        await store.close()
        return result

    assert told(virtual(run)())[-1] == "[redacted]"
