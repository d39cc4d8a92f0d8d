"""Asking a hook: plain or async, within its time, and never trusted."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from glidepath._wire import Record
from glidepath.run.error_log import log_error
from glidepath.run.interrupting import await_interruptibly_within
from glidepath.run.interrupts import Stopped, Why
from glidepath.run.nested import ASKED, CallScope, recall
from glidepath.spi import INSIDE
from glidepath.values import GlidepathError, HookFailed, Message, describe_error

if TYPE_CHECKING:
    from glidepath.run.state import Run

_enter = INSIDE.set
CHUNK = 64  # items of a foreign iterable between two looks at the clock


class HookFault(GlidepathError):  # noqa: N818 - it never leaves the run
    """A hook crashed, hung or answered nonsense; the caller decides what that means. `raised`: its own error."""

    raised: BaseException | None = None


class ToRead(Sequence[Message]):
    """Messages of a run, for a hook: nothing is copied, and nothing a hook does to it changes the run.

    A slice of it is a list of the hook's own.
    """

    __slots__ = ("_messages",)

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages

    def __getitem__(self, place: Any) -> Any:
        return self._messages[place]

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[Message]:
        return iter(self._messages)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self._messages) == list(other)

    __hash__ = None  # type: ignore[assignment] # as a list

    def __repr__(self) -> str:
        return repr(self._messages)


def to_read(run: Run, messages: Sequence[Message]) -> Sequence[Message]:
    """Messages for a hook to read; one object represents the transcript for the whole run."""
    transcript = run.transcript
    if messages is not transcript.messages:
        return ToRead(messages)
    if transcript.shown is None:
        transcript.shown = ToRead(messages)
    return transcript.shown


def make_context(run: Run, kind: Callable[..., Any], **parts: object) -> Any:
    """The first context of a kind in this run: it is kept, and the next one replaces what differs in it."""
    config = run.plan.config
    context = kind(
        run_id=run.run_id,
        agent_name=config.agent_name,
        iteration=run.turn.iterations,
        conversation_id=config.conversation_id,
        user=run.user,
        metadata=run.metadata,
        deps=run.terms.deps,
        **parts,
    )
    run.turn.contexts = {**run.turn.contexts, kind: context}
    return context


class Opinion(Record):
    """What the hook `name` answered, or a `fault` when there is no answer to trust."""

    name: str
    answer: Any
    fault: HookFault | None


def ask_until_opinion(
    run: Run, hook: str, voices: Iterator[tuple[str, Any]], context: object
) -> Awaitable[Opinion | None] | None:
    """Ask hooks until one has something to say: await that for its `Opinion`. None when all have been asked.

    One loop for all that are silent: most hooks have nothing to say most of the time. What they start is the run's
    child while they are asked.
    """
    place, name = CallScope(run, hook, ASKED), ""
    _enter(place)
    try:
        for name, method in voices:
            answer = method(context)
            if answer is not None:
                return _ask_rest(run, hook, voices, context, place, name, answer)
    except BaseException as error:
        return _ask_rest(run, hook, voices, context, place, name, error, failed=True)
    place.run = None
    _enter(None)
    return recall(run, hook) if run.work.spawned else None


async def _ask_rest(
    run: Run,
    hook: str,
    voices: Iterator[tuple[str, Any]],
    context: object,
    place: CallScope,
    name: str,
    answer: Any,
    *,
    failed: bool = False,
) -> Opinion | None:
    """What an answer comes to; when it is None after all, the next. Raises `Touchdown` when the run is stopped."""
    try:
        while True:
            try:
                if failed:
                    raise answer
                if hasattr(answer, "__await__"):
                    answer = await _await_answer(run, answer)
                if answer is not None:
                    return Opinion(name, answer, None)
                for name, method in voices:  # noqa: B007, PLR1704 - an error names the plugin that was asked
                    answer = method(context)
                    if answer is not None:
                        break
                else:
                    return None
            except BaseException as error:
                check_survivable(run, error)
                what = f" raised {describe_error(error)}"
                if isinstance(error, Stopped):
                    hung = f"no answer within {run.plan.config.hook_timeout} s"
                    what = f": {hung if error.why is Why.TIMEOUT else 'it was cancelled'}"
                fault = HookFault(f"{hook} of plugin {name!r}{what}")
                fault.raised = None if isinstance(error, Stopped) else error
                return Opinion(name, None, fault)
    finally:
        answer = None  # an error's traceback has this frame
        place.close()
        INSIDE.set(None)
        if run.work.spawned and not run.watch.gone:
            await recall(run, hook)


def check_survivable(run: Run, error: BaseException) -> None:
    """Foreign code has failed: raise what ends the run, or return when the run survives it.

    SystemExit is contained, too: a hook or a constraint must not end the process.
    """
    if isinstance(error, Stopped) and error.why is Why.INTERRUPT:
        raise run.make_interrupt() from None
    if isinstance(error, KeyboardInterrupt):
        raise run.make_manual_interrupt() from None
    if run.watch.gone or run.watch.is_forked():  # the run's own coroutine is being closed, or this is a copy of it
        raise error


async def _await_answer(run: Run, answer: Awaitable[Any]) -> Any:
    work: Any = answer if hasattr(answer, "send") else as_coroutine(answer)  # a future, or has an __await__
    if run.watch.interrupt is not None:  # the run is being stopped: a hook that has to wait is interrupted at once
        run.watch.wanted = True
    return await await_interruptibly_within(work, run.watch, run.plan.config.hook_timeout)


async def as_coroutine(awaitable: Awaitable[Any]) -> Any:
    """Anything that can be awaited, as something that can be driven step by step."""
    return await awaitable


def take_all(run: Run, items: Iterable[Any], most: int) -> tuple[list[Any], HookFault | None]:
    """What a foreign iterable gives, and a fault when it was stopped: too many items, or too long a time for them.

    An iterator without an end must not keep the event loop; what it gave before it was stopped is returned.
    """
    taken: list[Any] = []
    until = time.monotonic() + run.plan.config.hook_timeout
    try:
        for item in items:
            if len(taken) == most:
                return taken, HookFault(f"it gave more than {most} items; stopped reading")
            taken.append(item)
            if not len(taken) % CHUNK and time.monotonic() > until:
                return taken, HookFault(
                    f"it was still giving items after {run.plan.config.hook_timeout} s; stopped reading"
                )
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # no iterable at all, or one that breaks
        fault = HookFault(describe_error(error))
        fault.raised = error
        return taken, fault
    return taken, None


def report(run: Run, hook: str, name: str, fault: BaseException, effect: str) -> None:
    """Tell the observers, and the log, about a hook that failed."""
    who = f"{hook} of {name!r}"
    if not isinstance(fault, HookFault):
        log_error(run, who, fault, effect)
    elif fault.raised is not None:
        log_error(run, who, fault.raised, effect)
    else:
        log_error(run, who, fault, effect, did="gave no usable answer")
    run.emit(HookFailed, name, hook, str(fault) if isinstance(fault, HookFault) else describe_error(fault), effect)
