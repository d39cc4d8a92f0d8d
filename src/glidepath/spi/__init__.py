"""Every extension point: a protocol, a read-only context in, a decision value out."""

from typing import TYPE_CHECKING

from glidepath.late import lazy_attributes
from glidepath.spi.constraints import Remaining, ResourceConstraint, ResourceContext
from glidepath.spi.context import ContextStrategy, Shaped
from glidepath.spi.guards import CallGuard, GuardVerdict, Recovery, Step, Stop, StopGuard
from glidepath.spi.hooks import (
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
    RunInfo,
    ToolCallContext,
    ToolResultContext,
    TransformContext,
)
from glidepath.spi.models import Model, ModelRequest, TokenEstimator, ToolSpec
from glidepath.spi.policy import ProtocolPolicy

if TYPE_CHECKING:
    from glidepath.spi.session_catalog import Catalog, Excerpts, SessionPage, SessionQuery
    from glidepath.spi.sessions import Commit, Entry, Lease, SessionStore, Sign
    from glidepath.spi.wallets import (
        DisputedBill,
        Grant,
        Hold,
        OverdueHold,
        Wallet,
        WalletDraw,
        WalletStore,
        WalletTerms,
    )

__all__ = [
    "AfterDecision",
    "Allow",
    "Ask",
    "BeforeDecision",
    "Block",
    "CallGuard",
    "Catalog",
    "Commit",
    "ContextStrategy",
    "DisputedBill",
    "Entry",
    "Excerpts",
    "Gate",
    "GateContext",
    "Grant",
    "GuardVerdict",
    "Hold",
    "Lease",
    "Model",
    "ModelRequest",
    "OverdueHold",
    "OverflowContext",
    "Plugin",
    "PollContext",
    "ProtocolPolicy",
    "Recovery",
    "Remaining",
    "Replace",
    "ResourceConstraint",
    "ResourceContext",
    "RunInfo",
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
    "TransformContext",
    "Wallet",
    "WalletDraw",
    "WalletStore",
    "WalletTerms",
]

if not TYPE_CHECKING:  # type checkers see only public names
    __getattr__ = lazy_attributes(
        __name__,
        session_catalog=("Catalog", "Excerpts", "SessionPage", "SessionQuery"),
        sessions=("Commit", "Entry", "Lease", "SessionStore", "Sign"),
        wallets=("DisputedBill", "Grant", "Hold", "OverdueHold", "Wallet", "WalletDraw", "WalletStore", "WalletTerms"),
    )


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
