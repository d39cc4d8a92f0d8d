"""One run: its state, its plan, its watchdog."""

from typing import TYPE_CHECKING

from glidepath.late import lazy_attributes
from glidepath.outcome import Verdict
from glidepath.run.abandoned import await_until_cancelled
from glidepath.run.cancel import CancelToken
from glidepath.run.hooks import HookFault, Opinion, ask_until_opinion, make_context, report, take_all, to_read
from glidepath.run.inside import INHERIT, CallScope, Inherit
from glidepath.run.interrupting import await_interruptibly, await_interruptibly_within
from glidepath.run.interrupts import Interrupt, LetGo, Signal, Stopped, Why
from glidepath.run.plan import Ending, Plan, Touchdown
from glidepath.run.snapshot import Offspring, Resumption, restore_meter, snapshot_of
from glidepath.run.state import Run
from glidepath.run.stream import HIGH_WATER, RunStream
from glidepath.run.watch import Watch

if TYPE_CHECKING:
    from glidepath.run.decisions import Decision, answer, approve, deny

__all__ = [
    "HIGH_WATER",
    "INHERIT",
    "CallScope",
    "CancelToken",
    "Decision",
    "Ending",
    "HookFault",
    "Inherit",
    "Interrupt",
    "LetGo",
    "Offspring",
    "Opinion",
    "Plan",
    "Resumption",
    "Run",
    "RunStream",
    "Signal",
    "Stopped",
    "Touchdown",
    "Verdict",
    "Watch",
    "Why",
    "answer",
    "approve",
    "ask_until_opinion",
    "await_interruptibly",
    "await_interruptibly_within",
    "await_until_cancelled",
    "deny",
    "make_context",
    "report",
    "restore_meter",
    "snapshot_of",
    "take_all",
    "to_read",
]

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(__name__, decisions=("Decision", "answer", "approve", "deny"))
