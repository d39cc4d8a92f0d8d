"""The tool `run_code`: what the model is told, what a program may use, and what comes back."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from glidepath import _wire
from glidepath.run import run_uninterrupted
from glidepath.tools import NeedsCalls, ThreadWorker, Tool, ToolContext, ToolResult, tool, trim
from glidepath.tools.results import NO_OUTPUT
from glidepath.values import ConfigurationError, ToolError, ToolResultMessage, pluralize
from glidepath.workspace.code.interpreter import (
    Answer,
    Ended,
    Interpreter,
    Progress,
    check_installed,
    pack_snapshot,
    read,
    to_json_data,
    write_progress,
)

__all__ = ["CodeMode"]

MOST_SOURCE = 100_000  # characters of a program
MOST_STATE = 4 << 20  # bytes of one snapshot, packed
MOST_STATES = 64 << 20  # bytes of all snapshots of one program, which are in the journal
LEAST_SECONDS = 0.05
_PERMISSION = frozenset({"blocked", "denied", "withdrawn", "hidden_tool", "policy_failed"})
_TYPES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "array": "list", "object": "dict"}

DESCRIPTION = """Run a Python program that calls your tools. Use it when several calls depend on each other, or when \
only a part of what they return matters: only what the program prints and the value of its \
last expression reach you.
Every tool is a function of the same name, with the tool's parameters as keyword arguments: `page = fetch(url="...")`. \
It returns what the tool returns (JSON as dicts and lists, anything else as text) and raises an exception when the \
call fails. To make calls at the same time, `import asyncio` and `await asyncio.gather(...)` them; in a program that \
uses await, await every call.
The language is a subset of Python: functions, classes, comprehensions, f-strings, json, re, math, datetime, asyncio. \
No files, no network, no other packages, no sleeping; only tools reach the outside."""


class CodeMode(Tool):
    """Gives an agent the tool `run_code`, in which the model writes a program that calls the agent's tools.

    `Agent(tools=[search, fetch, CodeMode()])`. With `tools=[...]` those are for programs only: the model is not shown
    their schemas, but a line for each in the description of `run_code`. Every call in a program is an ordinary call of
    the run. `seconds` of computing, `memory` in bytes and `max_calls` bound one program, within what is left of the
    run; `max_output` is how many characters of its output the model reads.
    """

    def __init__(
        self,
        tools: Sequence[Tool | Callable[..., Any]] = (),
        *,
        name: str = "run_code",
        max_calls: int = 200,
        seconds: float = 30.0,
        memory: int = 64 << 20,
        max_output: int = 20_000,
        requires_approval: bool = False,
    ) -> None:
        check_installed()
        hands = tuple(one if isinstance(one, Tool) else tool(one) for one in _check_tools(tools))
        for field, value, least in (
            ("max_calls", max_calls, 1),
            ("memory", memory, 1 << 20),
            ("max_output", max_output, 1),
        ):
            if type(value) is not int or value < least:
                wanted = f"a whole number of at least {least}"
                raise ConfigurationError(f"CodeMode.{field} must be {wanted}, not {value!r:.80}")
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < 1e6:  # noqa: PLR2004
            raise ConfigurationError(f"CodeMode.seconds must be a number above 0, not {seconds!r:.80}")
        super().__init__(
            name=name,
            description=DESCRIPTION + _write_stubs(hands),
            parameters={
                "type": "object",
                "properties": {"code": {"type": "string", "description": "The program."}},
                "required": ["code"],
            },
            fn=_never_called,
            idempotent=True,  # what its calls have done is known, and they are not made again
            max_result_chars=max_output,
            requires_approval=requires_approval,
        )
        self.__dict__.update(
            makes_calls=True,
            hands=hands,
            isolation="task",
            wants_context=True,
            plain=False,
            _run=self._step,
            limits=(max_calls, float(seconds), memory, max_output),
        )

    limits: tuple[int, float, int, int]

    async def _step(self, values: dict[str, Any], context: ToolContext | None) -> ToolResult:
        """One step of a program; it begins with none, so that every step is made the same way."""
        source = str(values["code"])
        made = None if context is None else context.calls_made
        if made is None or context is None:
            if len(source) > MOST_SOURCE:
                raise ToolError(f"the program is longer than {MOST_SOURCE} characters")
            raise NeedsCalls
        max_calls, seconds, memory, max_output = self.limits
        left = context.remaining().seconds
        progress = read(made.state)
        names = _names(made.tools)
        session = made.session
        if not isinstance(session, _Session):
            session = made.session = _Session()
        outcome = await session.run_step(
            source,
            progress,
            [_answer(one, made.tools.get(one.tool_name)) for one in made.results],
            {name: _parameters(one) for name, one in names.items()},
            calls=max_calls - progress.calls,
            seconds=max(LEAST_SECONDS, seconds if left is None else min(seconds, left)),
            memory=memory,
            clock=made.clock,
            seed=made.seed,
        )
        whole = progress.printed + session.printed
        printed, lost = whole[:max_output], progress.lost + max(0, len(whole) - max_output)
        if isinstance(outcome, Ended):
            if outcome.kind == "program_calls":
                outcome.text = f"the program asked for more than {pluralize(max_calls, 'call')}, the most it may make"
            return _make_result(outcome, printed, lost, progress.calls)
        count = progress.calls + len(outcome.calls)
        snapshot = pack_snapshot(outcome.snapshot)
        kept = progress.kept + len(snapshot)
        if len(snapshot) > MOST_STATE or kept > MOST_STATES:
            why = f"the program holds too much data across its calls ({len(snapshot)} bytes packed): keep less of it"
            return _make_result(Ended(kind="program_memory", text=why), printed, lost, progress.calls)
        state = Progress(
            snapshot=snapshot,
            printed=printed,
            lost=lost,
            calls=count,
            kept=kept,
            asked=outcome.asked,
            later=outcome.later,
        )
        calls = [(names[name].name, arguments) for name, arguments in outcome.calls]
        raise NeedsCalls(calls, state=write_progress(state), notes=printed)


class _Session:
    """The interpreter's process, from one step of a program to the next."""

    def __init__(self) -> None:
        self._interpreter = Interpreter()
        self._worker: ThreadWorker | None = None

    @property
    def printed(self) -> str:
        return self._interpreter.printed

    async def run_step(self, *args: Any, **keywords: Any) -> Any:
        """One step on a thread. When it is cancelled the process is killed, which ends the thread."""
        worker = ThreadWorker(lambda: self._interpreter.step(*args, **keywords), "glidepath-program")
        worker.start()
        try:
            await worker.wait_finished()
        except BaseException:
            self._interpreter.kill()
            await run_uninterrupted(worker.wait_finished())  # its outcome is dropped
            raise
        return worker.outcome()

    async def close(self) -> None:
        """End the process."""
        worker = ThreadWorker(self._interpreter.close, "glidepath-program-end")
        worker.start()
        await run_uninterrupted(worker.wait_finished())  # its outcome is dropped


async def _never_called(**_: object) -> None:
    """Never called: a step is."""


def _check_tools(tools: object) -> Sequence[Any]:
    if isinstance(tools, str | bytes | Mapping) or not isinstance(tools, Sequence):
        raise ConfigurationError(f"CodeMode(tools=...) takes a list of tools, not {tools!r:.80}")
    for one in tools:
        if not isinstance(one, Tool) and (not callable(one) or isinstance(one, type)):
            raise ConfigurationError(f"CodeMode(tools=...) takes tools and functions, not {one!r:.80}")
    return tools


# --- tools as functions -----------------------------------------------------------------------------------------


def make_identifier(name: str) -> str:
    """The name of a tool as Python can write it."""
    found = re.sub(r"\W", "_", name)
    return f"_{found}" if found[:1].isdigit() else found


def _names(tools: Mapping[str, Tool]) -> dict[str, Tool]:
    found: dict[str, Tool] = {}
    for name, one in tools.items():
        found.setdefault(make_identifier(name), one)
    return found


def _parameters(one: Tool) -> list[str]:
    return list(one.parameters.get("properties", {}))


def _write_stubs(hands: Sequence[Tool]) -> str:
    """A line of Python for each tool that only programs have."""
    if not hands:
        return ""
    lines = ["", "", "Only programs have these:"]
    for hand in hands:
        properties: Mapping[str, Any] = hand.parameters.get("properties", {})
        required = hand.parameters.get("required", ())
        words = [
            f"{key}: {_type(schema)}" + ("" if key in required else f" = {_default(schema)}")
            for key, schema in properties.items()
        ]
        said = " ".join(hand.description.split())
        lines.append(f"def {make_identifier(hand.name)}({', '.join(words)})  # {trim(said, 200)}")
    return "\n".join(lines)


def _type(schema: object) -> str:
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    return _TYPES.get(kind, "Any") if isinstance(kind, str) else "Any"


def _default(schema: object) -> str:
    return repr(schema["default"]) if isinstance(schema, Mapping) and "default" in schema else "None"


def _answer(result: ToolResultMessage, one: Tool | None) -> Answer:
    """What the program gets for a result."""
    text = result.text
    if not result.is_error:
        return Answer(value=_value(text, one))
    kind = result.kind or "error"
    if kind == "invalid_arguments":
        error = "TypeError"
    elif kind == "unknown_tool":
        error = "NameError"
    else:
        error = "PermissionError" if kind in _PERMISSION else "RuntimeError"
    return Answer(error=error, text=f"{result.tool_name}: {text}" if kind != "landing" else f"Landing: {text}")


def _value(text: str, one: Tool | None) -> Any:
    """The value that a tool returned: its JSON, unless it returns text."""
    if one is not None and _returns_text(one):
        return text
    if text == NO_OUTPUT:
        return None
    if text[:1] in '{["-0123456789tfn':
        try:
            return _wire.loads(text.encode())
        except Exception:
            return text
    return text


def _returns_text(one: Tool) -> bool:
    try:
        found = inspect.signature(one.fn).return_annotation
    except (TypeError, ValueError):
        return False
    return found is str or found == "str"


# --- the end ----------------------------------------------------------------------------------------------------


def _make_result(outcome: Ended, printed: str, lost: int, calls: int) -> ToolResult:
    """What the model reads of a program that has ended."""
    parts = [printed.rstrip("\n")] if printed.strip() else []
    if lost:
        parts.append(f"[not shown: {pluralize(lost, 'more character')} that the program printed]")
    if outcome.kind is not None:
        parts.append(outcome.text)
    elif outcome.value is not None:
        parts.append(_format_value(outcome.value))
    text = "\n".join(parts) or NO_OUTPUT
    details = {"calls": calls}
    return ToolResult(text, is_error=outcome.kind is not None, kind=outcome.kind, details=details)


def _format_value(value: object) -> str:
    """The value of the last expression: text as it is, data as JSON, else as Python shows it."""
    if isinstance(value, str):
        return value
    try:
        return _wire.encode(to_json_data(value)).decode()
    except (TypeError, RecursionError, ValueError):
        return repr(value)
