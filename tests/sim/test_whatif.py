"""What if: stored runs under other limits, prices and guards, without a model."""

import asyncio
from decimal import Decimal

import pytest

from glidepath import Agent, ConfigurationError, GuardrailsConfig, Limits, tool
from glidepath.errors import TransientError
from glidepath.run import Price
from glidepath.sessions import MemoryStore
from glidepath.sim.whatif import flown_runs, what_if
from glidepath.testing import ScriptedModel, VirtualClock, call, fail, say
from glidepath.testing.simulator import choose_values, count_unaffected, svg_plot, text_plot
from glidepath.values import replace

PRICES = {"scripted": ("1", "10")}


@tool
async def look(n: int = 0) -> str:
    """Look."""
    await asyncio.sleep(10)
    return f"saw {n}"


@tool
async def same() -> str:
    """Always the same."""
    return "same"


def fly(*turns, store, session, prices=PRICES, **fields):
    agent = Agent(
        model=ScriptedModel(list(turns)),
        tools=[look, same, *fields.pop("tools", ())],
        limits=Limits(max_iterations=50, timeout=10_000),
        store=store,
        prices=prices,
        guardrails=GuardrailsConfig(max_repeated_tool_steps=0, max_error_streak=0),
        **fields,
    )
    return agent.run("go", session=session)


def stored(*flights):
    """A store with these runs, and what is known about them."""

    async def scene():
        store = MemoryStore()
        results = [await fly(*turns, store=store, session=f"s{number}") for number, turns in enumerate(flights)]
        runs, unreadable = await flown_runs(store)
        assert unreadable == []
        return results, sorted(runs, key=lambda run: run.session_id)

    return VirtualClock().run(scene())


def steps(count):
    return (*[call("look", n=n) for n in range(count)], say("the answer"))


def test_a_run_is_seen_as_its_result_tells_it():
    (result,), (run,) = stored(steps(3))
    assert (run.outcome, run.answered, len(run.moments)) == ("done", True, 4)
    last = run.last
    assert (last.turns, last.tool_calls, last.tokens) == (4, 3, result.usage.total)
    assert Decimal(last.money) / 10**12 == result.cost
    (fate,) = what_if([run], Limits())
    assert (fate.trip, fate.cost, fate.lost) == (None, result.cost, False)


@pytest.mark.parametrize(
    ("limits", "by", "after"),
    [
        ({"max_iterations": 3}, "max_iterations", 3),
        ({"max_iterations": 6}, None, None),
        ({"max_tool_calls": 2}, "max_tool_calls", 2),
        ({"max_tool_calls": 5}, None, None),
        ({"timeout": 35}, "timeout", 3),
        ({"timeout": 300}, None, None),
        ({"max_tokens": 10}, "max_tokens", 0),
        ({"max_iterations": 3, "max_tool_calls": 1}, "max_tool_calls", 1),
    ],
    ids=str,
)
def test_a_run_trips_where_its_figures_pass_the_limit(limits, by, after):
    _, (run,) = stored(steps(5))
    (fate,) = what_if([run], Limits(**limits))
    assert (None if fate.trip is None else (fate.trip.by, fate.trip.reply)) == (None if by is None else (by, after))
    assert fate.lost == (by is not None)


def test_tokens_and_money_keep_room_for_the_landing():
    _, (run,) = stored(steps(5))
    whole = run.last.tokens
    (fits,) = what_if([run], Limits(max_tokens=whole + 5000))
    assert fits.trip is None
    (tight,) = what_if([run], Limits(max_tokens=whole, landing_tokens=whole))
    assert tight.trip.reply == 1
    cost = fits.cost
    (dear,) = what_if([run], Limits(max_cost=str(cost / 2), landing_tokens=1))
    assert (dear.trip.by, dear.trip.cost < cost) == ("max_cost", True)


def test_other_prices_are_used_for_the_models_they_name():
    _, (run,) = stored(steps(2))
    usage = run.last.charges[0][1]
    (fate,) = what_if([run], Limits(), prices={"scripted": Price.per_million(("2", "20"), field="x")})
    assert fate.cost == Decimal(usage.input * 2 + usage.output * 20) / 10**6
    (same_price,) = what_if([run], Limits(), prices={"another": Price.per_million(("9", "9"), field="x")})
    assert same_price.cost == what_if([run], Limits())[0].cost


def test_what_children_cost_is_priced_by_their_own_model():
    async def scene():
        store = MemoryStore()
        cheap = ScriptedModel([say("kid done")])
        cheap.name = "cheap"
        kid = Agent(model=cheap, limits=Limits(max_iterations=3), agent_name="kid", prices={"cheap": ("1", "1")})
        await fly(call("kid", task="x"), say("done"), store=store, session="s", tools=[kid.as_tool("kid", "x")])
        (run,), _ = await flown_runs(store)
        return run

    run = VirtualClock().run(scene())
    assert sorted(model for model, _, _ in run.last.charges) == ["cheap", "scripted"]
    free = {name: Price.per_million(("0", "0"), field="x") for name in ("cheap", "scripted")}
    assert what_if([run], Limits(), prices=free)[0].cost == 0
    assert 0 < what_if([run], Limits(), prices={"scripted": free["cheap"]})[0].cost < what_if([run], Limits())[0].cost


def test_guards_are_asked_about_the_recorded_calls():
    _, (stuck, fine) = stored((*[call("same")] * 8, say("at last")), steps(8))
    fates = what_if([stuck, fine], Limits(), guards={"max_repeated_tool_steps": 2})
    assert [None if one.trip is None else one.trip.by for one in fates] == ["max_repeated_tool_steps", None]
    assert fates[0].lost


def test_runs_without_an_answer_lose_none():
    _, (run,) = stored((call("look"), *[fail(TransientError("503"))] * 20))
    assert (run.outcome, run.answered) == ("failed", False)
    (fate,) = what_if([run], Limits(max_iterations=1, max_tool_calls=1))
    assert not fate.lost


def test_several_runs_of_a_session_are_runs_of_their_own():
    async def scene():
        store = MemoryStore()
        await fly(*steps(2), store=store, session="s")
        await fly(*steps(4), store=store, session="s")
        return (await flown_runs(store))[0]

    runs = VirtualClock().run(scene())
    assert [len(run.moments) for run in runs] == [3, 5]
    assert len({run.run_id for run in runs}) == 2


def test_every_value_of_a_limit_is_plotted():
    _, runs = stored(*[steps(count) for count in (1, 2, 4, 8)])
    points = count_unaffected(runs, "max_iterations", choose_values(runs, "max_iterations"))
    assert [count for _, count in points] == sorted(count for _, count in points)
    assert points[-1][1] == 4
    lines = text_plot("answers", points, 4)
    assert lines[-1].endswith("100 % 4/4")
    assert svg_plot("a <b> & c", points, 4).startswith("<svg")
    assert "&lt;b&gt;" in svg_plot("a <b> & c", points, 4)
    for name in ("max_tokens", "max_cost", "timeout", "max_tool_calls"):
        assert count_unaffected(runs, name, choose_values(runs, name))[-1][1] == 4, name
    assert choose_values([], "max_tokens") == []
    assert text_plot("x", [], 0) == ["x: nothing to plot"]


def test_runs_that_cost_next_to_nothing_are_plotted_too():
    _, runs = stored((say("quick"),), steps(1))
    quick = [replace(run, moments=[replace(one, money=40_000, elapsed=2e-5) for one in run.moments]) for run in runs]
    free = replace(runs[0], moments=[replace(one, money=0) for one in runs[0].moments])
    for name in ("max_cost", "timeout"):
        values = choose_values([*quick, free], name)
        assert all(value > 0 for value in values), name
        assert count_unaffected([*quick, free], name, values)[-1][1] == 3, name


def test_a_fork_has_as_many_turns_as_replies():
    async def scene():
        store = MemoryStore()
        await fly(*steps(3), store=store, session="s")
        await store.fork("s", at=2, name="f")
        return {run.session_id: run for run in (await flown_runs(store))[0]}

    runs = VirtualClock().run(scene())
    assert [one.turns for one in runs["f"].moments] == [1, 2]
    assert [one.turns for one in runs["s"].moments] == [1, 2, 3, 4]


def talk(*, messages, **limits):
    """A conversation of so many messages, each with a call, and what it cost."""

    async def scene():
        store, paid = MemoryStore(), Decimal(0)
        for number in range(messages):
            model = ScriptedModel([call("same"), say(f"answer {number}")])
            agent = Agent(model=model, tools=[same], limits=Limits(**limits), store=store, prices=PRICES)
            paid += (await agent.run("go", session="s")).cost
        return paid, (await flown_runs(store))[0]

    return VirtualClock().run(scene())


def test_a_run_of_a_limited_conversation_costs_what_it_has_used_itself():
    paid, runs = talk(messages=3, max_cost="5", max_tokens=90_000, max_iterations=50, scope="session")
    assert sum(run.paid for run in runs) == paid * 10**12
    assert sum(fate.cost for fate in what_if(runs, Limits())) == paid
    dear = what_if(runs, Limits(), prices={"scripted": ("2", "20")})
    assert sum(fate.cost for fate in dear) == 2 * paid


@pytest.mark.parametrize("then", ["run", "session"])
@pytest.mark.parametrize(
    ("scope", "trips"), [("run", [None] * 3), ("session", [None, 1, 0])], ids=["of a run", "of a session"]
)
def test_limits_of_a_run_or_a_session_are_tried_whatever_they_were_limits_of_then(then, scope, trips):
    _, runs = talk(messages=3, max_iterations=50, scope=then)
    fates = what_if(runs, Limits(max_iterations=3, scope=scope))
    assert [None if fate.trip is None else fate.trip.reply for fate in fates] == trips


def test_what_a_conversation_has_used_is_counted_up_to_where_it_would_have_been_stopped():
    _, runs = talk(messages=6, max_iterations=50)
    used, room = [run.last.tokens for run in runs], 100  # for what a landing is taken to need
    lasts = Limits(max_tokens=sum(used) + room, landing_tokens=1, scope="session")
    assert [fate.trip for fate in what_if(runs, lasts)] == [None] * 6
    half = Limits(max_tokens=sum(used[:3]) + room, landing_tokens=1, scope="session")
    assert [fate.lost for fate in what_if(runs, half)] == [False] * 3 + [True] * 3
    most = choose_values(runs, "max_tokens", scope="session")[-1]
    kept = count_unaffected(runs, "max_tokens", [used[0] // 2, most], scope="session")
    assert (most >= sum(used), [number for _, number in kept]) == (True, [0, 6])


def test_what_a_fork_or_a_rewind_copied_is_not_counted_twice():
    async def scene():
        store = MemoryStore()
        paid = (await fly(*steps(3), store=store, session="s")).cost
        made = await store.fork("s", at=2, name="f")
        back = await store.rewind("s", at=1)
        runs, _ = await flown_runs(store)
        found = what_if(runs, Limits())
        assert [(one.run.session_id, one.cost) for one in found] == [(back.origin, paid)], "the others are copies"
        for name in (made.session_id, "s"):
            paid += (await fly(*steps(1), store=store, session=name)).cost
            runs, _ = await flown_runs(store)
            assert sum(run.paid for run in runs) == paid * 10**12
            assert sum(one.cost for one in what_if(runs, Limits())) == paid
        again = await store.rewind("s", at=2)
        runs, _ = await flown_runs(store)
        assert sum(run.paid for run in runs) == paid * 10**12, again

    VirtualClock().run(scene())


def test_a_fork_that_was_resumed_costs_what_came_after_the_copy():
    async def scene():
        store = MemoryStore()
        whole = await fly(*steps(3), store=store, session="s")
        await store.fork("s", at=2, name="f")
        model = ScriptedModel([call("look", n=9), say("another end")])
        limits = Limits(max_iterations=50, timeout=10_000)
        ended = await Agent(model=model, tools=[look, same], limits=limits, store=store, prices=PRICES).resume("f")
        runs = {run.session_id: run for run in (await flown_runs(store))[0]}
        copied = runs["s"].moments[1].money
        assert runs["f"].paid == ended.cost * 10**12 - copied > 0
        assert runs["s"].paid == whole.cost * 10**12
        (early,) = what_if([runs["f"]], Limits(max_iterations=2))
        assert (early.trip.reply, early.lost) == (2, True)
        (first,) = what_if([runs["f"]], Limits(max_iterations=1))
        assert (first.trip.reply, first.trip.cost) == (1, 0), "nothing was spent on its own turns"

    VirtualClock().run(scene())


@pytest.mark.parametrize(
    ("limits", "more", "said"),
    [
        (None, {}, "limits must be Limits"),
        (Limits(), {"guards": {"max_error_streak": 0}}, "guards: max_error_streak must be a whole number"),
        (Limits(), {"guards": {"max_error_streak": "3"}}, "guards: max_error_streak must be a whole number"),
        (Limits(), {"guards": {"max_error_streak": True}}, "guards: max_error_streak must be a whole number"),
        (Limits(), {"prices": {"scripted": 3}}, "prices"),
        (Limits(), {"prices": ["scripted"]}, "prices must map"),
    ],
    ids=["limits", "zero", "text", "bool", "price", "prices"],
)
def test_what_cannot_be_a_limit_a_guard_or_a_price_is_named(limits, more, said):
    _, (run,) = stored(steps(1))
    with pytest.raises(ConfigurationError, match=said):
        what_if([run], limits, **more)


def test_what_cannot_be_tried_is_named():
    _, (run,) = stored(steps(1))
    with pytest.raises(ConfigurationError, match="'max_luck' cannot be tried here"):
        what_if([run], Limits(), guards={"max_luck": 1})

    async def unpriced():
        store = MemoryStore()
        await fly(*steps(1), store=store, session="s", prices={})
        return (await flown_runs(store))[0]

    with pytest.raises(ConfigurationError, match="max_cost: no run in this store has a price"):
        what_if(VirtualClock().run(unpriced()), Limits(max_cost="1"))
