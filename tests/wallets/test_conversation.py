"""Limits of a whole conversation, not of each message."""

import asyncio
from decimal import Decimal

import pytest

from glidepath import Agent, ConfigurationError, Limits, Session, tool
from glidepath.agent.replay import replay
from glidepath.outcome import LoopOutcome
from glidepath.sessions import MemoryStore, SqliteStore
from glidepath.testing import ScriptedModel, VirtualClock, call, say

PRICES = {"scripted": ("3", "15")}
LONG = "word " * 200


@tool
async def look(place: str) -> str:
    """Look at a place."""
    return f"{place}: nothing"


def make(limits, model=None, **options):
    model = model or ScriptedModel(max_output_tokens=400).forever(say(LONG))
    return Agent(model=model, tools=[look], limits=limits, prices=PRICES, **options)


async def talk(agent, home, most=200):
    """Say things until the conversation is over; all results."""
    results = []
    for number in range(most):
        results.append(await agent.run(f"message {number}", session=home))
        if results[-1].outcome is not LoopOutcome.DONE:
            return results
    raise AssertionError("it never ends")


@pytest.mark.parametrize("kind", ["object", "memory", "sqlite"])
@pytest.mark.parametrize("limits", [{"max_tokens": 9_000}, {"max_cost": "0.05"}], ids=["tokens", "cost"])
def test_g4_a_conversation_stays_within_its_limit(kind, limits, tmp_path):
    async def main():
        store = {"object": None, "memory": MemoryStore(), "sqlite": SqliteStore(tmp_path / "s.db")}[kind]
        home = Session() if store is None else "chat"
        results = await talk(make(Limits(**limits, scope="session"), store=store), home)
        assert len(results) > 2
        assert sum(result.usage.total for result in results) <= limits.get("max_tokens", 10**9)
        assert sum(result.cost for result in results) <= Decimal(limits.get("max_cost", "9"))
        assert results[-1].outcome in (LoopOutcome.WRAPPED_UP, LoopOutcome.CUT_OFF)
        after = await make(Limits(**limits, scope="session"), store=store).run("one more", session=home)
        assert after.outcome in (LoopOutcome.WRAPPED_UP, LoopOutcome.CUT_OFF)
        if store is not None:
            await store.close()

    asyncio.run(main())


def test_g5_a_conversation_that_is_nearly_used_up_still_answers():
    results = VirtualClock().run(talk(make(Limits(max_tokens=9_000, scope="session")), Session()))
    assert results[-1].outcome is LoopOutcome.WRAPPED_UP
    assert results[-1].text


def test_nothing_is_called_once_a_conversation_is_used_up():
    async def main():
        model = ScriptedModel(max_output_tokens=400).forever(say(LONG))
        agent, home = make(Limits(max_tokens=9_000, scope="session"), model), Session()
        await talk(agent, home)
        for _ in range(5):
            result = await agent.run("more", session=home)
        before = model.calls
        result = await agent.run("more", session=home)
        assert (model.calls, result.outcome) == (before, LoopOutcome.CUT_OFF)
        assert result.cause.metrics["max_tokens"] == 9_000
        assert home.totals.usage.total <= 9_000

    VirtualClock().run(main())


def test_turns_and_tool_calls_of_a_conversation_are_counted_over_all_its_runs():
    def model(request):
        return call("look", place="here") if request.messages[-1].role == "user" else say("done")

    async def main(limits, most):
        agent, home = make(limits, ScriptedModel().forever(model)), Session()
        results = await talk(agent, home)
        assert most(home)
        assert results[-1].outcome is not LoopOutcome.DONE
        return results

    VirtualClock().run(main(Limits(max_iterations=7, scope="session"), lambda home: home.totals.iterations == 7))
    VirtualClock().run(main(Limits(max_tool_calls=3, scope="session"), lambda home: home.totals.tool_calls == 3))


def test_a_message_of_a_run_scope_has_the_whole_limit_again():
    async def main():
        agent, home = make(Limits(max_tokens=3_000)), Session()
        for _ in range(3):
            assert (await agent.run("again", session=home)).outcome is LoopOutcome.DONE
            home.messages.clear()

    VirtualClock().run(main())


def test_a_session_can_have_limits_of_its_own_beside_those_of_each_run():
    async def main():
        agent = make(Limits(max_iterations=5, max_cost="0.01"))
        home = Session(limits=Limits(max_cost="0.03"))
        results = await talk(agent, home)
        assert len(results) > 2
        assert Decimal("0.015") < home.totals.cost <= Decimal("0.03")
        assert "cost limit" in results[-1].cause.reason or "budget" in results[-1].cause.reason
        with pytest.raises(ConfigurationError, match="not max_iterations"):
            await agent.run("x", session=Session(limits=Limits(max_iterations=3)))
        with pytest.raises(ConfigurationError, match=r"must be a Limits .*, not int"):
            Session(limits=3)
        free = Agent(model=ScriptedModel([], name="unknown"), limits=Limits(max_iterations=3))
        with pytest.raises(ConfigurationError, match="price"):
            await free.run("x", session=Session(limits=Limits(max_cost="1")))

    VirtualClock().run(main())


def test_a_resumed_run_of_a_limited_conversation_goes_on_where_it_stood():
    def model(request):
        return call("look", place=str(len(request.messages))) if request.tools else say("landed")

    async def main():
        store = MemoryStore()
        agent = make(Limits(max_iterations=3, max_tokens=90_000), ScriptedModel().forever(model), store=store)
        home = Session("s", limits=Limits(max_tokens=20_000))
        first = await agent.run("a", session=home)
        second = await agent.run("b", session=Session("s", limits=Limits(max_tokens=20_000)))
        assert second.snapshot.carried.session.tokens == first.usage.total
        third = await agent.resume("s", limits=Limits(max_iterations=400))  # the journal knows the session's limit
        assert third.outcome is LoopOutcome.WRAPPED_UP
        assert third.cause.source == "TokenBudgetConstraint"
        assert third.usage.total + first.usage.total <= 20_000
        assert third.snapshot.carried.session.max_tokens == 20_000

    VirtualClock().run(main())


def test_a_run_of_a_limited_conversation_can_be_replayed():
    async def main():
        store = MemoryStore()
        agent = make(Limits(max_tokens=90_000, scope="session"), ScriptedModel().forever(say("ok")), store=store)
        bound = Session("t", limits=Limits(max_tokens=50_000, max_tool_calls=5))
        for home in ("s", bound):
            for _ in range(2):
                await agent.run("a", session=home)
            done = await replay(agent, store, "s" if home == "s" else "t")
            assert done.same, done.difference

    asyncio.run(main())


def test_children_count_in_the_conversation_of_their_parent():
    async def main():
        child = make(Limits(max_iterations=4), ScriptedModel().forever(say("42")))

        def model(request):
            return call("ask", task="?") if request.messages[-1].role == "user" else say("done")

        above = Agent(
            model=ScriptedModel().forever(model),
            tools=[child.as_tool("ask", "Ask.")],
            limits=Limits(max_iterations=9, scope="session"),
        )
        home = Session()
        for _ in range(3):
            await above.run("x", session=home)
        assert (home.totals.iterations, home.totals.turns) == (6, 9)
        assert (await above.run("x", session=home)).outcome is LoopOutcome.CUT_OFF

    VirtualClock().run(main())


def test_a_child_with_a_session_of_its_own_is_bounded_there():
    async def main():
        child = make(Limits(max_tokens=9_000, scope="session"))
        kept = Session("notes")

        @tool
        async def ask(question: str) -> str:
            """Ask the child."""
            return (await child.run(question, session=kept)).outcome.name

        def model(request):
            return call("ask", question=str(len(request.messages))) if len(request.messages) < 60 else say("done")

        above = Agent(model=ScriptedModel().forever(model), tools=[ask], limits=Limits(max_iterations=90))
        result = await above.run("Go.")
        assert {child.outcome for child in result.children} >= {LoopOutcome.DONE, LoopOutcome.CUT_OFF}
        assert kept.totals.usage.total <= 9_000

    VirtualClock().run(main())
