"""Context strategies and guards that break one clause each."""

from typing import ClassVar

from tests.contracts.examine import breaks

from glidepath.conformance import CallGuardContract, ContextStrategyContract, StopGuardContract
from glidepath.context import SlidingWindow
from glidepath.guards import RepetitionGuard
from glidepath.guards.stops import EmptyAnswerGuard
from glidepath.messages import AssistantMessage, UserMessage
from glidepath.spi import GuardVerdict, Recovery, Shaped, Stop
from glidepath.testing.conformance.guard_contract import batch
from glidepath.values import replace

# --- context ------------------------------------------------------------------------------------------------------


class StrategyTrial(ContextStrategyContract):
    """The contract and the strategy in one."""

    name = "trial"

    def make_strategy(self):
        return type(self)()

    def shape(self, messages, sizes, budget, pinned):
        return SlidingWindow().shape(messages, sizes, budget, pinned)


def without(view, *places):
    kept = [number for number in range(len(view.messages)) if number not in places]
    return Shaped(
        messages=[view.messages[number] for number in kept],
        sizes=[view.sizes[number] for number in kept],
        dropped=view.dropped + len(view.messages) - len(kept),
    )


@breaks("CTX-1")
class Generous(StrategyTrial):
    """Takes half as much again as it is given."""

    def shape(self, messages, sizes, budget, pinned):
        return super().shape(messages, sizes, budget * 3 // 2 if budget > 250 else budget, pinned)


@breaks("CTX-2", "CTX-3", "CTX-12")
class CutsAnywhere(StrategyTrial):
    """Cuts where it is full, also between a call and its result."""

    def shape(self, messages, sizes, budget, pinned):
        view = super().shape(messages, sizes, budget, pinned)
        first = next((n for n, item in enumerate(view.messages) if n and isinstance(item, AssistantMessage)), None)
        return view if not view.dropped or first is None else without(view, first)


@breaks("CTX-3", "CTX-2")
class ForgetsTheTask(StrategyTrial):
    """Keeps the newest, whatever is pinned."""

    def shape(self, messages, sizes, budget, pinned):
        view = super().shape(messages, sizes, budget, pinned)
        later = [n for n, item in enumerate(view.messages[:-1]) if len(pinned) > 1 and item is messages[pinned[1]]]
        return without(view, *later)


@breaks("CTX-4", "CTX-2", "CTX-12")  # the last message may be the result of the call before it
class PinsLast(StrategyTrial):
    """Shows the task after everything else but the last."""

    def shape(self, messages, sizes, budget, pinned):
        view = super().shape(messages, sizes, budget, pinned)
        if not view.dropped or len(view.messages) < 4 or budget == 100:
            return view
        order = [*range(1, len(view.messages) - 1), 0, len(view.messages) - 1]
        return Shaped(
            messages=[view.messages[n] for n in order], sizes=[view.sizes[n] for n in order], dropped=view.dropped
        )


@breaks("CTX-5")
class AlwaysCuts(StrategyTrial):
    """Makes room where there is enough."""

    def shape(self, messages, sizes, budget, pinned):
        return super().shape(messages, sizes, min(budget, 4_000) if budget < 10**6 else 500, pinned)


@breaks("CTX-6")
class MisCounts(StrategyTrial):
    """Never says that anything is left out."""

    def shape(self, messages, sizes, budget, pinned):
        return replace(super().shape(messages, sizes, budget, pinned), dropped=0)


@breaks("CTX-7", "CTX-10", "CTX-11", "CTX-12")
class LivesInThePast(StrategyTrial):
    """Keeps the oldest."""

    def shape(self, messages, sizes, budget, pinned):
        last = max((n for n, item in enumerate(messages) if isinstance(item, AssistantMessage)), default=0)
        whole = sum(sizes) if len(messages) < 500 else budget + 1
        if whole <= budget or last == 0 or len(messages) > 500:
            return super().shape(messages, sizes, budget, pinned)
        view = super().shape(messages[:last], sizes[:last], budget, [place for place in pinned if place < last])
        return replace(view, dropped=view.dropped + len(messages) - last)


@breaks("CTX-8")
class Wanders(StrategyTrial):
    """Shows something else each time."""

    asked = 0

    def shape(self, messages, sizes, budget, pinned):
        self.asked += 1
        return super().shape(messages, sizes, budget - 60 * (self.asked % 4) if self.asked > 1 else budget, pinned)


@breaks("CTX-9")
class Prunes(StrategyTrial):
    """Takes what is left out from the transcript."""

    def shape(self, messages, sizes, budget, pinned):
        view = super().shape(messages, sizes, budget, pinned)
        if len(pinned) > 1 and budget == 700 and len(messages) == 1 + 40 + 54 + 8:
            messages[:] = view.messages
        return view


@breaks("CTX-10", "CTX-3", "CTX-12")
class Refuses(StrategyTrial):
    """Raises when it cannot fit."""

    def shape(self, messages, sizes, budget, pinned):
        view = super().shape(messages, sizes, budget, pinned)
        if view.tokens > budget:
            raise ValueError("it does not fit")
        return view


@breaks("CTX-11")
class ReadsEverything(StrategyTrial):
    """Measures the whole transcript every time."""

    def shape(self, messages, sizes, budget, pinned):
        sum(sizes)
        return super().shape(messages, sizes, budget, pinned)


@breaks("CTX-12")
class LosesResults(StrategyTrial):
    """Leaves out a batch that does not fit, though it has just been answered."""

    def shape(self, messages, sizes, budget, pinned):
        view = super().shape(messages, sizes, budget, pinned)
        fits = view.tokens <= budget or isinstance(messages[-1], UserMessage) or budget == 1
        return view if fits else Shaped(messages=[messages[0]], sizes=[sizes[0]], dropped=len(messages) - 1)


# --- guards on calls ----------------------------------------------------------------------------------------------


class GuardTrial(CallGuardContract):
    """The guard is made by the trial, with something in between."""

    name = "trial"
    inner = None

    def make_guard(self, state):
        made = type(self)()
        made.inner = RepetitionGuard(3, self.kept(state))
        return made

    def kept(self, state):
        return state

    def provoking(self, number):
        return batch("lookup", {"query": "the same"}, f"c{number}", "the same page")

    def before(self, step):
        return self.said(self.inner.before(step))

    def after(self, step, results):
        return self.said(self.inner.after(step, results))

    def said(self, verdict):
        return verdict


@breaks("GUARD-1")
class Nameless(GuardTrial):
    """Has no name."""

    name = ""


@breaks("GUARD-2", "GUARD-7")
class Suspicious(GuardTrial):
    """Minds every step."""

    def after(self, step, results):
        nudge = GuardVerdict(action="nudge", reason="so many", notice="Stop it.", notice_reason="x")
        return super().after(step, results) or (nudge if step.calls[0].name in ("tool", "tool1") else None)


@breaks("GUARD-3", "GUARD-8")
class Asleep(GuardTrial):
    """Never says anything."""

    def said(self, verdict):
        return None


@breaks("GUARD-4")
class Grunts(GuardTrial):
    """Nudges without a word."""

    def said(self, verdict):
        return replace(verdict, notice="") if verdict is not None else None


@breaks("GUARD-5", "GUARD-6")
class GivesIn(GuardTrial):
    """Becomes milder."""

    withdrawn = 0

    def said(self, verdict):
        if verdict is not None and verdict.action == "land" and not self.withdrawn:
            self.withdrawn += 1
            return GuardVerdict(action="nudge", reason="once more", notice="Please stop.", notice_reason="x")
        return verdict


@breaks("GUARD-6")
class Forgets(GuardTrial):
    """Keeps its state to itself."""

    def kept(self, state):
        return {}


@breaks("GUARD-7", "GUARD-2")
class Gossips(GuardTrial):
    """Has one state for all runs."""

    shared = None

    def make_guard(self, state):
        kind = type(self)
        kind.shared = kind.shared if kind.shared is not None else []
        return super().make_guard(state)

    def after(self, step, results):
        self.shared.append(step)
        nudge = GuardVerdict(action="nudge", reason="so many", notice="Stop it.", notice_reason="x")
        verdict = super().after(step, results)
        return verdict or (nudge if len(self.shared) > 12 and step.calls[0].name.startswith("tool") else None)


@breaks("GUARD-8")
class Trusting(GuardTrial):
    """Takes whatever it finds in its state."""

    def kept(self, state):
        sum(len(value) for value in state.values())
        return state


# --- guards on ends -----------------------------------------------------------------------------------------------


class StopTrial(StopGuardContract):
    """The guard is made by the trial, with something in between."""

    name = "trial"
    bad_end = Stop(reply=AssistantMessage(()), text=" ", truncated=False, recent_error=False)
    limit = 2

    def make_guard(self, state):
        made = type(self)()
        made.inner = EmptyAnswerGuard(self.limit, self.kept(state))
        return made

    def kept(self, state):
        return state

    def recover(self, stop):
        return self.inner.recover(stop)

    def reset(self):
        self.inner.reset()


@breaks("STOP-1")
class NamelessStop(StopTrial):
    """Has no name."""

    name = ""


@breaks("STOP-2")
class NeverContent(StopTrial):
    """Answers good ends, too."""

    def recover(self, stop):
        return self.inner.recover(stop) or Recovery(reason="more", message="Go on.")


@breaks("STOP-3")
class SaysWhy(StopTrial):
    """Gives a reason, and nothing to do."""

    def recover(self, stop):
        found = self.inner.recover(stop)
        return found if found is None or found.fail else Recovery(reason="empty")


@breaks("STOP-4")
class NeverGivesUp(StopTrial):
    """Asks for ever."""

    limit = 10**6


@breaks("STOP-5")
class BearsAGrudge(StopTrial):
    """Does not forget."""

    def reset(self):
        pass


@breaks("STOP-6")
class ForgetfulStop(StopTrial):
    """Keeps its state to itself."""

    def kept(self, state):
        return {}


@breaks("STOP-7", "STOP-5")
class OnePot(StopTrial):
    """Has one state for all runs."""

    pot: ClassVar = {}

    def kept(self, state):
        return self.pot


@breaks("STOP-8")
class TrustingStop(StopTrial):
    """Takes whatever it finds in its state."""

    def kept(self, state):
        state.get("used", 0) + 0
        return state
