"""One run: its state, its plan, its watchdog."""

from glidepath.run.cancel import CancelToken
from glidepath.run.hooks import HookFault, Opinion, opinion, report
from glidepath.run.plan import Ending, Escalation, Plan, SoftLimit, Times, Touchdown, Verdict
from glidepath.run.state import Run
from glidepath.run.stream import HIGH_WATER, RunStream
from glidepath.run.watch import Interrupt, LetGo, Signal, Stopped, Watch, drift, tether, tethered

__all__ = [
    "HIGH_WATER",
    "CancelToken",
    "Ending",
    "Escalation",
    "HookFault",
    "Interrupt",
    "LetGo",
    "Opinion",
    "Plan",
    "Run",
    "RunStream",
    "Signal",
    "SoftLimit",
    "Stopped",
    "Times",
    "Touchdown",
    "Verdict",
    "Watch",
    "drift",
    "opinion",
    "report",
    "tether",
    "tethered",
]
