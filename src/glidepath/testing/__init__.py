"""Fakes, virtual time and checks for testing an agent, a plugin or the runtime itself."""

from typing import TYPE_CHECKING

from glidepath._lazy import lazy_attributes
from glidepath.testing.model import ScriptedModel, ScriptError
from glidepath.testing.turns import (
    Turn,
    call,
    calls,
    empty,
    fail,
    hang,
    no_end,
    raw,
    refuse,
    say,
    thinking,
    truncated,
)

if TYPE_CHECKING:
    from glidepath.testing.choosing_loop import ScheduleError
    from glidepath.testing.clock import VirtualClock, VirtualTimeError, virtual
    from glidepath.testing.disk import DiskOperation, PowerCut, SimulatedDisk
    from glidepath.testing.leftovers import Work, no_leftovers, work
    from glidepath.testing.plain_transcript import transcript_errors
    from glidepath.testing.recorder import EventRecorder
    from glidepath.testing.schedules import Explored, Schedule, Schedules
    from glidepath.testing.simulated_link import SimulatedClock, SimulatedLink
    from glidepath.testing.turbulence import Happening, Turbulence, TurbulenceError, Weathered
    from glidepath.testing.upstream import ScriptedUpstream, UpstreamCall, UpstreamUsage

__all__ = [
    "DiskOperation",
    "EventRecorder",
    "Explored",
    "Happening",
    "PowerCut",
    "Schedule",
    "ScheduleError",
    "Schedules",
    "ScriptError",
    "ScriptedModel",
    "ScriptedUpstream",
    "SimulatedClock",
    "SimulatedDisk",
    "SimulatedLink",
    "Turbulence",
    "TurbulenceError",
    "Turn",
    "UpstreamCall",
    "UpstreamUsage",
    "VirtualClock",
    "VirtualTimeError",
    "Weathered",
    "Work",
    "call",
    "calls",
    "empty",
    "fail",
    "hang",
    "no_end",
    "no_leftovers",
    "raw",
    "refuse",
    "say",
    "thinking",
    "transcript_errors",
    "truncated",
    "virtual",
    "work",
]

if TYPE_CHECKING:
    from glidepath.testing.clock import VirtualLoop as VirtualLoop
    from glidepath.testing.grammar import grammar_errors as grammar_errors
    from glidepath.testing.leftovers import live_work as live_work

if not TYPE_CHECKING:  # type checkers see only public names
    __getattr__ = lazy_attributes(
        __name__,
        grammar=("grammar_errors",),
        clock=("VirtualLoop", "VirtualClock", "VirtualTimeError", "virtual"),
        disk=("DiskOperation", "PowerCut", "SimulatedDisk"),
        leftovers=("live_work", "Work", "no_leftovers", "work"),
        plain_transcript=("transcript_errors",),
        recorder=("EventRecorder",),
        choosing_loop=("ScheduleError",),
        schedules=("Explored", "Schedule", "Schedules"),
        simulated_link=("SimulatedClock", "SimulatedLink"),
        turbulence=("Happening", "Turbulence", "TurbulenceError", "Weathered"),
        upstream=("ScriptedUpstream", "UpstreamCall", "UpstreamUsage"),
    )


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


# What other packages use, imported when it is first asked for.
if TYPE_CHECKING:
    from glidepath.testing.model import RequestMeasure as RequestMeasure
    from glidepath.testing.recorder import compact_line as compact_line
    from glidepath.testing.simulator import simulate as simulate
    from glidepath.testing.simulator.page import (
        draw_bars as draw_bars,
        draw_tiles as draw_tiles,
        frame_page as frame_page,
    )
    from glidepath.testing.simulator.refly import RecordedRun as RecordedRun
    from glidepath.testing.simulator.whatif import (
        Flown as Flown,
        choose_values as choose_values,
        flown_runs as flown_runs,
    )
    from glidepath.testing.specimens import SPECIMENS as SPECIMENS

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(
        __name__,
        __getattr__,
        model=("RequestMeasure",),
        recorder=("compact_line",),
        simulator=("simulate",),
        specimens=("SPECIMENS",),
        **{
            "simulator.page": ("draw_bars", "draw_tiles", "frame_page"),
            "simulator.refly": ("RecordedRun",),
            "simulator.whatif": ("Flown", "choose_values", "flown_runs"),
        },
    )
