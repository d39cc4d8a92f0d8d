"""Plays a trace of tool calls to the guards as the runtime does: what was withdrawn is refused, then landed on."""

import json
from typing import NamedTuple

from glidepath.guards import GuardrailsConfig, GuardSet
from glidepath.messages import ToolCall, ToolResultMessage
from glidepath.spi import Step


class Traits(NamedTuple):
    polling: bool = False
    read_only: bool = False


TOOLS = {
    **dict.fromkeys(
        ("search", "fetch", "edit", "write", "run", "run_tests", "send", "click", "query", "fail"), Traits()
    ),
    **dict.fromkeys(("read", "list_dir", "grep"), Traits(read_only=True)),
    **dict.fromkeys(("wait", "job_status"), Traits(polling=True, read_only=True)),
}


class Call(NamedTuple):
    name: str
    result: object
    kind: str | None
    arguments: dict
    malformed: str | None = None


def ok(name, result, **arguments):
    return Call(name, result, None, arguments)


def err(name, kind="RuntimeError", text=None, **arguments):
    return Call(name, text or f"{kind}: no", kind, arguments)


def malformed(name, raw):
    return Call(name, "the arguments are not JSON", "invalid_arguments", {}, raw)


class Trip(NamedTuple):
    step: int
    guard: str
    action: str
    tools: tuple[str, ...]
    when: str


class Player:
    """One run. `reload_every_step` makes new guards from the stored state before every step."""

    def __init__(self, config=None, *, wound_down=False, reload_every_step=False):
        self.config = config or GuardrailsConfig()
        self.metadata = {}
        self.wound_down = wound_down
        self.reload = reload_every_step
        self.guards = GuardSet(self.config).make_call_guards(self.metadata)
        self.stop_guards = GuardSet(self.config).make_stop_guards(self.metadata)
        self.withdrawn = frozenset()
        self.trips: list[Trip] = []
        self.verdicts = []
        self.steps = 0
        self.landed = False

    def play(self, trace):
        for batch in trace:
            if self.landed:
                break
            self.one(batch if isinstance(batch, list) else [batch])
        return self.trips

    def one(self, batch):
        self.steps += 1
        if self.reload:
            self.metadata = json.loads(json.dumps(self.metadata))
            self.guards = GuardSet(self.config).make_call_guards(self.metadata, resumed=True)
            self.stop_guards = GuardSet(self.config).make_stop_guards(self.metadata, resumed=True)
        calls = tuple(ToolCall(f"c{n}", call.name, call.arguments, call.malformed) for n, call in enumerate(batch))
        step = Step(calls, TOOLS, self.withdrawn, self.wound_down)
        if calls and all(call.name in self.withdrawn for call in calls):
            self.trips.append(
                Trip(self.steps, "withdrawn", "land", tuple(sorted({call.name for call in calls})), "before")
            )
            self.landed = True
            return
        for guard in self.guards:
            verdict = guard.before and guard.before(step)
            if verdict is not None:
                self._apply(guard, verdict, "before")
                return
        results = tuple(self._result(call, batch[n]) for n, call in enumerate(calls))
        for guard in self.guards:
            verdict = guard.after(step, results)
            if verdict is not None:
                self._apply(guard, verdict, "after")

    def _result(self, call, told):
        if call.name in self.withdrawn:
            return ToolResultMessage(call.id, call.name, "Not executed: withdrawn.", is_error=True, kind="withdrawn")
        return ToolResultMessage(call.id, call.name, told.result, is_error=told.kind is not None, kind=told.kind)

    def _apply(self, guard, verdict, when):
        self.verdicts.append(verdict)
        self.trips.append(Trip(self.steps, guard.name, verdict.action, tuple(sorted(verdict.tools)), when))
        if verdict.action == "withdraw":
            self.withdrawn |= verdict.tools
        self.landed = self.landed or verdict.action == "land"


def ladder(trace, config=None, **how):
    """What happened, as (step, action) pairs."""
    return [(trip.step, trip.action) for trip in Player(config, **how).play(trace)]
