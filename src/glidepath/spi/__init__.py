"""Every extension point: a protocol, a read-only context in, a decision value out."""

from typing import TYPE_CHECKING

from glidepath._lazy import lazy_attributes
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
    OutputContext,
    OverflowContext,
    Plugin,
    PollContext,
    PromptContext,
    Replace,
    RunInfo,
    ToolCallContext,
    ToolResultContext,
    TransformContext,
)
from glidepath.spi.models import REASONING as REASONING, Model, ModelRequest, TokenEstimator, ToolSpec
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
    "OutputContext",
    "OverdueHold",
    "OverflowContext",
    "Plugin",
    "PollContext",
    "PromptContext",
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

if TYPE_CHECKING:
    from glidepath.spi.constraints import Remaining as Remaining
    from glidepath.spi.sessions import Commit as Commit, Sign as Sign

if not TYPE_CHECKING:  # type checkers see only public names
    __getattr__ = lazy_attributes(
        __name__,
        constraints=("Remaining",),
        session_catalog=("Catalog", "Excerpts", "SessionPage", "SessionQuery"),
        sessions=("Commit", "Sign", "Commit", "Entry", "Lease", "SessionStore", "Sign"),
        wallets=("DisputedBill", "Grant", "Hold", "OverdueHold", "Wallet", "WalletDraw", "WalletStore", "WalletTerms"),
    )


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


# What other packages use, imported when it is first asked for.
if TYPE_CHECKING:
    from glidepath.spi.direct_observer import (
        DirectObserver as DirectObserver,
        RunIntroduction as RunIntroduction,
        mark_unreal as mark_unreal,
    )
    from glidepath.spi.guards import ToolTraits as ToolTraits
    from glidepath.spi.hooks import HOOKS as HOOKS, as_message as as_message
    from glidepath.spi.hosted import (
        HOSTED_USES as HOSTED_USES,
        CodeExecution as CodeExecution,
        HostedReserve as HostedReserve,
        HostedTool as HostedTool,
        WebFetch as WebFetch,
        WebSearch as WebSearch,
        as_hosted_tools as as_hosted_tools,
        is_hosted as is_hosted,
        reserve_for as reserve_for,
    )
    from glidepath.spi.inside_variable import INSIDE as INSIDE
    from glidepath.spi.models import provider_of as provider_of
    from glidepath.spi.ports import is_implementing as is_implementing
    from glidepath.spi.sessions import Inbox as Inbox, Note as Note

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(
        __name__,
        __getattr__,
        direct_observer=("DirectObserver", "RunIntroduction", "mark_unreal"),
        guards=("ToolTraits",),
        hooks=("HOOKS", "as_message"),
        hosted=(
            "HOSTED_USES",
            "CodeExecution",
            "HostedReserve",
            "HostedTool",
            "WebFetch",
            "WebSearch",
            "as_hosted_tools",
            "is_hosted",
            "reserve_for",
        ),
        inside_variable=("INSIDE",),
        models=("provider_of",),
        ports=("is_implementing",),
        sessions=("Inbox", "Note"),
    )
