"""From a goal to a plan: a model's plan, checked and repaired once; or a deterministic one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from glidepath._wire import Value, WireError, convert
from glidepath.agent import Agent
from glidepath.run import CancelToken
from glidepath.teams.answers import objects_in
from glidepath.teams.team_prompts import plan_prompt, repair_prompt
from glidepath.teams.values import (
    PlannerFailureMode,
    RoleDefinition,
    TeamExecutionPlan,
    TeamExecutionRequest,
    TeamStep,
)
from glidepath.values import ConfigurationError, LoopOutcome

if TYPE_CHECKING:
    from glidepath.teams.team import Member
    from glidepath.teams.team_run import TeamRun

MAX_STEPS = 40


class PlanningFailed(Exception):  # noqa: N818 - not an error of the program: what happened
    """There is no usable plan."""


async def make_plan(
    request: TeamExecutionRequest, team: TeamRun, planner: Agent | None, cancel: CancelToken
) -> tuple[TeamExecutionPlan, str | None]:
    """The plan for a request, and a warning if it is not the planner's; raises `PlanningFailed`.

    A plan in the request is used as it is. Without a planner the plan is deterministic. An invalid plan is sent back to
    the planner once; then `planner_failure_mode` decides.
    """
    if request.plan is not None:
        return _check_doable(request.plan, team), None
    if planner is None:
        return _check_doable(deterministic_plan(request), team), None
    problem = ""
    prompt = plan_prompt(request, team.members, MAX_STEPS)
    for _ in range(2):
        result = await team.ask(planner, prompt, cancel=cancel)
        try:
            return _check_doable(read_plan(result.text, request), team), None
        except PlanningFailed as failure:
            problem = str(failure)
            if result.outcome not in (LoopOutcome.DONE, LoopOutcome.WRAPPED_UP) and result.cause is not None:
                problem = f"the planner ended {result.outcome.name}: {result.cause.reason}"
            prompt = repair_prompt(request, result.text, problem)
        if cancel.cancelled:
            break
    if request.config.planner_failure_mode is PlannerFailureMode.FAIL_FAST:
        raise PlanningFailed(f"no valid plan: {problem}")
    warning = f"the plan is deterministic, because the planner failed: {problem}"
    return _check_doable(deterministic_plan(request), team), warning


def deterministic_plan(request: TeamExecutionRequest) -> TeamExecutionPlan:
    """A plan without a model: one step for each role, each building on the one before; without roles, one step."""
    if not request.roles:
        steps: tuple[TeamStep, ...] = (TeamStep(id="goal", description=request.goal),)
        return TeamExecutionPlan(steps=steps, source="deterministic")
    made: list[TeamStep] = []
    for number, role in enumerate(request.roles, 1):
        before = (made[-1].id,) if made else ()
        description = role.instructions.strip() or f"Do the part of the {role.name}."
        made.append(TeamStep(id=f"{number}-{role.name}", description=description, role=role, depends_on=before))
    return TeamExecutionPlan(steps=tuple(made), source="deterministic")


def read_plan(text: str, request: TeamExecutionRequest) -> TeamExecutionPlan:
    """The plan in a planner's answer; raises `PlanningFailed` saying what is wrong."""
    objects = list(objects_in(text))
    if not objects:
        raise PlanningFailed("there is no JSON object in the answer")
    found = next((each for each in objects if "steps" in each), objects[0])
    steps = found.get("steps")
    if not isinstance(steps, list) or not steps:
        raise PlanningFailed('"steps" must be a list with at least one step')
    if len(steps) > MAX_STEPS:
        raise PlanningFailed(f"there are {len(steps)} steps; at most {MAX_STEPS} are allowed")
    roles = {role.name: role for role in request.roles}
    try:
        planned = convert(steps, list[PlannedStep])
        return TeamExecutionPlan(steps=tuple(_step(step, roles) for step in planned), source="planner")
    except WireError as error:
        raise PlanningFailed(f'"steps" cannot be read: {error}') from None
    except ConfigurationError as error:
        raise PlanningFailed(str(error)) from None


class PlannedStep(Value, frozen=True, kw_only=True):
    """A step as a planner writes it."""

    id: str | int
    description: str = ""
    role: Any = None
    depends_on: tuple[str | int, ...] | str | None = None


def _step(planned: PlannedStep, roles: dict[str, RoleDefinition]) -> TeamStep:
    role, needed = planned.role, planned.depends_on or ()
    if roles and role is not None and not (isinstance(role, str) and role in roles):
        raise PlanningFailed(f"step {planned.id!r}: there is no role {role!r:.80}; use {', '.join(roles)}")
    return TeamStep(
        id=str(planned.id),
        # indented, so that none of its lines looks like one of ours in a prompt
        description="\n    ".join(planned.description.splitlines()),
        role=roles[role] if roles and role is not None else None,
        depends_on=(needed,) if isinstance(needed, str) else tuple(map(str, needed)),
    )


def _check_doable(plan: TeamExecutionPlan, team: TeamRun) -> TeamExecutionPlan:
    """The plan; raises `PlanningFailed` if no member can do one of its steps."""
    for step in plan.steps:
        if not find_candidates(step, team.members):
            raise PlanningFailed(f"step {step.id!r}: {_explain_nobody(step, team)}")
    return plan


def check_going_on(team: TeamRun) -> None:
    """Raise `ConfigurationError` if an unfinished step of an earlier execution cannot continue with these members."""
    history = team.before
    if history.plan is None or history.new_plan:
        return  # there is no plan, or a new one that is checked like any other
    finished = {outcome.step_id for outcome in history.outcomes}
    names = {member.name for member in team.members}
    for step in history.plan.steps:
        if step.id in finished:
            continue
        if not find_candidates(step, team.members):
            raise ConfigurationError(
                f"step {step.id!r} cannot continue: {_explain_nobody(step, team)}; resume it with a team that can"
            )
        before = history.steps.get(step.id)
        waits = before is not None and before.paused is not None and not before.paused_senior
        if before is not None and waits and before.paused_by not in ("", *names):
            raise ConfigurationError(
                f"step {step.id!r} cannot continue: its run waits for a person, and its member {before.paused_by!r} is "
                "not in this team; resume it with a team that has it"
            )


def _explain_nobody(step: TeamStep, team: TeamRun) -> str:
    capability = step.role.required_capability if step.role is not None else None
    if step.member is None:
        return f"no member offers {capability!r}"
    if step.member not in {member.name for member in team.members}:
        return f"there is no member {step.member!r}"
    return f"member {step.member!r} does not offer {capability!r}"


def find_candidates(step: TeamStep, members: tuple[Member, ...]) -> list[Member]:
    """Who can do a step: the pinned member, or all who offer what its role requires."""
    capability = step.role.required_capability if step.role is not None else None
    return [member for member in members if member.offers(capability) and step.member in (None, member.name)]
