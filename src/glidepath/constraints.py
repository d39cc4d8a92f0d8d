"""The built-in limits, each its own constraint. `DefaultResourceConstraint` is all of them, made from `Limits`."""

from glidepath.guards.constraints import (
    CostLimitConstraint,
    DefaultResourceConstraint,
    KillSwitchConstraint,
    MaxIterationConstraint,
    TimeoutConstraint,
    TokenBudgetConstraint,
    ToolCallLimitConstraint,
)

__all__ = [
    "CostLimitConstraint",
    "DefaultResourceConstraint",
    "KillSwitchConstraint",
    "MaxIterationConstraint",
    "TimeoutConstraint",
    "TokenBudgetConstraint",
    "ToolCallLimitConstraint",
]
