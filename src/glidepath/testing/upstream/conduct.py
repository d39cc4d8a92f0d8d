"""How a scripted model behaves: what it says to a request, by the name of its behavior."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from glidepath._wire import Value, encode
from glidepath.testing.upstream.asked import AskedCall, OfferedTool
from glidepath.testing.upstream.spoken import Spoken, SpokenCall
from glidepath.testing.upstream.tool_use import (
    FINISHING,
    WAITING,
    call_tool,
    choose_tool,
    fill_schema,
    has_children_tool,
    start_child,
    submit_by_shell,
    wait_for_children,
)
from glidepath.values import pluralize

MARKER = "SCRIPTED-ANSWER"
"""What every final answer contains, so that a test can tell that it arrived."""
THOUGHT = "I think about the next step. "


class Conduct(Value):
    """A behavior with its options."""

    name: str
    calls: int = 3
    """honest: tool calls before the answer."""
    children: int = 3
    """spawn: sub-agents that each parent starts."""
    depth: int = 1
    """spawn: levels of sub-agents."""
    then: str = "loop"
    """spawn: what the parent does once its children are back, `loop` or `answer`."""
    child: str = "loop"
    """spawn: what the children do, `loop`, `same`, `honest` or `answer`."""
    tokens: int = 0
    """answer, honest: tokens of the answer; endless: tokens after which it stops, 0 never; loop: text beside a call."""
    thinking: int = 12
    """Hidden tokens of a reply whose request asks for reasoning."""
    is_stubborn: bool = False
    """Calls tools even when the request forbids it."""


def speak(conduct: Conduct, asked: AskedCall, tag: str = "") -> Spoken:
    """The reply to a request; `tag` names the run in the prompts of sub-agents."""
    spoken = _obey(conduct, asked, tag)
    if asked.thinks and conduct.thinking and not asked.choice.startswith("="):
        thought = THOUGHT * (conduct.thinking * 4 // len(THOUGHT) + 1)
        return Spoken(
            text=spoken.text,
            calls=spoken.calls,
            thinking=thought[: conduct.thinking * 4],
            stop=spoken.stop,
            endless=spoken.endless,
        )
    return spoken


def _obey(conduct: Conduct, asked: AskedCall, tag: str) -> Spoken:
    if asked.choice.startswith("="):
        forced = asked.find_tool(asked.choice[1:])
        if forced is not None:
            return _use(call_tool(forced, _answer_text(conduct, asked)))
    if asked.choice == "none" or not asked.tools:
        if conduct.is_stubborn and (asked.tools or asked.past):
            return _use(_call_against_orders(asked))
        if conduct.name == "endless":
            return _never_end(conduct, asked, tag)
        return _answer(conduct, asked)
    spoken = CONDUCTS[conduct.name](conduct, asked, tag)
    if asked.choice == "any" and not spoken.calls:
        tool = choose_tool(asked)
        return _use(call_tool(tool, f"step {_step(asked)}")) if tool else spoken
    return spoken


def _use(*calls: SpokenCall) -> Spoken:
    return Spoken(calls=calls, stop="calls")


def _step(asked: AskedCall) -> int:
    return len(asked.past) + 1


def _call_against_orders(asked: AskedCall) -> SpokenCall:
    tool = choose_tool(asked) or OfferedTool(name=asked.past[-1].name, parameters={})
    return call_tool(tool, f"step {_step(asked)}")


def _answer_text(conduct: Conduct, asked: AskedCall) -> str:
    text = f"{MARKER} after {pluralize(len(asked.past), 'tool call')}"
    return text.ljust(conduct.tokens * 4, ".")


def _answer(conduct: Conduct, asked: AskedCall, _tag: str = "") -> Spoken:
    """Say the final answer, by the tool that ends the run where the agent has one."""
    text = _answer_text(conduct, asked)
    if asked.choice != "none":
        finishing = next((tool for tool in asked.tools if FINISHING.match(tool.name)), None)
        if finishing is not None:
            return _use(call_tool(finishing, text))
        if asked.has_submit_line and (submitted := submit_by_shell(asked, text)):
            return _use(submitted)
    if asked.schema is not None:
        return Spoken(text=encode(fill_schema(asked.schema, text, number=0)).decode())
    return Spoken(text=text)


def _loop(conduct: Conduct, asked: AskedCall, _tag: str) -> Spoken:
    tool = choose_tool(asked)
    if tool is None:
        return _answer(conduct, asked)
    calls = (call_tool(tool, f"step {_step(asked)}"),)
    text = f"Step {_step(asked)}. ".ljust(conduct.tokens * 4, ".") if conduct.tokens else ""
    return Spoken(text=text, calls=calls, stop="calls")


def _repeat(conduct: Conduct, asked: AskedCall, _tag: str) -> Spoken:
    tool = choose_tool(asked)
    return _use(call_tool(tool, "step 1")) if tool else _answer(conduct, asked)


def _work(conduct: Conduct, asked: AskedCall, tag: str) -> Spoken:
    """Honest work: a few tool calls, then the answer."""
    return _loop(conduct, asked, tag) if len(asked.past) < conduct.calls else _answer(conduct, asked)


def _spawn(conduct: Conduct, asked: AskedCall, tag: str) -> Spoken:
    own = asked.child
    level = own.count(".") + 1 if own else 0
    tool = has_children_tool(asked)
    started = [past for past in asked.past if tool is not None and past.name == tool.name]
    if tool is not None and level < conduct.depth and len(started) < conduct.children:
        wanted = range(len(started) + 1, conduct.children + 1)
        numbers = [f"{own}.{number}" if own else str(number) for number in wanted]
        calls = [start_child(tool, number, tag) for number in numbers]
        return _use(*(calls if asked.is_parallel else calls[:1]))
    if own:
        return CONDUCTS[conduct.child](conduct, asked, tag)
    has_waited = any(past.name in WAITING for past in asked.past)
    if started and not has_waited and (waiting := wait_for_children(asked)):
        return _use(waiting)
    return CONDUCTS[conduct.then](conduct, asked, tag)


def _never_end(conduct: Conduct, asked: AskedCall, _tag: str) -> Spoken:
    return Spoken(text=f"{MARKER} without an end. Step {_step(asked)}: ", endless=conduct.tokens or -1)


Speaker: TypeAlias = Callable[[Conduct, AskedCall, str], Spoken]
CONDUCTS: Mapping[str, Speaker] = {
    "loop": _loop,
    "same": _repeat,
    "spawn": _spawn,
    "endless": _never_end,
    "honest": _work,
    "answer": _answer,
}
