"""Teams: coordinators, planners and reviewers, built on `Agent`. One ledger, one stream of events, always a result."""

from typing import TYPE_CHECKING

from glidepath._lazy import lazy_attributes
from glidepath.teams.dispatch import DefaultTaskDispatchCoordinator
from glidepath.teams.evaluate import AgentEvaluationStrategy, SimpleEvaluationStrategy
from glidepath.teams.events import (
    EvaluationResult,
    EvaluationStarted,
    Handoff,
    PlanReady,
    StepAssigned,
    StepAttempted,
    StepCompleted,
    StepSteered,
    TeamCancelled,
    TeamCompleted,
    TeamEvent,
    TeamFailed,
    TeamPaused,
    TeamStarted,
    TeamTimeout,
)
from glidepath.teams.expert import ExpertTeamCoordinator
from glidepath.teams.plan_run import PlanRun
from glidepath.teams.spi import EvaluationStrategy, TeamCoordinator
from glidepath.teams.step_run import StepRun
from glidepath.teams.step_table import STEP_TRANSITIONS
from glidepath.teams.team import Member, Team
from glidepath.teams.team_run import TeamRun
from glidepath.teams.values import (
    DependencyFailure,
    EvaluationContext,
    EvaluationVerdict,
    EvaluatorPreference,
    PlannerFailureMode,
    RiskProfile,
    RoleDefinition,
    StepOutcome,
    StepState,
    TeamConfig,
    TeamExecutionPlan,
    TeamExecutionRequest,
    TeamResourceConstraint,
    TeamResult,
    TeamStatus,
    TeamStep,
    VerdictOutcome,
)

__all__ = [
    "STEP_TRANSITIONS",
    "AgentEvaluationStrategy",
    "DefaultTaskDispatchCoordinator",
    "DependencyFailure",
    "EvaluationContext",
    "EvaluationResult",
    "EvaluationStarted",
    "EvaluationStrategy",
    "EvaluationVerdict",
    "EvaluatorPreference",
    "ExpertTeamCoordinator",
    "Handoff",
    "Member",
    "PlanReady",
    "PlanRun",
    "PlannerFailureMode",
    "RiskProfile",
    "RoleDefinition",
    "SimpleEvaluationStrategy",
    "StepAssigned",
    "StepAttempted",
    "StepCompleted",
    "StepOutcome",
    "StepRun",
    "StepState",
    "StepSteered",
    "Team",
    "TeamCancelled",
    "TeamCompleted",
    "TeamConfig",
    "TeamCoordinator",
    "TeamEvent",
    "TeamExecutionPlan",
    "TeamExecutionRequest",
    "TeamFailed",
    "TeamPaused",
    "TeamResourceConstraint",
    "TeamResult",
    "TeamRun",
    "TeamStarted",
    "TeamStatus",
    "TeamStep",
    "TeamTimeout",
    "VerdictOutcome",
]

# What other packages use, imported when it is first asked for.
if TYPE_CHECKING:
    from glidepath.teams.answers import objects_in as objects_in
    from glidepath.teams.evaluate import review as review
    from glidepath.teams.events import TEAM_EVENTS as TEAM_EVENTS, TERMINAL as TERMINAL, make_ending as make_ending
    from glidepath.teams.journal import read_story as read_story
    from glidepath.teams.planner import read_plan as read_plan
    from glidepath.teams.replaying import replay_team as replay_team
    from glidepath.teams.step_table import IllegalMove as IllegalMove, StepTable as StepTable
    from glidepath.teams.team_history import History as History
    from glidepath.teams.team_prompts import (
        judge_prompt as judge_prompt,
        mark_untrusted as mark_untrusted,
        plan_prompt as plan_prompt,
        repair_prompt as repair_prompt,
        step_prompt as step_prompt,
    )

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(
        __name__,
        answers=("objects_in",),
        evaluate=("review",),
        events=("TEAM_EVENTS", "TERMINAL", "make_ending"),
        journal=("read_story",),
        planner=("read_plan",),
        replaying=("replay_team",),
        step_table=("IllegalMove", "StepTable"),
        team_history=("History",),
        team_prompts=("judge_prompt", "mark_untrusted", "plan_prompt", "repair_prompt", "step_prompt"),
    )
