"""Every extension point: a protocol, a read-only context in, a decision value out."""

from glidepath.spi.constraints import Meters, Remaining, ResourceConstraint, ResourceContext
from glidepath.spi.context import ContextStrategy, Shaped
from glidepath.spi.guards import CallGuard, GuardVerdict, Recovery, Step, Stop, StopGuard, ToolTraits
from glidepath.spi.hooks import (
    HOOKS,
    AfterDecision,
    Allow,
    Ask,
    BeforeDecision,
    Block,
    Gate,
    GateContext,
    OverflowContext,
    Plugin,
    PollContext,
    Replace,
    ToolCallContext,
    ToolResultContext,
    TransformContext,
)
from glidepath.spi.models import Model, ModelRequest, TokenEstimator, ToolSpec
from glidepath.spi.points import EXTENSION_POINTS, TEXTBOOK, VIEWS, ExtensionPoint
from glidepath.spi.policy import ProtocolPolicy
from glidepath.spi.sessions import Catalog, Commit, Entry, Lease, SessionPage, SessionQuery, SessionStore, Sign

__all__ = [
    "EXTENSION_POINTS",
    "HOOKS",
    "TEXTBOOK",
    "VIEWS",
    "AfterDecision",
    "Allow",
    "Ask",
    "BeforeDecision",
    "Block",
    "CallGuard",
    "Catalog",
    "Commit",
    "ContextStrategy",
    "Entry",
    "ExtensionPoint",
    "Gate",
    "GateContext",
    "GuardVerdict",
    "Lease",
    "Meters",
    "Model",
    "ModelRequest",
    "OverflowContext",
    "Plugin",
    "PollContext",
    "ProtocolPolicy",
    "Recovery",
    "Remaining",
    "Replace",
    "ResourceConstraint",
    "ResourceContext",
    "SessionPage",
    "SessionQuery",
    "SessionStore",
    "Shaped",
    "Sign",
    "Step",
    "Stop",
    "StopGuard",
    "TokenEstimator",
    "ToolCallContext",
    "ToolResultContext",
    "ToolSpec",
    "ToolTraits",
    "TransformContext",
]
