"""A decision that is passed again after a death was obeyed once, and is no error."""

import asyncio

import pytest

from glidepath import Agent, ConfigurationError, Limits, LoopOutcome, answer, approve, deny, tool
from glidepath.messages import AssistantMessage, StreamEnd, TextDelta, ToolCallDelta, Usage
from glidepath.sessions import MemoryStore
from glidepath.spi import Sign
from glidepath.testing import ScriptedModel, VirtualClock, hang

from .frail import Frail


class Asker:
    """Wants two letters sent, both of which a person must approve."""

    name, max_output_tokens = "asker", 100

    async def stream(self, request):
        await asyncio.sleep(0)
        if any(type(message) is AssistantMessage for message in request.messages):
            yield TextDelta("done")
            yield StreamEnd("end_turn", Usage(1000, 5))
            return
        yield ToolCallDelta(0, "a", "send", '{"to": "Ann"}')
        yield ToolCallDelta(1, "b", "send", '{"to": "Bob"}')
        yield StreamEnd("tool_use", Usage(1000, 5))


def asking(store, sent):
    @tool(requires_approval=True)
    async def send(to: str) -> str:
        """Send a letter."""
        sent.append(to)
        return f"sent to {to}"

    return Agent(model=Asker(), tools=[send], limits=Limits(max_iterations=5), store=store)


BOTH = {"a": approve(), "b": deny("not Bob")}


@pytest.mark.parametrize("commits", range(8))
def test_g13_decisions_can_be_passed_again_after_a_death_at_any_commit(commits):
    async def fly():
        store, sent = Frail(MemoryStore()), []
        assert (await asking(store, sent).run("go", session="s")).outcome is LoopOutcome.PAUSED
        store.die_after(commits)
        await asking(store, sent).resume("s", decisions=BOTH)
        await store.revive()
        result = await asking(store, sent).resume("s", decisions=BOTH)
        assert result.outcome is LoopOutcome.DONE
        assert sent == ["Ann"]
        again = await asking(store, sent).resume("s", decisions=BOTH)
        assert again.text == result.text

    asyncio.run(fly())


def test_another_decision_about_a_call_that_was_carried_out_is_an_error():
    async def fly():
        store, sent = MemoryStore(), []
        await asking(store, sent).run("go", session="s")
        await asking(store, sent).resume("s", decisions=BOTH)
        with pytest.raises(ConfigurationError, match=r"'a'.*was decided before \(approve\)"):
            await asking(store, sent).resume("s", decisions={"a": deny("too late")})
        with pytest.raises(ConfigurationError, match="no pending call 'nobody'"):
            await asking(store, sent).resume("s", decisions={"nobody": approve()})
        with pytest.raises(ConfigurationError, match="must be approve"):
            await asking(store, sent).resume("s", decisions={"a": "yes"})

    asyncio.run(fly())


def test_a_person_may_change_his_mind_about_a_call_that_has_not_begun():
    async def fly():
        store, sent = Frail(MemoryStore()), []
        await asking(store, sent).run("go", session="s")
        store.die_after(1)  # the decision is written, and the call has not begun
        await asking(store, sent).resume("s", decisions={"a": approve(), "b": approve()})
        await store.revive()
        result = await asking(store, sent).resume("s", decisions={"a": deny("no"), "b": answer("sent by hand")})
        assert sent == []
        assert [m.kind for m in result.messages if m.role == "tool_result"] == ["denied", "answered"]

    asyncio.run(fly())


class Taken(MemoryStore):
    """Another owner takes the session while the model is silent."""

    async def beat(self, leases, *, renew):
        return [Sign(session_id=lease.session_id, lost=True) for lease in leases]


def test_a_lease_that_the_heartbeat_finds_lost_is_fenced():
    async def fly():
        agent = Agent(model=ScriptedModel([hang()]), limits=Limits(max_iterations=3, timeout=60), store=Taken())
        return await agent.run("go", session="s")

    result = VirtualClock().run(fly())
    assert result.outcome is LoopOutcome.FAILED
    assert result.cause.source == "store"
    assert result.cause.metrics["kind"] == "fenced"
