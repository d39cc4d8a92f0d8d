"""The conformance kit: contract classes for every extension point. Subclass one in your own tests.

Every clause is one test and has a number; its docstring is the clause. Nothing here is loaded unless it is imported:

    from glidepath.conformance import TeamCoordinatorContract

    class TestMine(TeamCoordinatorContract):
        def make_coordinator(self):
            return MyCoordinator()

`CONTRACTS` has the contracts of each extension point. Only this package needs pytest.
"""

from collections.abc import Mapping
from pkgutil import iter_modules
from types import MappingProxyType
from typing import TYPE_CHECKING

import pytest

from glidepath._lazy import lazy_attributes

# Failed clauses explain themselves only if pytest rewrites them, and it must know that before the import.
pytest.register_assert_rewrite(*[f"{__name__}.{module.name}" for module in iter_modules(__path__)])

from glidepath.testing.conformance.catalogs import CatalogContract  # noqa: E402
from glidepath.testing.conformance.constraint_contract import ResourceConstraintContract  # noqa: E402
from glidepath.testing.conformance.contexts import ContextStrategyContract  # noqa: E402
from glidepath.testing.conformance.contract import Contract  # noqa: E402
from glidepath.testing.conformance.coordinators import (  # noqa: E402
    PlanningCoordinatorContract,
    ReviewingCoordinatorContract,
    TeamCoordinatorContract,
)
from glidepath.testing.conformance.estimators import TokenEstimatorContract  # noqa: E402
from glidepath.testing.conformance.evaluators import EvaluationStrategyContract  # noqa: E402
from glidepath.testing.conformance.excerpts import ExcerptsContract  # noqa: E402
from glidepath.testing.conformance.guard_contract import CallGuardContract, StopGuardContract  # noqa: E402
from glidepath.testing.conformance.hook_contract import (  # noqa: E402
    AfterToolCallContract,
    BeforeToolCallContract,
    ContextOverflowRecoveryContract,
    ContextTransformContract,
    ToolGateContract,
)
from glidepath.testing.conformance.hooks_that_speak import EventObserverContract, FollowUpContract, SteeringContract  # noqa: E402
from glidepath.testing.conformance.inboxes import InboxContract  # noqa: E402
from glidepath.testing.conformance.model_contract import ModelContract  # noqa: E402
from glidepath.testing.conformance.policies import ProtocolPolicyContract  # noqa: E402
from glidepath.testing.conformance.provenance_kit import ProvenanceContract  # noqa: E402
from glidepath.testing.conformance.sandbox_escapes import SandboxContract  # noqa: E402
from glidepath.testing.conformance.skill_contract import SkillContract  # noqa: E402
from glidepath.testing.conformance.source_contract import ToolSourceContract  # noqa: E402
from glidepath.testing.conformance.store_contract import SessionStoreContract  # noqa: E402
from glidepath.testing.conformance.turbulent_stores import TurbulentStoreContract, TurbulentWalletContract  # noqa: E402
from glidepath.testing.conformance.wallet_stores import WalletStoreContract  # noqa: E402

__all__ = [
    "AfterToolCallContract",
    "BeforeToolCallContract",
    "CallGuardContract",
    "CatalogContract",
    "ContextOverflowRecoveryContract",
    "ContextStrategyContract",
    "ContextTransformContract",
    "EvaluationStrategyContract",
    "EventObserverContract",
    "ExcerptsContract",
    "FollowUpContract",
    "InboxContract",
    "ModelContract",
    "PlanningCoordinatorContract",
    "ProtocolPolicyContract",
    "ProvenanceContract",
    "ResourceConstraintContract",
    "ReviewingCoordinatorContract",
    "SandboxContract",
    "SessionStoreContract",
    "SkillContract",
    "SteeringContract",
    "StopGuardContract",
    "TeamCoordinatorContract",
    "TokenEstimatorContract",
    "ToolGateContract",
    "ToolSourceContract",
    "TurbulentStoreContract",
    "TurbulentWalletContract",
    "WalletStoreContract",
]

CONTRACTS: Mapping[str, tuple[type[Contract], ...]] = MappingProxyType(
    {
        "model": (ModelContract,),
        "token_estimator": (TokenEstimatorContract,),
        "resource_constraint": (ResourceConstraintContract,),
        "protocol_policy": (ProtocolPolicyContract,),
        "context_strategy": (ContextStrategyContract,),
        "call_guard": (CallGuardContract,),
        "stop_guard": (StopGuardContract,),
        "session_store": (SessionStoreContract, TurbulentStoreContract),
        "session_catalog": (CatalogContract,),
        "session_excerpts": (ExcerptsContract,),
        "session_inbox": (InboxContract,),
        "wallet_store": (WalletStoreContract, TurbulentWalletContract),
        "team_coordinator": (TeamCoordinatorContract, ReviewingCoordinatorContract, PlanningCoordinatorContract),
        "evaluation_strategy": (EvaluationStrategyContract,),
        "before_tool_call": (BeforeToolCallContract, ProvenanceContract),
        "after_tool_call": (AfterToolCallContract,),
        "context_transform": (ContextTransformContract,),
        "event_observer": (EventObserverContract,),
        "steering": (SteeringContract,),
        "follow_up": (FollowUpContract,),
        "tool_gate": (ToolGateContract,),
        "context_overflow_recovery": (ContextOverflowRecoveryContract,),
        "tool_source": (ToolSourceContract,),
    }
)
"""The contracts of each extension point, by its name; the first applies to all."""

# What other packages use, imported when it is first asked for.
if TYPE_CHECKING:
    from glidepath.testing.conformance.contract import clauses_of as clauses_of
    from glidepath.testing.conformance.hook_contract import call_context as call_context

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(__name__, contract=("clauses_of",), hook_contract=("call_context",))
