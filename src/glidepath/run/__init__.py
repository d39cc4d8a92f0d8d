"""One run: its state, its plan, its watchdog."""

from typing import TYPE_CHECKING

from glidepath.late import late
from glidepath.outcome import Snapshot, Verdict
from glidepath.run.abandoned import closable
from glidepath.run.cancel import CancelToken
from glidepath.run.hooks import HookFault, Opinion, ToRead, about, opinion, report, take_all, to_read
from glidepath.run.inside import INHERIT, Inherit, LostChild, Place
from glidepath.run.interrupting import interruptible, interruptible_within
from glidepath.run.opening import open_state
from glidepath.run.plan import Ending, Plan, Route, SoftLimit, Touchdown
from glidepath.run.snapshot import Offspring, Resumption, place, restore_meter, snapshot_of
from glidepath.run.state import Run
from glidepath.run.stream import HIGH_WATER, RunStream
from glidepath.run.watch import Interrupt, LetGo, Signal, Stopped, Watch, Why, interrupt_by_hand

if TYPE_CHECKING:
    from glidepath.run.decisions import Decision, answer, approve, deny
    from glidepath.run.switches import Lookout, Lookouts, Sentry, Switch

__all__ = [
    "HIGH_WATER",
    "INHERIT",
    "CancelToken",
    "Decision",
    "Ending",
    "HookFault",
    "Inherit",
    "Interrupt",
    "LetGo",
    "Lookout",
    "Lookouts",
    "LostChild",
    "Offspring",
    "Opinion",
    "Place",
    "Plan",
    "Resumption",
    "Route",
    "Run",
    "RunStream",
    "Sentry",
    "Signal",
    "Snapshot",
    "SoftLimit",
    "Stopped",
    "Switch",
    "ToRead",
    "Touchdown",
    "Verdict",
    "Watch",
    "Why",
    "about",
    "answer",
    "approve",
    "closable",
    "deny",
    "interrupt_by_hand",
    "interruptible",
    "interruptible_within",
    "open_state",
    "opinion",
    "place",
    "report",
    "restore_meter",
    "snapshot_of",
    "take_all",
    "to_read",
]

if not TYPE_CHECKING:
    __getattr__ = late(
        __name__,
        decisions=("Decision", "answer", "approve", "deny"),
        switches=("Lookout", "Lookouts", "Sentry", "Switch"),
    )
