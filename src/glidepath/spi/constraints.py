"""The constraint port: a limit that anyone can write."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Mapping, Sequence
from decimal import Decimal
from typing import ClassVar

from glidepath._wire import Value
from glidepath.values import UNPROVEN, AgentState, Message, ResourceAction, ResourceValidation, StopReason, experimental


class Remaining(Value, frozen=True, kw_only=True):
    """What is left of each limit, without the landing reserve; None if there is no limit."""

    iterations: int | None = None
    tokens: int | None = None
    cost: Decimal | None = None
    seconds: float | None = None
    tool_calls: int | None = None


class ResourceContext(Value, frozen=True, kw_only=True):
    """What a constraint sees of a run: a frozen copy. `iteration` counts completed turns, from 0.

    `messages` is the transcript, to read and not to keep: it grows. The run's own begin at `first_new`, those from
    before a pause or a crash included, so that what is counted in them needs no other memory.
    """

    checkpoint: str = "pre_flight"
    iteration: int = 0
    tokens_used: int = 0
    cost: Decimal = Decimal(0)
    elapsed: float = 0.0
    tool_calls: int = 0
    depth: int = 0
    agent_name: str = ""
    agent_state: AgentState = AgentState.RUNNING
    last_stop_reason: StopReason | None = None
    run_id: str = ""
    session_id: str = ""
    conversation_id: str | None = None
    user: str | None = None
    metadata: Mapping[str, str] | None = None
    left: Remaining = Remaining()
    nearly_used_up: bool = False
    messages: Sequence[Message] = ()
    first_new: int = 0

    def remaining(self) -> Remaining:
        """What is left of each limit, without the landing reserve."""
        return self.left

    def near_budget(self) -> bool:
        """True when tokens or money are nearly used up, not counting the landing reserve."""
        return self.nearly_used_up


@experimental(reason=UNPROVEN)
class ResourceConstraint:
    """A limit on a run, asked at three checkpoints of every turn: pre_flight, after_model and after_tools.

    Contract: `validate` answers within a second and changes nothing; `on_violation` is asked only when the
    validation says violated. One that raises, hangs or answers with anything but a `ResourceValidation` counts as a
    violation with `GRACEFUL_EXIT`, and the run ends in state ERROR: a guard that crashes stops what it guards.

    Set `state` on the class to the state of a run that this constraint stopped, and `name` to the name that causes and
    events show (default: the class name). Set `check_every` to a number of seconds to be asked periodically as well,
    while tools and streams are in flight (`checkpoint` is "in_flight" then): an `EMERGENCY_STOP` interrupts them; a
    milder action waits for the next checkpoint, where the constraint is asked again. State about one run belongs in
    `for_run`. A plain function of the context is a constraint, too: it returns a validation, or None when its limit
    holds.
    """

    state: ClassVar[AgentState] = AgentState.BUDGET_EXCEEDED
    check_every: float | None = None
    """Seconds between two questions while work is in flight; None: asked at checkpoints only."""
    name: str

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if "name" not in cls.__dict__:
            cls.name = cls.__name__

    def for_run(self) -> ResourceConstraint:
        """The constraint that serves one run: `self`, unless it keeps state that must not be shared."""
        return self

    @abstractmethod
    def validate(self, context: ResourceContext) -> ResourceValidation | Awaitable[ResourceValidation]:
        """Look at the run and say whether the limit holds; `async def`, or a plain `def` that is quick."""
        raise NotImplementedError

    def on_violation(self, validation: ResourceValidation) -> ResourceAction:  # noqa: ARG002 - part of the port
        """What to do about a violation; finish this turn and land, unless overridden."""
        return ResourceAction.GRACEFUL_EXIT
