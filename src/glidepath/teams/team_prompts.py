"""What members, planners and judges are told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from glidepath.teams.values import EvaluationContext, StepOutcome, TeamExecutionRequest, TeamStep
from glidepath.tools import QuoteFrame, clean, trim
from glidepath.values import Message, UserMessage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from glidepath.teams.team import Member
    from glidepath.teams.values import EvaluationVerdict

_PLAN_FORM = (
    '{"steps": [{"id": "short-name", "description": "what to do", "role": "a role above, or null", '
    '"depends_on": ["ids of earlier steps"]}]}'
)
_VERDICT_FORM = (
    'Answer with JSON only: {"verdict": "PASS" or "REVISE", "score": a number from 0 to 1, '
    '"feedback": "why", "suggestions": ["what to change"]}'
)
MAX_ARTIFACT = 32_000  # characters of one artifact in a prompt, as for a tool's result


def make_safe_text(text: str) -> str:
    """Text that every provider accepts: whole characters, no NUL, limited length."""
    return trim(clean(text.replace("\0", "")), MAX_ARTIFACT)


def step_prompt(
    request: TeamExecutionRequest,
    step: TeamStep,
    upstream: Sequence[StepOutcome],
    verdicts: Sequence[EvaluationVerdict] = (),
    previous: str = "",
    notes: Sequence[str] = (),
) -> str:
    """The task of one attempt: goal, step, what others delivered, what reviewers said, what a person said."""
    parts = [_goal(request)]
    if step.role is not None:
        parts.append(f"Your role: {step.role.name}. {step.role.instructions}".rstrip())
    parts.append(f"Your step ({step.id}): {make_safe_text(step.description)}")
    frame = QuoteFrame()
    quoted = [_delivery(outcome, frame) for outcome in upstream]
    if previous.strip():
        quoted.append(f"Your previous attempt:\n{frame.quote(make_safe_text(previous))}")
    if verdicts:
        lines = frame.quote(_reviews(verdicts))
        quoted.append(f"What the reviews of your attempts said; deal with every point:\n{lines}")
    if quoted:
        parts += [frame.rule, *quoted]
    parts += [f"A note from the person in charge: {make_safe_text(note)}" for note in notes]
    parts.append("Deliver the finished result of your step, and nothing else.")
    return "\n\n".join(parts)


def _goal(request: TeamExecutionRequest) -> str:
    """The words of the person who made the request."""
    parts = [f"Goal of the team: {make_safe_text(request.goal)}"]
    return "\n\n".join([*parts, *(f"{name}: {make_safe_text(text)}" for name, text in request.context.items())])


def mark_untrusted(prompt: str, request: TeamExecutionRequest, origins: tuple[str, ...]) -> str | tuple[Message, ...]:
    """A prompt for a member. Once members have read untrusted text, only the goal counts as a person's words."""
    if not origins:
        return prompt
    goal = _goal(request)
    if not prompt.startswith(f"{goal}\n\n"):
        return (UserMessage(prompt, origins=origins),)
    return UserMessage(goal), UserMessage(prompt[len(goal) + 2 :], origins=origins)


def _delivery(outcome: StepOutcome, frame: QuoteFrame) -> str:
    if outcome.state.delivered:
        degraded = " (degraded: it was not fully accepted)" if outcome.state.name == "DEGRADED" else ""
        return f"Result of step {outcome.step_id}{degraded}:\n{frame.quote(make_safe_text(outcome.output))}"
    why = f"\n{frame.quote(make_safe_text(outcome.reason))}" if outcome.reason else ""
    return f"Step {outcome.step_id} delivered nothing ({outcome.state.name}). Do without it.{why}"


def _reviews(verdicts: Sequence[EvaluationVerdict]) -> str:
    lines = []
    for number, verdict in enumerate(verdicts, 1):
        lines.append(
            f"{number}. {verdict.outcome.name} (score {verdict.score:.2f}) {make_safe_text(verdict.feedback)}".rstrip()
        )
        lines += [f"   - {make_safe_text(suggestion)}" for suggestion in verdict.suggestions]
    return "\n".join(lines)


def plan_prompt(request: TeamExecutionRequest, members: Iterable[Member], max_steps: int) -> str:
    """Ask for a plan as JSON."""
    roles = [f"- {role.name}: {role.instructions}".rstrip(": ") for role in request.roles]
    people = [f"- {member.name}: {', '.join(sorted(member.capabilities)) or 'anything'}" for member in members]
    parts = [
        f"Make a plan for this goal: {make_safe_text(request.goal)}",
        *(f"{name}: {make_safe_text(text)}" for name, text in request.context.items()),
        "\n".join(["Members and what they can do:", *people]),
        *(["\n".join(["Roles that can be given:", *roles])] if roles else []),
        f"Answer with JSON only, at most {max_steps} steps. A step may start when the steps it depends on are done:",
        _PLAN_FORM,
    ]
    return "\n\n".join(parts)


def repair_prompt(request: TeamExecutionRequest, answer: str, problem: str) -> str:
    """Ask for the plan once more, and say what was wrong with it."""
    frame = QuoteFrame()
    return "\n\n".join(
        [
            f"A plan for the goal {make_safe_text(request.goal)!r} cannot be used.",
            frame.rule,
            f"What is wrong with it:\n{frame.quote(make_safe_text(problem))}",
            f"The plan:\n{frame.quote(make_safe_text(answer) or '(it was empty)')}",
            "Answer with the corrected plan as JSON only, in the same form.",
        ]
    )


def judge_prompt(context: EvaluationContext, rubric: str) -> str:
    """Ask for a verdict as JSON."""
    frame = QuoteFrame()
    earlier = frame.quote(_reviews(context.prior_verdicts)) if context.prior_verdicts else ""
    parts = [
        f"You review the work of others. The risk of a mistake is {context.config.risk_profile.name}.",
        *([f"Goal of the team: {make_safe_text(context.goal)}"] if context.goal else []),
        f"The step: {make_safe_text(context.step.description)}",
        *([f"What counts: {make_safe_text(rubric)}"] if rubric else []),
        frame.rule,
        *([f"Earlier reviews of it:\n{earlier}"] if earlier else []),
        f"The work, attempt {context.attempt}:\n{frame.quote(make_safe_text(context.artifact))}",
        _VERDICT_FORM,
    ]
    return "\n\n".join(parts)
