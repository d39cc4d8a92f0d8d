"""Whatever a plugin, policy or constraint gives to be read through has an end for us, in items and in time."""

from collections.abc import Mapping, Sequence, Set as AbstractSet
from itertools import count, repeat

import pytest

from glidepath import (
    Agent,
    ConfigurationError,
    Limits,
    LoopOutcome,
    Plugin,
    ProtocolPolicy,
    ResourceAction,
    ResourceConstraint,
    ResourceValidation,
    tool,
)
from glidepath.events import HookFailed
from glidepath.kernel.constraint_checks import MOST_FIGURES
from glidepath.kernel.polling import MOST_MESSAGES
from glidepath.messages import UserMessage
from glidepath.plugins import ToolListGate
from glidepath.run import hooks
from glidepath.spi import Replace
from glidepath.testing import EventRecorder, ScriptedModel, call, say, virtual


@tool
async def act(n: int = 0) -> str:
    """Act."""
    return f"done {n}"


async def fly(*turns, **settings):
    recorder = EventRecorder()
    settings = {"limits": Limits(max_iterations=4), "tools": [act], **settings}
    agent = Agent(model=ScriptedModel(turns or [say("one"), say("two")]), event_sink=recorder, **settings)
    return await agent.run("go"), recorder.of(HookFailed)


class EndlessSet(AbstractSet):
    def __contains__(self, name):
        return True

    def __iter__(self):
        return (f"tool {number}" for number in count())

    def __len__(self):
        return 1


class EndlessSequence(Sequence):
    def __getitem__(self, place):
        return UserMessage("again")

    def __len__(self):
        return 1


class EndlessMapping(Mapping):
    def __getitem__(self, name):
        return 1

    def __iter__(self):
        return (f"name {number}" for number in count())

    def __len__(self):
        return 1


def plugin(hook, answer):
    kind = type("Endless", (Plugin,), {hook: lambda self, context: self.answer()})
    made = kind()
    given = [answer]
    made.answer = lambda: given.pop()() if given else None
    return made


@pytest.mark.parametrize("hook", ["steering", "follow_up"])
@virtual
async def test_g7_messages_without_end_are_stopped_and_the_first_ten_thousand_are_used(hook):
    result, failures = await fly(plugins=[plugin(hook, lambda: repeat("more"))])
    assert result.outcome is LoopOutcome.DONE
    assert [message.text for message in result.messages].count("more") == MOST_MESSAGES
    assert [failure.hook for failure in failures] == [hook]
    assert f"more than {MOST_MESSAGES} items" in failures[0].error
    assert failures[0].effect == f"kept {MOST_MESSAGES} messages"


@virtual
async def test_as_many_messages_as_may_be_are_no_failure():
    result, failures = await fly(plugins=[plugin("steering", lambda: ["more"] * MOST_MESSAGES)])
    assert (len([m for m in result.messages if m.text == "more"]), failures) == (MOST_MESSAGES, [])


@virtual
async def test_messages_before_an_iterator_breaks_are_kept():
    def breaking():
        yield "first"
        raise OSError("gone")

    result, failures = await fly(plugins=[plugin("steering", breaking)])
    assert "first" in [message.text for message in result.messages]
    assert (failures[0].error, failures[0].effect) == ("OSError: gone", "kept 1 message")


@virtual
async def test_g7_an_iterator_that_is_slow_and_endless_is_stopped_by_the_clock(monkeypatch):
    passed = count(0, 0.01)
    monkeypatch.setattr(hooks.time, "monotonic", lambda: next(passed))
    monkeypatch.setattr("glidepath.kernel.polling.MOST_MESSAGES", 10**9)
    _, failures = await fly(plugins=[plugin("steering", lambda: repeat(None))], hook_timeout=1)
    assert "still giving items after 1 s" in failures[-1].error


@virtual
async def test_g9_a_gate_that_names_tools_without_end_allows_none():
    result, failures = await fly(call("act", n=1), say("done"), plugins=[plugin("tool_gate", EndlessSet)])
    assert "done 1" not in [message.text for message in result.messages]
    assert ("tool_gate", "no tool is allowed") in [(failure.hook, failure.effect) for failure in failures]


@virtual
async def test_g7_a_view_without_end_is_skipped(monkeypatch):
    monkeypatch.setattr("glidepath.kernel.model_call.view.MOST_SHOWN", 10_000)
    result, failures = await fly(say("answer"), plugins=[plugin("context_transform", EndlessSequence)])
    assert (result.text, [failure.effect for failure in failures]) == ("answer", ["skipped"])


@virtual
async def test_g9_arguments_without_end_block_the_call():
    hostile = plugin("before_tool_call", lambda: Replace(EndlessMapping()))
    result, failures = await fly(call("act", n=1), say("answer"), plugins=[hostile])
    assert "Blocked" in result.messages[2].text
    assert "more than 10000 names" in failures[0].error


@virtual
async def test_g9_a_policy_that_returns_calls_without_end_lets_none_run():
    class Policy(ProtocolPolicy):
        def normalize_tool_calls(self, calls, tool_names):
            return repeat(calls[0])

    result, failures = await fly(call("act", n=1), say("answer"), protocol_policy=Policy())
    assert "Not executed" in result.messages[2].text
    assert failures[0].hook == "normalize_tool_calls"


@virtual
async def test_g7_metrics_without_end_are_cut():
    class Endless(ResourceConstraint):
        async def validate(self, context):
            return ResourceValidation(violated=True, reason="too much", metrics=EndlessMapping())

        def on_violation(self, validation):
            return ResourceAction.WARN_CONTINUE

    result, _ = await fly(say("answer"), constraints=[Endless()])
    assert result.outcome is LoopOutcome.DONE
    assert {len(record.validation.metrics) for record in result.validations if record.validation.violated} == {
        MOST_FIGURES
    }


@pytest.mark.parametrize("field", ["tools", "constraints", "plugins", "fallback_models"])
def test_a_setting_without_end_is_refused(field):
    with pytest.raises(ConfigurationError, match=f"{field} has more than"):
        Agent(model=ScriptedModel([]), limits=Limits(max_iterations=1), **{field: count()})


def test_a_gate_of_names_without_end_is_refused():
    with pytest.raises(ConfigurationError, match=r"ToolListGate\.allow has more than"):
        ToolListGate(allow=repeat("act"))
