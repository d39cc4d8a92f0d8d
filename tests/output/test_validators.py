"""Output validators: they see a value with the run's deps, change it, or ask again; what breaks lets nothing pass."""

import asyncio
from dataclasses import dataclass

import pytest

from glidepath import Agent, ConfigurationError, Limits, LoopOutcome
from glidepath.errors import AskAgain
from glidepath.events import GuardTripped, HookFailed
from glidepath.sessions import MemoryStore
from glidepath.spi import OutputContext
from glidepath.testing import EventRecorder, ScriptedModel, virtual

LIMITS = Limits(max_iterations=8)


@dataclass
class Order:
    item: str
    count: int


GOOD, BAD = '{"item": "tea", "count": 2}', '{"item": "gold", "count": 2}'


def in_stock(context: OutputContext[dict[str, int]]) -> None:
    if context.output.item not in context.deps:
        raise AskAgain(f"{context.output.item} is not in stock")


def fly(*script, validators=(in_stock,), deps=None, **settings):
    model, events = ScriptedModel(script), EventRecorder()
    agent = Agent(
        model=model, output_type=Order, output_validators=validators, limits=LIMITS, event_sink=events, **settings
    )
    return agent.run_sync("order", deps=deps or {"tea": 3}), model, events


def test_a_validator_asks_again_with_its_own_words_and_the_deps_of_the_run():
    result, model, events = fly(BAD, GOOD)
    assert result.output == Order("tea", 2)
    assert "gold is not in stock" in model.requests[1].messages[-1].text
    assert [one.action for one in events.of(GuardTripped)] == ["recover"]


def test_a_validator_that_never_accepts_ends_the_run_and_says_why():
    result, model, _ = fly(*[BAD] * 4, output_retries=3)
    assert (result.outcome, result.cause.source, len(model.requests)) == (LoopOutcome.FAILED, "output_type", 4)
    assert "gold is not in stock" in result.cause.reason


def test_validators_are_asked_in_order_each_about_what_the_one_before_left():
    async def double(context):
        await asyncio.sleep(0)
        return Order(context.output.item, context.output.count * 2)

    def more(context):
        return Order(context.output.item, context.output.count + 1)

    result, _, _ = fly(GOOD, validators=[double, in_stock, more])
    assert result.unwrap() == Order("tea", 5)


def test_an_answer_is_shown_to_a_validator_once():
    seen = []
    fly(GOOD, validators=[lambda context: seen.append(context.text)])
    assert seen == [GOOD]


def crash(context):
    raise KeyError("nope")


async def hang(context):
    await asyncio.Event().wait()


@pytest.mark.parametrize(("validator", "said"), [(crash, "KeyError"), (hang, "no answer within")])
@virtual
async def test_a_validator_that_breaks_lets_nothing_pass(validator, said):
    seen, events = [], EventRecorder()
    model = ScriptedModel([GOOD])
    agent = Agent(
        model=model,
        output_type=Order,
        output_validators=[lambda context: seen.append(1), validator],
        limits=LIMITS,
        event_sink=events,
    )
    result = await agent.run("order")
    assert (result.outcome, result.output, result.ok) == (LoopOutcome.FAILED, None, False)
    assert said in result.cause.reason
    assert seen == [1]
    assert [one.hook for one in events.of(HookFailed)] == ["output_validators"]


def test_a_landing_answer_is_shown_to_them_too():
    result = Agent(
        model=ScriptedModel([BAD]), output_type=Order, output_validators=[in_stock], limits=Limits(max_iterations=1)
    ).run_sync("order", deps={"tea": 1})
    assert not result.ok


@virtual
async def test_how_often_it_was_asked_survives_a_pause_of_the_process():
    store = MemoryStore()
    settings = {"output_type": Order, "output_validators": [in_stock], "output_retries": 1, "limits": LIMITS}
    first = Agent(model=ScriptedModel([BAD, BAD]), store=store, **settings)
    result = await first.run("order", session="s", deps={"tea": 1})
    assert result.outcome is LoopOutcome.FAILED


@pytest.mark.parametrize("wrong", [["x"], [Order], 7, "in_stock"])
def test_what_is_no_function_is_refused_by_name(wrong):
    with pytest.raises(ConfigurationError, match="output_validators"):
        Agent(model=ScriptedModel(), output_type=Order, output_validators=wrong, limits=LIMITS)
