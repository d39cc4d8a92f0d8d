"""A tree spends no more than its root may, whoever spends it, and every child that starts can land."""

import asyncio
from collections import Counter
from decimal import Decimal
from threading import Thread

import pytest

from glidepath import Agent, AgentState, Budget, ConfigurationError, Limits, LoopOutcome, ToolContext, Usage, tool
from glidepath.testing import EventRecorder, ScriptedModel, call, calls, say, transcript_errors, virtual

from .family import ROOMY, child_of, delegating, fanning

ANSWER = "word " * 200  # about 250 tokens


def ends(results):
    return Counter((result.state, result.outcome) for result in results)


def answering(text=ANSWER, **more):
    return Agent(model=ScriptedModel(name="child-model").forever(say(text)), limits=Limits(max_iterations=5), **more)


# --- tokens -------------------------------------------------------------------------------------------------------


@virtual
async def test_64_children_on_200k_tokens_all_answer():
    parent, results = fanning(
        answering(), 64, limits=Limits(max_iterations=500, max_tokens=200_000, max_descendants=64)
    )
    result = await parent.run("go")
    assert ends(results) == {(AgentState.COMPLETED, LoopOutcome.DONE): 64}
    assert result.usage.total <= 200_000


@virtual
async def test_64_children_on_20k_tokens_wait_for_each_other_and_all_answer():
    parent, results = fanning(answering(), 64, limits=Limits(max_iterations=500, max_tokens=20_000, max_descendants=64))
    result = await parent.run("go")
    assert ends(results) == {(AgentState.COMPLETED, LoopOutcome.DONE): 64}
    assert (result.outcome, result.usage.total <= 20_000) == (LoopOutcome.DONE, True)


@virtual
async def test_64_children_on_12k_tokens_use_them_up_and_the_rest_are_refused_at_once():
    parent, results = fanning(answering(), 64, limits=Limits(max_iterations=500, max_tokens=12_000, max_descendants=64))
    result = await parent.run("go")
    ended = ends(results)
    ran = sum(child.ok for child in results)
    assert ran >= 30
    assert ended[AgentState.BUDGET_EXCEEDED, LoopOutcome.CUT_OFF] == 64 - ran
    refused = [child for child in results if child.outcome is LoopOutcome.CUT_OFF]
    assert {(child.iterations, child.usage.total, child.landing_calls) for child in refused} == {(0, 0, 0)}
    assert {child.cause.source for child in refused} == {"TokenBudgetConstraint"}
    assert result.elapsed < 1
    assert result.usage.total <= 12_000
    assert result.text == "the parent's answer"


@virtual
async def test_children_that_wait_for_each_other_on_a_tight_budget_never_wait_for_nothing():
    """Two boarded children want more than their first calls: neither may wait for what the other was only promised."""
    for tokens in range(3_500, 12_000, 500):
        parent, results = fanning(answering(), 8, limits=Limits(max_iterations=100, max_tokens=tokens))
        result = await asyncio.wait_for(parent.run("go"), 5)
        assert len(results) == 8
        assert result.usage.total <= tokens


@virtual
async def test_a_child_is_cut_down_to_what_its_parent_has_left():
    parent, results = delegating(answering("word " * 4000), limits=Limits(max_iterations=10, max_tokens=4_000))
    result = await parent.run("go")
    assert result.usage.total <= 4_000
    assert results[0].partial
    assert results[0].text.startswith("word ")


@virtual
async def test_tokens_of_a_child_count_against_its_parents_soft_limit():
    child = child_of(say("x", usage=Usage(input=2000, output=900)))
    parent, _ = delegating(child, limits=Limits(max_iterations=10, max_tokens=4_400))
    result = await parent.run("go")
    assert (result.outcome, result.cause.source) == (LoopOutcome.WRAPPED_UP, "TokenBudgetConstraint")


# --- money --------------------------------------------------------------------------------------------------------


@virtual
async def test_64_children_never_spend_more_money_than_the_tree_may():
    child = answering(prices={"child-model": (10, 10)})
    parent, results = fanning(
        child,
        64,
        limits=Limits(max_iterations=500, max_cost="0.20", max_descendants=64),
        prices={"parent-model": (10, 10)},
    )
    result = await parent.run("go")
    assert Decimal(0) < result.cost <= Decimal("0.20")
    assert ends(results)[AgentState.COMPLETED, LoopOutcome.DONE] >= 10


@virtual
async def test_g12_an_unpriced_child_cannot_spend_from_a_money_limit():
    child = Agent(model=ScriptedModel([], name="nobody-knows-1"), limits=Limits(max_iterations=2))
    parent, _ = delegating(child, limits=Limits(max_iterations=5, max_cost="0.20"), prices={"parent-model": (10, 10)})
    result = await parent.run("go")
    (told,) = [message for message in result.messages if message.role == "tool_result"]
    assert told.is_error
    assert "nobody-knows-1" in told.text
    assert child.config.model.calls == 0


# --- turns, depth, descendants ------------------------------------------------------------------------------------


@virtual
async def test_the_turns_of_children_are_turns_of_the_tree():
    parent, results = fanning(answering(), 10, limits=Limits(max_iterations=6, grace_iterations=0))
    result = await parent.run("go")
    ran = [child for child in results if child.iterations]
    assert len(ran) == 5
    assert {child.cause.source for child in results if not child.iterations} == {"MaxIterationConstraint"}
    assert {child.state for child in results if not child.iterations} == {AgentState.MAX_STEPS}
    assert result.iterations + sum(child.iterations for child in results) == 6


@virtual
async def test_a_child_stopped_before_its_first_turn_makes_no_landing_call():
    child = answering()
    parent, results = fanning(child, 3, limits=Limits(max_iterations=1))
    await parent.run("go")
    assert [(kid.iterations, kid.landing_calls) for kid in results] == [(0, 0)] * 3
    assert child.config.model.calls == 0


def nested(depth):
    """Agents that each spawn one more, `depth` deep."""
    agent = child_of(*[say("the bottom")] * 4)
    reached = []
    for level in range(depth, 0, -1):
        agent, results = delegating(agent)
        reached.append((level, results))
    return agent, reached


@pytest.mark.parametrize(("limit", "generations"), [(1, 1), (2, 2), (3, 3)])
@virtual
async def test_a_tree_is_no_deeper_than_its_root_allows(limit, generations):
    below, _ = nested(4)
    root, _ = delegating(below, limits=Limits(max_iterations=99, max_depth=limit))
    result = await root.run("go")
    started, refused = 0, None
    while result.children:
        (result,) = result.children
        if result.iterations:
            started += 1
        else:
            refused = result
    assert started == generations
    assert (refused.state, refused.outcome, refused.cause.source) == (
        AgentState.BUDGET_EXCEEDED,
        LoopOutcome.CUT_OFF,
        "max_depth",
    )


@virtual
async def test_runs_on_a_budget_are_roots_and_no_descendants_of_it():
    budget = Budget(Limits(max_tokens=100_000, max_descendants=1, max_depth=1))
    for _ in range(3):
        parent, results = delegating(child_of(say("x")), limits=Limits(max_iterations=9))
        await parent.run("go", parent=budget)
        assert [child.outcome for child in results] == [LoopOutcome.DONE]


@virtual
async def test_a_tool_call_of_a_child_counts_for_the_whole_tree():
    @tool
    async def work() -> str:
        """Work."""
        return "x"

    child = child_of(calls(*[call("work")] * 5), say("done"), tools=[work])
    parent, results = delegating(child, limits=Limits(max_iterations=20, max_tool_calls=4))
    result = await parent.run("go")
    assert results[0].tool_calls == 3
    assert (result.state, result.cause.source) == (AgentState.MAX_STEPS, "ToolCallLimitConstraint")


# --- the fork bomb ------------------------------------------------------------------------------------------------


def bomb(width, models, **limits):
    """An agent that delegates everything twice over, again and again, until it is told to stop."""

    def step(request):
        if not request.tools or any("final answer" in message.text for message in request.messages[-4:]):
            return say("what I have")
        return calls(*[call("delegate", task=f"part {part}") for part in range(width)], text="Delegating. ")

    @tool
    async def delegate(task: str, context: ToolContext) -> str:
        """Delegate a task."""
        return (await context.spawn(bomb(width, models, **limits), task)).text

    model = ScriptedModel(name="m", price=(10, 10)).forever(step)
    models.append(model)
    return Agent(model=model, tools=[delegate], limits=Limits(**limits))


@pytest.mark.parametrize("width", [1, 2, 8, 30])
@virtual
async def test_a_fork_bomb_is_bounded_by_the_turn_cap_of_the_tree(width):
    models = []
    result = await asyncio.wait_for(bomb(width, models, max_iterations=10, max_tokens=50_000).run("go"), 5)
    requests = [request for model in models for request in model.requests]
    working = [request for request in requests if request.tools]
    assert len(working) <= 10
    assert len(requests) <= 20  # each agent that took a turn may land once
    assert result.text == "what I have"
    assert transcript_errors(result.messages) == []
    assert [error for request in requests for error in transcript_errors(request.messages)] == []


@pytest.mark.parametrize("width", [2, 8])
@virtual
async def test_a_fork_bomb_with_every_limit_lands_at_once(width):
    """As in the zoo: tokens so tight that children wait for each other's promises."""
    limits = {"max_iterations": 10, "max_tokens": 10_000, "max_cost": "0.10", "timeout": 12, "max_tool_calls": 20}
    result = await bomb(width, [], **limits).run("go")
    assert result.elapsed < 0.1
    assert result.usage.total <= 10_000
    assert result.cost <= Decimal("0.10")
    assert result.text == "what I have"


@virtual
async def test_a_fork_bomb_without_a_turn_cap_is_bounded_by_depth_descendants_and_tokens():
    models = []
    result = await asyncio.wait_for(bomb(3, models, max_tokens=60_000).run("go"), 50)
    assert len(models) <= 1 + 32 + sum(1 for model in models if not model.calls)
    assert result.usage.total <= 60_000


# --- inheritance --------------------------------------------------------------------------------------------------


@virtual
async def test_a_parents_constraints_hold_for_its_children():
    from glidepath import ResourceAction, ResourceConstraint, ResourceValidation

    class NoLongTalks(ResourceConstraint):
        async def validate(self, context):
            if context.depth and context.iteration >= 1:
                return ResourceValidation.violation("children get one turn")
            return ResourceValidation.ok()

        def on_violation(self, validation):
            return ResourceAction.EMERGENCY_STOP

    child = child_of(call("nothing"), say("never reached"))
    parent, results = delegating(child, constraints=[NoLongTalks()])
    await parent.run("go")
    assert (results[0].cause.source, results[0].iterations) == ("NoLongTalks", 1)


@virtual
async def test_a_parents_guarding_plugins_hold_for_its_children_and_its_observers_do_not():
    from glidepath import Plugin
    from glidepath.spi import Block

    class NoPayments(Plugin):
        def before_tool_call(self, context):
            return Block("no payments") if context.call.name == "pay" else None

    paid = []

    @tool
    async def pay() -> str:
        """Pay."""
        paid.append(1)
        return "paid"

    recorder = EventRecorder()
    child = child_of(call("pay"), say("done"), tools=[pay])
    parent, results = delegating(child, plugins=[NoPayments(), recorder.as_plugin()])
    await parent.run("go")
    assert paid == []
    assert "no payments" in results[0].messages[2].text
    assert {event.run_id for event in recorder} == {recorder.events[0].run_id}


@virtual
async def test_the_same_child_under_two_parents_keeps_their_guards_apart():
    from glidepath import Plugin
    from glidepath.spi import Block

    class Strict(Plugin):
        def before_tool_call(self, context):
            return Block("strict")

    @tool
    async def pay() -> str:
        """Pay."""
        return "paid"

    child = Agent(model=ScriptedModel([call("pay"), say("a")] * 2), tools=[pay], limits=ROOMY)

    class NotForTheParent(Strict):
        def before_tool_call(self, context):
            return Block("strict") if context.call.name == "pay" else None

    strict, strict_results = delegating(child, plugins=[NotForTheParent()])
    free, free_results = delegating(child)
    await strict.run("go")
    await free.run("go")
    assert "strict" in strict_results[0].messages[2].text
    assert free_results[0].messages[2].text == "paid"


# --- one budget, many threads -------------------------------------------------------------------------------------


def test_a_budget_shared_by_runs_in_many_threads_is_never_exceeded():
    budget = Budget(Limits(max_tokens=30_000))
    agent = Agent(model=ScriptedModel(record=False).forever(say(ANSWER)), limits=Limits(max_iterations=3))
    results = []

    def work():
        results.extend(agent.run_sync("go", parent=budget) for _ in range(6))

    threads = [Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(results) == 48
    assert sum(result.usage.total for result in results) == budget.meter.tokens <= 30_000
    assert budget.meter.reserved_tokens == budget.meter.aside_tokens == 0


def test_a_run_on_a_budget_without_any_limit_is_a_configuration_error():
    agent = Agent(model=ScriptedModel([]))
    with pytest.raises(ConfigurationError, match="no limit"):
        agent.run_sync("go", parent=Budget(Limits()))


@virtual
async def test_a_budget_tells_what_is_left_and_when_it_is_nearly_used_up():
    budget = Budget(Limits(max_tokens=10_000, max_iterations=7, max_tool_calls=3))
    agent = Agent(
        model=ScriptedModel([say("x", usage=Usage(input=5_000, output=4_600))]), limits=Limits(max_iterations=3)
    )
    assert (budget.remaining().tokens, budget.near_budget()) == (10_000, False)
    await agent.run("go", parent=budget)
    left = budget.remaining()
    assert (left.iterations, left.tool_calls, left.tokens) == (6, 3, 10_000 - 9_600)
    assert budget.near_budget()
