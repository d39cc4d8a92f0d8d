"""Functions that give the notice and the grace, and do anything but that; and texts that are not quite str."""

import asyncio

import pytest

from glidepath import Agent, Limits, LoopOutcome, Plugin, deny, tool
from glidepath.guards import DEFAULT_NOTICE
from glidepath.sessions import MemoryStore, read_journal
from glidepath.testing import ScriptedModel, call, say, virtual


class Text(str):
    """As a template engine returns it."""

    __slots__ = ()


@tool
async def act(n: int = 0) -> str:
    return Text("done")


def raising(error):
    def provider():
        raise error

    return provider


def working():
    return ScriptedModel().forever(
        lambda request: call("act", n=len(request.messages)) if request.tools else say("landed")
    )


async def flown(**config):
    """The result of a run at its turn limit, which its journal has as it is."""
    store = MemoryStore()
    agent = Agent(
        model=working(), tools=[act], limits=Limits(max_iterations=6, max_tokens=60_000), store=store, **config
    )
    result = await agent.run(Text("go"))
    assert (await read_journal(store, result.session_id)).folded.result == result
    return result


WRONG = {
    "SystemExit": raising(SystemExit(1)),
    "CancelledError": raising(asyncio.CancelledError()),
    "GeneratorExit": raising(GeneratorExit()),
    "StopIteration": raising(StopIteration(3)),
    "None": lambda: None,
    "bytes": lambda: b"stop",
    "blank": lambda: " \n",
    "NUL": lambda: "a\0b",
    "surrogate": lambda: "\ud800",
    "huge": lambda: "x" * 3_000_000,
    "an argument": lambda argument: argument,
}


@pytest.mark.parametrize("kind", WRONG)
@virtual
async def test_whatever_a_provider_does_the_notice_comes_at_its_time_in_our_words(kind):
    for field in ("message", "grace"):
        result = await flown(**{f"graceful_turn_limit_{field}_provider": WRONG[kind]})
        assert (result.outcome, result.text, result.cause.source) == (
            LoopOutcome.WRAPPED_UP,
            "landed",
            "GracefulTurnLimit",
        )
        assert DEFAULT_NOTICE in [message.text for message in result.messages]


@pytest.mark.parametrize("field", ["message", "grace"])
@virtual
async def test_a_keyboard_interrupt_in_a_provider_cancels_the_run(field):
    result = await flown(**{f"graceful_turn_limit_{field}_provider": raising(KeyboardInterrupt())})
    assert result.outcome is LoopOutcome.CANCELLED


@virtual
async def test_texts_of_a_subclass_of_str_are_taken_for_what_they_say_and_can_be_written():
    class Adds(Plugin):
        def steering(self, context):
            return Text("mind the time") if not context.iteration else None

    result = await flown(
        graceful_turn_limit_message_provider=lambda: Text("stop now"),
        system_prompt=Text("You work."),
        agent_name=Text("worker"),
        conversation_id=Text("c"),
        plugins=[Adds()],
    )
    texts = [message.text for message in result.messages]
    assert {"go", "mind the time", "stop now"} <= set(texts)
    assert {type(text) for text in texts} == {str}
    assert type(deny(Text("no")).text) is str
