"""The contract of a `ResourceConstraint`, clause by clause."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Any

from glidepath import _wire
from glidepath.spi import ResourceConstraint, ResourceContext
from glidepath.testing.conformance.contract import Contract, missing
from glidepath.values import AgentState, ResourceAction, ResourceValidation

CHECKPOINTS = ("pre_flight", "after_model", "after_tools")
ENDINGS = frozenset(
    {AgentState.MAX_STEPS, AgentState.BUDGET_EXCEEDED, AgentState.TIMED_OUT, AgentState.CANCELLED, AgentState.ERROR}
)
SECOND = 1.0  # how long a run waits for a constraint by default


class ResourceConstraintContract(Contract):
    """Subclass this and provide `make_constraint` and `violating`.

    `violating(constraint)` returns a context that violates it; it may also change the constraint, such as throw a
    switch, and `calm(constraint)` then undoes that.
    """

    def make_constraint(self) -> ResourceConstraint:
        """The constraint as a user would create it."""
        raise NotImplementedError(missing(self, "make_constraint"))

    def violating(self, constraint: ResourceConstraint) -> ResourceContext:
        """A context in which the limit is violated."""
        raise NotImplementedError(missing(self, "violating"))

    def calm(self, constraint: ResourceConstraint) -> ResourceContext:  # noqa: ARG002 - for switches
        """A context in which the limit holds; by default the first moment of a run."""
        return ResourceContext()

    async def test_constr_1_it_lets_a_run_go_on(self) -> None:
        """CONSTR-1: where the limit holds, the answer is a `ResourceValidation` that is not violated."""
        constraint = self.make_constraint()
        found = await _ask_constraint(constraint, self.calm(constraint))
        assert isinstance(found, ResourceValidation), f"it answered {found!r:.100}"
        assert found.violated is False

    async def test_constr_2_it_stops_what_it_is_for(self) -> None:
        """CONSTR-2: where the limit is violated, it says so at every checkpoint, with a reason for people."""
        constraint = self.make_constraint()
        for checkpoint in CHECKPOINTS:
            found = await _ask_constraint(constraint, _at_checkpoint(self.violating(constraint), checkpoint))
            assert getattr(found, "violated", None) is True, checkpoint
            assert isinstance(found.reason, str)
            assert found.reason.strip(), "say why"

    async def test_constr_3_a_violation_has_a_consequence(self) -> None:
        """CONSTR-3: a violation is answered with a `ResourceAction` above ALLOW, always the same."""
        constraint = self.make_constraint()
        found = await _ask_constraint(constraint, self.violating(constraint))
        actions = [constraint.on_violation(found) for _ in range(3)]
        assert all(isinstance(action, ResourceAction) for action in actions), actions
        assert actions[0] is not ResourceAction.ALLOW
        assert len(set(actions)) == 1

    async def test_constr_4_asking_changes_nothing(self) -> None:
        """CONSTR-4: asking changes nothing: the same context has the same answer, however often it is asked."""
        constraint = self.make_constraint()
        for _ in range(3):
            assert [(await _ask_constraint(constraint, self.calm(constraint))).violated for _ in range(10)] == [
                False
            ] * 10
            assert (await _ask_constraint(constraint, self.violating(constraint))).violated is True

    async def test_constr_5_it_never_raises(self) -> None:
        """CONSTR-5: it answers at any moment of any run: huge and tiny figures, every state, no meters at all."""
        constraint = self.make_constraint()
        self.calm(constraint)
        for state in AgentState:
            for size in (0, 1, 10**12):
                context = ResourceContext(
                    iteration=size,
                    tokens_used=size,
                    cost=Decimal(size),
                    elapsed=float(size),
                    tool_calls=size,
                    depth=size % 100,
                    agent_state=state,
                    agent_name="\U0001f6eb",
                )
                for checkpoint in CHECKPOINTS:
                    found = await _ask_constraint(constraint, _at_checkpoint(context, checkpoint))
                    assert isinstance(found, ResourceValidation), f"it answered {found!r:.100}"

    async def test_constr_6_it_answers_in_time(self) -> None:
        """CONSTR-6: a hundred answers take less than the second that a run waits for one."""
        constraint = self.make_constraint()
        async with asyncio.timeout(SECOND):
            for _ in range(100):
                await _await_answer(constraint.validate(self.calm(constraint)))

    def test_constr_7_it_says_who_it_is(self) -> None:
        """CONSTR-7: `name` is a non-empty text, and `state` is one in which a run can be stopped."""
        constraint = self.make_constraint()
        assert isinstance(constraint, ResourceConstraint)
        assert isinstance(constraint.name, str)
        assert constraint.name.strip()
        assert constraint.state in ENDINGS, f"a run cannot be stopped in state {constraint.state!r}"

    async def test_constr_8_figures_can_be_written_down(self) -> None:
        """CONSTR-8: metrics are plain data, and a notice is a text or None: both go into events and the journal."""
        constraint = self.make_constraint()
        for context in (self.calm(constraint), self.violating(constraint)):
            found = await _ask_constraint(constraint, context)
            assert found.notice is None or (isinstance(found.notice, str) and found.notice.strip())
            assert all(isinstance(name, str) for name in found.metrics), found.metrics
            _wire.encode(dict(found.metrics))  # raises for what cannot be written

    async def test_constr_9_objects_share_nothing(self) -> None:
        """CONSTR-9: two constraints share nothing: one that was violated does not stop the runs of another."""
        mine, other = self.make_constraint(), self.make_constraint()
        assert (await _ask_constraint(mine, self.violating(mine))).violated is True
        assert (await _ask_constraint(other, self.calm(other))).violated is False


def _at_checkpoint(context: ResourceContext, checkpoint: str) -> ResourceContext:
    return _wire.replace(context, checkpoint=checkpoint)


async def _ask_constraint(constraint: ResourceConstraint, context: ResourceContext) -> Any:
    return await asyncio.wait_for(_await_answer(constraint.validate(context)), 10 * SECOND)


async def _await_answer(answer: object) -> Any:
    """The answer of a plain or an async `validate`."""
    return await answer if hasattr(answer, "__await__") else answer
