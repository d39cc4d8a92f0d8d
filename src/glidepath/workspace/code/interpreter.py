"""One step of a program: from the results of its calls to the next calls it asks for, or to its end.

The interpreter is Monty, in its own process. Between two steps a program is nothing but a snapshot, so that a step
after a crash is the same as any other. Nothing of the outside is reachable from it: no files, no environment, no
network, no clock but the time it began, no chance but its seed.
"""

from __future__ import annotations

import base64
import datetime as dt
import math
import os
import re
import signal
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

from glidepath import _wire
from glidepath._wire import Record, Value
from glidepath.values import ConfigurationError, install_line

MOST_ROUND_TRIPS = 1000  # times a step may come back to us without a call: unknown names, sleeps, files
MOST_PRINTED = 1 << 20  # bytes of one step
GRACE = 1.0  # seconds past its time until the interpreter is killed
_AWAITS = re.compile(r"\bawait\b")


class Progress(Value, frozen=True, kw_only=True):
    """How far a program is: what is kept of it between two steps."""

    snapshot: str = ""
    """Of the interpreter, packed; empty before the first step."""
    printed: str = ""
    lost: int = 0
    """Characters it printed that were not kept."""
    calls: int = 0
    kept: int = 0
    """Bytes of snapshots so far."""
    asked: tuple[int, ...] = ()
    """The interpreter's numbers of the calls it waits for; empty when it waits for one."""
    later: Mapping[str, tuple[str, dict[str, Any]]] = {}
    """Calls that it has begun and does not wait for yet, by number."""


class Answer(Record):
    """What a call gave: a value, or an error by the name of its class."""

    value: Any = None
    error: str | None = None
    text: str = ""

    def as_interpreter_result(self) -> dict[str, Any]:
        """As the interpreter takes it."""
        if self.error is None:
            return {"return_value": self.value}
        return {"exc_type": self.error, "message": self.text}


class Suspended(Record):
    """It waits for these calls."""

    calls: list[tuple[str, dict[str, Any]]]
    snapshot: bytes
    asked: tuple[int, ...]
    later: dict[str, tuple[str, dict[str, Any]]]


class Ended(Record):
    """It has ended: with a value, or for this reason."""

    value: Any = None
    kind: str | None = None
    text: str = ""


def check_installed() -> None:
    """Raise `ConfigurationError` when the interpreter's package is missing; it is not imported yet."""
    if find_spec("pydantic_monty") is None:
        raise ConfigurationError(f"code mode needs pydantic-monty: {install_line('code')}")


def load_monty() -> Any:
    """The interpreter's package; raises `ConfigurationError` when it is not installed."""
    check_installed()
    import pydantic_monty

    return pydantic_monty


class Interpreter:
    """A process that runs programs, one step at a time. Used in one thread at a time; `kill` may come from another."""

    def __init__(self) -> None:
        self._monty = load_monty()
        self._pool: Any = None
        self._pid: int | None = None
        self.printed = ""

    def open(self) -> None:
        """Start the process."""
        if self._pool is None:
            pool = self._monty.Monty(
                min_processes=1,
                max_processes=1,
                feed_duration_limit_grace=GRACE,
                turn_duration_limit_grace=GRACE,
                checkout_timeout=30.0,
            )
            pool.__enter__()
            self._pool = pool

    def close(self) -> None:
        """End the process."""
        pool, self._pool = self._pool, None
        if pool is not None:
            with suppress(Exception):
                pool.__exit__(None, None, None)

    def kill(self) -> None:
        """Stop whatever it is doing, at once."""
        pid = self._pid
        if pid is not None:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)

    def step(
        self,
        source: str,
        progress: Progress,
        answers: Sequence[Answer],
        tools: Mapping[str, Sequence[str]],
        *,
        calls: int,
        seconds: float,
        memory: int,
        clock: float,
        seed: str,
    ) -> Suspended | Ended:
        """Continue until it asks for calls or ends.

        `tools` are the names it may call, with their parameters, and `calls` is how many calls it may begin.
        """
        monty = self._monty
        self.open()
        printed = monty.CollectString(max_bytes=MOST_PRINTED)
        instant = dt.datetime.fromtimestamp(clock, dt.UTC)
        try:
            with self._pool.checkout(
                script_name="program.py",
                limits={
                    "max_feed_duration_secs": seconds,
                    "max_memory": memory,
                    "max_recursion_depth": 400,
                    "max_suspensions": MOST_ROUND_TRIPS + calls,
                },
                os_policy={"datetime": instant, "sleep": "call_host", "random_start": {"seed": seed}},
            ) as session:
                self._pid = session.worker_pid() if callable(session.worker_pid) else session.worker_pid
                if not progress.snapshot:
                    paused = session.feed_start(source, print_callback=printed)
                else:
                    paused = session.load_snapshot(unpack_snapshot(progress.snapshot), print_callback=printed)
                    paused = self._give_results(paused, progress.asked, answers)
                return self._drive(paused, _AWAITS.search(source) is not None, dict(progress.later), tools, calls)
        except monty.MontySyntaxError as error:
            return Ended(kind="program_syntax", text=error.display())
        except monty.MontyRuntimeError as error:
            return _explain_failure(error, "".join(printed.output))
        except monty.MontyCrashedError as error:
            return Ended(kind="program_crashed", text=f"the interpreter died: {error}")
        except monty.MontyError as error:
            return Ended(kind="program_error", text=str(error))
        finally:
            self._pid = None
            self.printed = printed.output

    def _give_results(self, paused: Any, asked: Sequence[int], answers: Sequence[Answer]) -> Any:
        """Give it the results of the calls it waited for."""
        if not asked:
            return paused.resume(answers[0].as_interpreter_result())
        return paused.resume({number: one.as_interpreter_result() for number, one in zip(asked, answers, strict=True)})

    def _drive(
        self,
        paused: Any,
        awaits: bool,
        later: dict[str, tuple[str, dict[str, Any]]],
        tools: Mapping[str, Sequence[str]],
        most: int,
    ) -> Suspended | Ended:
        monty = self._monty
        while True:
            if isinstance(paused, monty.MontyComplete):
                return Ended(value=paused.output)
            if isinstance(paused, monty.FutureSnapshot):
                numbers = tuple(sorted(paused.pending_call_ids))
                calls = [later.pop(str(number)) for number in numbers]
                return Suspended(calls, paused.dump(), numbers, later)
            if isinstance(paused, monty.NameLookupSnapshot):
                name, known = paused.variable_name, paused.object_id is None and paused.variable_name in tools
                paused = paused.resume(value=_make_stand_in(name)) if known else paused.resume()
                continue
            name = paused.function_name
            if paused.is_os_function:
                paused = _refuse_outside_access(paused)
            elif name not in tools:
                what = f"name {name!r} is not defined: there is no such tool"
                paused = paused.resume({"exc_type": "NameError", "message": what})
            else:
                try:
                    arguments = bind_arguments(name, paused.args, paused.kwargs, tools[name])
                except TypeError as error:
                    paused = paused.resume({"exc_type": "TypeError", "message": str(error)})
                    continue
                if len(later) >= most:
                    return Ended(kind="program_calls")
                if paused.allow_eager_await or awaits:
                    later[str(paused.call_id)] = (name, arguments)
                    paused = paused.resume({"future": ...})
                else:
                    return Suspended([(name, arguments)], paused.dump(), (), later)


def _make_stand_in(name: str) -> Any:
    """A function of this name whose calls come back to us."""

    def stand_in() -> None:
        """Never called here."""

    stand_in.__name__ = name
    return stand_in


def _refuse_outside_access(paused: Any) -> Any:
    """It asks for something from the system, which is not available."""
    name = str(paused.function_name)
    if "sleep" in name:
        return paused.resume({"exc_type": "RuntimeError", "message": "a program cannot wait: end it and report that"})
    return paused.resume_not_handled()


def _explain_failure(error: Any, printed: str) -> Ended:
    """Why a program failed, by the limit that it ran into."""
    inner = error.exception()
    text = str(error)
    if isinstance(inner, TimeoutError) and "time limit exceeded" in text:
        return Ended(kind="program_timeout", text=f"the program took too long: {text}")
    if isinstance(inner, MemoryError):
        if len(printed.encode()) > MOST_PRINTED // 2:
            return Ended(kind="program_output", text=f"the program printed more than {MOST_PRINTED} bytes")
        return Ended(kind="program_memory", text=f"the program used too much memory: {text}")
    if isinstance(inner, RuntimeError) and "suspension limit" in text:
        return Ended(kind="program_timeout", text="the program kept asking for names that do not exist")
    return Ended(kind="program_error", text=error.display())


def bind_arguments(
    name: str, args: Sequence[Any], kwargs: Mapping[Any, Any], parameters: Sequence[str]
) -> dict[str, Any]:
    """The arguments of a call by name, as plain data; raises `TypeError` as Python would."""
    if len(args) > len(parameters):
        raise TypeError(f"{name}() takes {len(parameters)} positional arguments but {len(args)} were given")
    found = dict(zip(parameters, args, strict=False))
    for key, value in kwargs.items():
        if key in found:
            raise TypeError(f"{name}() got multiple values for argument {key!r}")
        found[str(key)] = value
    try:
        return {key: to_json_data(value) for key, value in found.items()}
    except RecursionError:
        raise TypeError(f"{name}(): an argument is nested too deeply") from None


def to_json_data(value: object) -> Any:
    """The value as JSON data; raises `TypeError`."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise TypeError(f"{value} cannot be passed to a tool")
        return value
    if isinstance(value, list | tuple | set | frozenset):
        return [to_json_data(one) for one in value]
    if isinstance(value, dict):
        return {
            one if isinstance(one, str) else str(to_json_data(one)): to_json_data(two) for one, two in value.items()
        }
    if isinstance(value, dt.datetime | dt.date):
        return value.isoformat()
    raise TypeError(f"a {type(value).__name__} cannot be passed to a tool: pass text, numbers, lists or dicts")


def pack_snapshot(snapshot: bytes) -> str:
    """A snapshot as text for the journal."""
    return base64.b85encode(zlib.compress(snapshot, 6)).decode()


def unpack_snapshot(text: str) -> bytes:
    """The snapshot."""
    return zlib.decompress(base64.b85decode(text))


def write_progress(progress: Progress) -> str:
    """As the journal keeps it."""
    return _wire.encode(progress).decode()


def read(state: str) -> Progress:
    """What `write_progress` wrote; the beginning, for an empty text."""
    return _wire.decode(state.encode(), Progress) if state else Progress()
