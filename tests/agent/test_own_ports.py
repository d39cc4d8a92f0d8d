"""Ports that anybody can plug in: a context strategy, guards, constraints as functions, and state for each run."""

import pytest

from glidepath import Agent, AgentState, Limits, LoopConfig, LoopOutcome, ResourceConstraint, ResourceValidation, tool
from glidepath.errors import ConfigurationError
from glidepath.messages import UserMessage
from glidepath.spi import GuardVerdict, Recovery, Remaining, ResourceContext, Shaped
from glidepath.testing import ScriptedModel, call, say, virtual

FEW = Limits(max_iterations=6)


@tool
async def look() -> str:
    """Look."""
    return "seen"


def agent(*turns, **settings):
    return Agent(**{"model": ScriptedModel([*turns]), "tools": [look], "limits": FEW, **settings})


# --- context --------------------------------------------------------------------------------------------------------


class LastTwo:
    name = "last_two"
    asked = 0

    def shape(self, messages, sizes, budget, pinned):
        self.asked += 1
        keep = sorted({*pinned, *range(max(0, len(messages) - 2), len(messages))})
        return Shaped(
            messages=[messages[at] for at in keep],
            sizes=[sizes[at] for at in keep],
            dropped=len(messages) - len(keep),
        )


class Broken(LastTwo):
    def shape(self, messages, sizes, budget, pinned):
        raise RuntimeError("no view")


class Forgetful(LastTwo):
    def shape(self, messages, sizes, budget, pinned):
        return Shaped(messages=[], sizes=[], dropped=len(messages))


LONG = [UserMessage("word " * 300) for _ in range(8)]


@virtual
async def test_a_strategy_of_ones_own_makes_the_view():
    own = LastTwo()
    result = await agent(say("done"), context_strategy=own, context_window=2_000, min_output_tokens=64).run(LONG)
    assert result.ok
    assert own.asked > 0


@pytest.mark.parametrize("own", [Broken(), Forgetful()], ids=["raises", "drops"])
@virtual
async def test_where_it_fails_the_built_in_one_is_used(own, caplog):
    result = await agent(say("done"), context_strategy=own, context_window=2_000, min_output_tokens=64).run(LONG)
    assert result.ok
    assert "compact is used instead" in caplog.text


@pytest.mark.parametrize("wrong", ["mine", LastTwo, object(), None], ids=["name", "class", "object", "none"])
def test_what_is_not_a_strategy_is_refused(wrong):
    with pytest.raises(ConfigurationError, match="is not a strategy"):
        LoopConfig(model=ScriptedModel([]), context_strategy=wrong)


# --- guards ---------------------------------------------------------------------------------------------------------


class NoLooking:
    name = "no_looking"
    after = None

    def before(self, step):
        return GuardVerdict(action="withdraw", reason="no looking", tools=frozenset({"look"}), notice="Stop looking.")


class Polite:
    name = "polite"

    def __init__(self, state=None):
        self.state = {} if state is None else state

    def for_run(self, state):
        return Polite(state)

    def recover(self, stop):
        if "please" in stop.text or self.state.get("asked", 0) == 2:
            return None
        self.state["asked"] = self.state.get("asked", 0) + 1
        return Recovery(reason="polite", message="Say please.")

    def reset(self):
        self.state.clear()


class Crashing(Polite):
    def for_run(self, state):
        return self

    def recover(self, stop):
        raise RuntimeError("oops")


@virtual
async def test_a_call_guard_of_ones_own_is_asked():
    result = await agent(call("look"), say("done"), guards=[NoLooking()]).run("Go.")
    assert result.tool_calls == 0
    assert result.ok


@virtual
async def test_a_stop_guard_of_ones_own_is_asked_at_every_end_and_has_state_for_each_run():
    one = agent(say("done"), say("done, please"), say("done"), say("done, please"), guards=[Polite()])
    for _ in range(2):
        result = await one.run("Go.")
        assert (result.text, result.iterations) == ("done, please", 2)


@virtual
async def test_a_stop_guard_that_crashes_stops_what_it_guards():
    assert (await agent(say("done"), guards=[Crashing()]).run("Go.")).outcome is LoopOutcome.FAILED


class Halfway:
    name, before, after = "halfway", 3, None


class Awaited(Polite):
    async def recover(self, stop):
        return None


@pytest.mark.parametrize("wrong", [7, Polite, "unheard_of", Halfway()], ids=["number", "class", "name", "part"])
def test_what_is_not_a_guard_is_refused(wrong):
    with pytest.raises(ConfigurationError, match="guards"):
        agent(guards=[wrong])


def test_a_guard_that_would_have_to_be_awaited_is_refused():
    with pytest.raises(ConfigurationError, match=r"Awaited\.recover must be a plain function"):
        agent(guards=[Awaited()])


@pytest.mark.parametrize("part", [{"action": "explode"}, {"tools": ["look"]}, {"notice": 3}, {"reason": None}], ids=str)
@virtual
async def test_a_verdict_that_cannot_be_used_lands_the_run(part):
    class Odd(NoLooking):
        def before(self, step):
            return GuardVerdict(**{"action": "nudge", "reason": "no looking", "notice": "Stop.", **part})

    result = await agent(call("look"), say("so far"), guards=[Odd()]).run("Go.")
    assert (result.cause.source, result.state) == ("no_looking", AgentState.ERROR)
    assert "the guard failed" in result.cause.reason


class Nonsense:
    name = "nonsense"

    def before(self, step):
        return "land"

    after = None


class NonsenseAtTheEnd(Polite):
    def for_run(self, state):
        return self

    def recover(self, stop):
        return "again"


class CannotForget(NonsenseAtTheEnd):
    def recover(self, stop):
        return Recovery(reason="polite", message="Look first.")

    def reset(self):
        raise RuntimeError("oops")


@virtual
async def test_a_call_guard_that_answers_nonsense_lands_the_run():
    result = await agent(call("look"), say("so far"), guards=[Nonsense()]).run("Go.")
    assert (result.cause.source, result.tool_calls) == ("nonsense", 0)
    assert "must return a GuardVerdict or None, not 'land'" in result.cause.reason


@virtual
async def test_a_stop_guard_that_answers_nonsense_fails_the_run():
    result = await agent(say("done"), guards=[NonsenseAtTheEnd()]).run("Go.")
    assert (result.outcome, result.cause.source) == (LoopOutcome.FAILED, "polite")
    assert "must return a Recovery or None, not 'again'" in result.cause.reason


@virtual
async def test_a_stop_guard_that_cannot_forget_fails_the_run_at_its_end():
    result = await agent(say("done"), call("look"), say("done"), guards=[CannotForget()]).run("Go.")
    assert (result.outcome, result.cause.source) == (LoopOutcome.FAILED, "polite")
    assert "oops" in result.cause.reason


@pytest.mark.parametrize("wrong", [lambda self, state: None, lambda self, state: 1 / 0], ids=["nothing", "crash"])
@virtual
async def test_for_run_of_a_guard_that_makes_nothing_is_refused_before_the_first_call(wrong):
    kind = type("Odd", (Polite,), {"for_run": wrong})
    with pytest.raises(ConfigurationError, match="for_run of guard 'polite'"):
        await agent(say("done"), guards=[kind()]).run("Go.")


class Counting:
    before = None

    def __init__(self, name, state=None):
        self.name, self.state = name, state

    def for_run(self, state):
        return Counting(self.name, state)

    def after(self, step, results):
        self.state["steps"] = self.state.get("steps", 0) + 1
        return GuardVerdict(action="land", reason="three") if self.state["steps"] == 3 else None


@pytest.mark.parametrize("names", [["mine", "mine"], ["repetition"]], ids=["twice", "as a built-in one"])
@virtual
async def test_guards_of_the_same_name_share_no_state(names):
    turns = [*[call("look")] * 3, say("so far")]
    result = await agent(*turns, guards=[Counting(name) for name in names]).run("Go.")
    assert (result.cause.reason, result.iterations) == ("three", 3)


# --- constraints ----------------------------------------------------------------------------------------------------


def no_more_than_one(context: ResourceContext):
    return ResourceValidation.violation("one is enough") if context.iteration else None


async def slow_to_answer(context: ResourceContext):
    return ResourceValidation.violation("one is enough") if context.iteration else None


@pytest.mark.parametrize("function", [no_more_than_one, slow_to_answer])
@virtual
async def test_a_function_is_a_constraint(function):
    result = await agent(call("look"), say("so far"), constraints=[function]).run("Go.")
    assert result.state is AgentState.BUDGET_EXCEEDED
    assert result.cause.source == function.__name__


@pytest.mark.parametrize("wrong", [lambda: None, lambda context, other: None], ids=["none", "two"])
def test_a_function_that_does_not_take_one_context_is_refused(wrong):
    with pytest.raises(ConfigurationError, match="constraints: <lambda> must take one argument, the ResourceContext"):
        agent(constraints=[wrong])


@virtual
async def test_a_plain_validate_is_enough():
    class Plain(ResourceConstraint):
        def validate(self, context):
            return no_more_than_one(context) or ResourceValidation.ok()

    assert (await agent(call("look"), say("so far"), constraints=[Plain()]).run("Go.")).cause.source == "Plain"


@virtual
async def test_a_function_that_answers_nonsense_stops_the_run():
    result = await agent(say("done"), constraints=[lambda context: "fine"]).run("Go.")
    assert result.state is AgentState.ERROR


class TwoAsks(ResourceConstraint):
    def __init__(self):
        self.asked = 0

    def for_run(self):
        return TwoAsks()

    def validate(self, context):
        self.asked += 1
        return ResourceValidation.violation("asked too often") if self.asked > 2 else ResourceValidation.ok()


@virtual
async def test_a_constraint_keeps_its_state_for_each_run_and_each_child():
    shared = TwoAsks()
    inner = agent(say("inner"), say("inner"))
    outer = agent(call("ask", task="Go."), say("done"), tools=[inner.as_tool("ask", "Ask.")], constraints=[shared])
    result = await outer.run("Go.")
    assert result.cause.reason == "asked too often"
    assert shared.asked == 0
    assert result.children[0].outcome is LoopOutcome.DONE


@pytest.mark.parametrize("wrong", [lambda self: None, lambda self: 1 / 0], ids=["nothing", "crash"])
@virtual
async def test_for_run_that_makes_nothing_is_refused_before_the_first_call(wrong):
    kind = type("Odd", (TwoAsks,), {"for_run": wrong})
    with pytest.raises(ConfigurationError, match="for_run"):
        await agent(say("done"), constraints=[kind()]).run("Go.")


@virtual
async def test_a_context_is_a_copy_with_the_ids_of_the_run():
    seen = []
    one = agent(say("done"), constraints=[seen.append], conversation_id="c1")
    result = await one.run("Go.", session="s1", user="ann")
    context = seen[0]
    assert (context.run_id, context.session_id, context.conversation_id) == (result.run_id, "s1", "c1")
    assert context.user == "ann"
    assert context.remaining() == Remaining(iterations=6)
    assert not context.near_budget()
    assert not any(type(getattr(context, name)).__name__ == "Run" for name in context.__struct_fields__)
    with pytest.raises(AttributeError):
        context.iteration = 9
