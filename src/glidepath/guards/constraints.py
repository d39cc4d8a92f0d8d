"""The built-in limits, each its own constraint. `DefaultResourceConstraint` is all of them, made from `Limits`.

Every one can be used alone and is asked synchronously (`check`); `validate` is the same through the port. A new kind
of limit is a field of `Limits` and a class here that names it as its `limit`.
"""

from __future__ import annotations

import inspect
import os
import threading
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar

from glidepath.spi import ResourceConstraint, ResourceContext
from glidepath.values import AgentState, ConfigurationError, ResourceAction, ResourceValidation, pluralize, short_repr

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from glidepath.run import KillSwitchPoller

__all__ = [
    "CostLimitConstraint",
    "DefaultResourceConstraint",
    "KillSwitchConstraint",
    "MaxIterationConstraint",
    "TimeoutConstraint",
    "TokenBudgetConstraint",
    "ToolCallLimitConstraint",
]

_OK = ResourceValidation.ok()
FOREVER = 10**15  # of anything that is counted, seconds included


class _BuiltIn(ResourceConstraint):
    limit: ClassVar[str] = ""
    """The field of `Limits` that it enforces; "" for what no field sets."""
    metered: ClassVar[bool] = False
    """Whether the ledger or the watch says when to ask; otherwise it is asked at every checkpoint."""

    @classmethod
    def made(cls, limits: object, landing_seconds: float) -> _BuiltIn:  # noqa: ARG003 - for those that need the time
        """The constraint for the field of these limits, which is set."""
        return cls(getattr(limits, cls.limit))  # type: ignore[call-arg]  # each takes the value of its limit

    def check(self, context: ResourceContext) -> ResourceValidation:
        """Say whether the limit holds."""
        raise NotImplementedError

    async def validate(self, context: ResourceContext) -> ResourceValidation:
        """Say whether the limit holds."""
        return self.check(context)

    validate.calls_check = True  # type: ignore[attr-defined]  # an override of `validate` is asked, not bypassed


class FunctionConstraint(ResourceConstraint):
    """A plain or async function of a `ResourceContext` as a constraint, under its own name; None: its limit holds."""

    def __init__(self, function: Callable[[ResourceContext], Any]) -> None:
        self.function = function
        self.name = getattr(function, "__name__", type(function).__name__)
        try:
            given = inspect.signature(function)
        except (TypeError, ValueError):  # of a function in C: the run will tell
            return
        try:
            given.bind(ResourceContext())
        except TypeError:
            raise ConfigurationError(
                f"constraints: {self.name} must take one argument, the ResourceContext; it takes {given}"
            ) from None

    def validate(self, context: ResourceContext) -> Any:
        """What the function answers."""
        answer = self.function(context)
        return _await_answer(answer) if hasattr(answer, "__await__") else _OK if answer is None else answer


async def _await_answer(answer: Awaitable[Any]) -> Any:
    said = await answer
    return _OK if said is None else said


def _check_positive(value: object, field: str) -> None:
    number = value if isinstance(value, int | float | Decimal) and not isinstance(value, bool) else 0
    if (isinstance(number, Decimal) and number.is_nan()) or not 0 < number < FOREVER:
        raise ConfigurationError(f"{field} must be a finite number greater than 0, not {short_repr(value, 100)}")


class MaxIterationConstraint(_BuiltIn):
    """At most this many model turns, those of descendants included; graceful."""

    limit, metered = "max_iterations", True
    state: ClassVar[AgentState] = AgentState.MAX_STEPS

    def __init__(self, max_iterations: int) -> None:
        _check_positive(max_iterations, "max_iterations")
        self.max_iterations = max_iterations

    def check(self, context: ResourceContext) -> ResourceValidation:
        """Violated when the turns are used up."""
        spent = context.checkpoint == "pre_flight" and context.remaining().iterations == 0
        if context.iteration < self.max_iterations and not spent:
            return _OK
        return ResourceValidation.violation(
            f"the limit of {pluralize(self.max_iterations, 'model turn')} is reached",
            iteration=context.iteration,
            max_iterations=self.max_iterations,
        )


class TokenBudgetConstraint(_BuiltIn):
    """At most this many tokens, those of descendants included; graceful."""

    limit, metered = "max_tokens", True

    def __init__(self, max_tokens: int) -> None:
        _check_positive(max_tokens, "max_tokens")
        self.max_tokens = max_tokens

    def check(self, context: ResourceContext) -> ResourceValidation:
        """Violated when nothing is left above the landing reserve."""
        if context.tokens_used < self.max_tokens and context.remaining().tokens != 0:
            return _OK
        return ResourceValidation.violation(
            f"the budget of {pluralize(self.max_tokens, 'token')} is used up, the landing reserve apart",
            tokens_used=context.tokens_used,
            max_tokens=self.max_tokens,
        )


class CostLimitConstraint(_BuiltIn):
    """At most this many dollars, those of descendants included; graceful."""

    limit, metered = "max_cost", True

    def __init__(self, max_cost: Decimal | str | float) -> None:
        try:
            cost = Decimal("NaN" if isinstance(max_cost, bool) else max_cost)
        except (ArithmeticError, TypeError, ValueError):
            raise ConfigurationError(
                f"max_cost must be an amount in dollars such as '0.50', not {short_repr(max_cost, 100)}"
            ) from None
        _check_positive(cost, "max_cost")
        self.max_cost = cost

    def check(self, context: ResourceContext) -> ResourceValidation:
        """Violated when nothing is left above the landing reserve."""
        if context.cost < self.max_cost and context.remaining().cost != 0:
            return _OK
        return ResourceValidation.violation(
            f"the limit of ${self.max_cost} is used up, the landing reserve apart",
            cost=str(context.cost),
            max_cost=str(self.max_cost),
        )


class ToolCallLimitConstraint(_BuiltIn):
    """At most this many tool calls, those of descendants included; graceful."""

    limit, metered = "max_tool_calls", True
    state: ClassVar[AgentState] = AgentState.MAX_STEPS

    def __init__(self, max_tool_calls: int) -> None:
        _check_positive(max_tool_calls, "max_tool_calls")
        self.max_tool_calls = max_tool_calls

    def check(self, context: ResourceContext) -> ResourceValidation:
        """Violated when the calls are used up."""
        if context.tool_calls < self.max_tool_calls:
            return _OK
        return ResourceValidation.violation(
            f"the limit of {pluralize(self.max_tool_calls, 'tool call')} is reached",
            tool_calls=context.tool_calls,
            max_tool_calls=self.max_tool_calls,
        )


class TimeoutConstraint(_BuiltIn):
    """At most this many seconds: graceful when the landing window opens, an emergency at the deadline."""

    limit, metered = "timeout", True
    state: ClassVar[AgentState] = AgentState.TIMED_OUT

    def __init__(self, timeout: float, landing_seconds: float = 0.0) -> None:
        _check_positive(timeout, "timeout")
        if landing_seconds != 0:
            _check_positive(landing_seconds, "landing_seconds")
        self.timeout = timeout
        self.landing_seconds = landing_seconds

    @classmethod
    def made(cls, limits: object, landing_seconds: float) -> TimeoutConstraint:
        """The constraint for these limits, whose landing window opens that long before the deadline."""
        return cls(getattr(limits, cls.limit), landing_seconds)

    def check(self, context: ResourceContext) -> ResourceValidation:
        """Violated when the landing window is open."""
        if context.elapsed < self.timeout - self.landing_seconds:
            return _OK
        late = context.elapsed >= self.timeout
        reason = f"the deadline of {self.timeout:g} s has passed" if late else "the time limit is near"
        return ResourceValidation.violation(reason, elapsed=round(context.elapsed, 3), timeout=self.timeout)

    def on_violation(self, validation: ResourceValidation) -> ResourceAction:
        """Land while there is time, stop when there is none."""
        late = validation.metrics.get("elapsed", self.timeout) >= self.timeout
        return ResourceAction.EMERGENCY_STOP if late else ResourceAction.GRACEFUL_EXIT


class KillSwitchConstraint(_BuiltIn):
    """Stops every run at once when the switch is thrown: an event is set, a file exists, or a function says so.

    A file that is missing is not thrown. A switch that cannot be read (no permission, a share that is gone, a function
    that raises) lets nothing new be spent, and counts as thrown after `kill_switch_grace` seconds. A file is looked at
    on a thread, so that a dead share cannot block the event loop; a function is called on the loop and must be quick.
    """

    state: ClassVar[AgentState] = AgentState.CANCELLED

    def __init__(self, switch: threading.Event | str | os.PathLike[str] | Callable[[], bool]) -> None:
        self._path: str | None = None
        if isinstance(switch, str | os.PathLike):
            self._path = os.fspath(switch)
            if not isinstance(self._path, str) or not self._path or "\0" in self._path:
                raise ConfigurationError(f"switch must be the path of a file, not {switch!r:.100}")
            self.read: Callable[[], bool] = self._file_exists
        elif hasattr(switch, "is_set"):
            self.read = switch.is_set
        elif inspect.iscoroutinefunction(switch):
            raise ConfigurationError(
                "switch must be a plain function, not async: to wait, write a constraint with check_every"
            )
        elif callable(switch):
            self.read = switch
        else:
            raise ConfigurationError(f"switch must be an event, a path or a function, not {switch!r:.100}")
        self.may_block = self._path is not None
        self._folder_seen = False
        from glidepath.run import KillSwitchPollers

        self._lookouts = KillSwitchPollers()

    def _file_exists(self) -> bool:
        """Whether the file is there; raises `OSError` when that cannot be told."""
        path: Any = self._path
        try:
            os.stat(path, follow_symlinks=True)  # noqa: PTH116 - called at every checkpoint; os.stat is quicker
        except FileNotFoundError:
            self._check_folder(os.path.dirname(path) or ".")  # noqa: PTH120
            return False
        return True

    def _check_folder(self, folder: str) -> None:
        """A missing file is not thrown; but a folder that was there and is gone is a share that is gone."""
        try:
            os.stat(folder)  # noqa: PTH116
        except FileNotFoundError:
            if self._folder_seen:
                raise
        else:
            self._folder_seen = True

    def lookout(self) -> KillSwitchPoller:
        """How the running event loop sees it: what was read last, for all runs of the loop."""
        return self._lookouts.for_running_loop(self)

    def check(self, context: ResourceContext) -> ResourceValidation:  # noqa: ARG002 - the switch does not look at the run
        """Violated when the switch is thrown."""
        return ResourceValidation.violation("the kill switch was thrown") if self.read() else _OK

    async def validate(self, context: ResourceContext) -> ResourceValidation:  # noqa: ARG002
        """Violated when the switch is thrown; one that cannot be read holds up the run elsewhere."""
        lookout = self.lookout()
        if not (self.may_block and lookout.is_recent()):
            answer = lookout.answer()
            if answer is not None:
                await answer
        if lookout.thrown:
            return ResourceValidation.violation("the kill switch was thrown")
        return _OK if lookout.blind_since is None else ResourceValidation(False, f"cannot be read: {lookout.why}")

    def on_violation(self, validation: ResourceValidation) -> ResourceAction:  # noqa: ARG002
        """Stop now."""
        return ResourceAction.EMERGENCY_STOP

    def thrown(self) -> bool:
        """True when the switch is thrown, as far as is known; a switch that cannot be read counts as thrown."""
        try:
            return bool(self.read())
        except Exception:
            return True


class DefaultResourceConstraint(_BuiltIn):
    """All limits of a `Limits` value as one constraint; the default of a run."""

    def __init__(self, limits: object, *, landing_seconds: float = 0.0) -> None:
        if not hasattr(limits, "max_iterations"):
            raise ConfigurationError(
                f"limits must be a Limits such as Limits(max_iterations=10), not {type(limits).__name__}"
            )
        self.parts: tuple[_BuiltIn, ...] = make_limit_constraints(limits, landing_seconds=landing_seconds)

    def check(self, context: ResourceContext) -> ResourceValidation:
        """The first violation among the parts, the most severe first."""
        worst: tuple[int, ResourceValidation] | None = None
        for part in self.parts:
            validation = part.check(context)
            if validation.violated:
                severity = part.on_violation(validation).severity
                if worst is None or severity > worst[0]:
                    worst = (severity, validation)
        return _OK if worst is None else worst[1]

    def on_violation(self, validation: ResourceValidation) -> ResourceAction:
        """What the violated part asks for."""
        timeout = next((part for part in self.parts if isinstance(part, TimeoutConstraint)), None)
        if timeout is not None and "timeout" in validation.metrics:
            return timeout.on_violation(validation)
        return ResourceAction.GRACEFUL_EXIT


LIMIT_KINDS: tuple[type[_BuiltIn], ...] = tuple(kind for kind in _BuiltIn.__subclasses__() if kind.limit)
"""Every kind of limit, in the order in which they are asked."""


def make_limit_constraints(limits: object, *, landing_seconds: float = 0.0) -> tuple[_BuiltIn, ...]:
    """One constraint for each limit that is set."""
    chosen = [kind for kind in LIMIT_KINDS if getattr(limits, kind.limit) is not None]
    return tuple([kind.made(limits, landing_seconds) for kind in chosen])
