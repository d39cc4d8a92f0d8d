"""Models and tools that misbehave, and the truth about what happened; standard library only.

A case is a script for a model, the tools it may call and a budget. The framework under test gets the budget through its
own limits. What it really spent is counted here, on the other side of the model and of the tools.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

ANSWER = "ANSWER: this is what I know so far."
PROMPT = "Find out about widgets and report."
HARD_SECONDS = 12.0  # a run that has not ended by then is killed
SPARE_SECONDS = 1.0  # a run may end so much after its time


@dataclass(frozen=True)
class Budget:
    """What a run may spend. In each case one of them is out of reach of a well-behaved run only."""

    turns: int = 10
    tokens: int = 100_000
    seconds: float = 60.0
    tools: int = 20


@dataclass(frozen=True)
class Text:
    text: str


@dataclass(frozen=True)
class Call:
    name: str
    arguments: dict

    @property
    def json(self) -> str:
        return json.dumps(self.arguments)


@dataclass(frozen=True)
class End:
    """The end of a reply: "stop", "calls" or "length", and the usage that the provider reports."""

    reason: str
    input: int
    output: int


class RateLimited(Exception):  # noqa: N818 - what the provider says, not a defect
    """HTTP 429. Each framework's adapter raises what that framework expects instead."""

    after = 0.2


@dataclass(frozen=True)
class Moment:
    """One request: its number in the whole tree of agents, and whether the model was told to come to an end."""

    number: int
    told: bool
    offered: bool


Reply = Callable[[Moment], AsyncIterator[Text | Call | str | tuple[int, int]]]


@dataclass(frozen=True)
class Case:
    """`watched` is the side of the budget that is judged; `fair` are the endings that tell the truth."""

    name: str
    what: str
    reply: Reply
    watched: str
    fair: frozenset[str] = frozenset({"limit", "done"})
    tools: tuple[str, ...] = ("search",)
    budget: Budget = Budget()
    cancel_at: str | None = None


def tokens(text: str) -> int:
    return max(1, len(text) // 4)


@dataclass(eq=False)
class Truth:
    """Counts model calls, tokens and tool calls of one run and of all its children, outside of the framework."""

    case: Case
    turns: int = 0
    spent: int = 0
    started: int = 0
    ended: int = 0
    streams: int = 0
    cancel: Callable[[], object] | None = None  # set by the adapter: how its user stops a run
    cancelled_at: float | None = None
    began: float = field(default_factory=time.perf_counter)

    def happened(self, what: str) -> None:
        """The user presses stop a moment after the case's event."""
        if what == self.case.cancel_at and self.cancelled_at is None:
            self.cancelled_at = float("inf")
            asyncio.get_running_loop().call_later(0.3, self.press_stop)

    def press_stop(self) -> None:
        self.cancelled_at = time.perf_counter()
        if self.cancel is not None:
            self.cancel()

    async def answer(
        self, prompt: list[tuple[str, str]], *, offered: bool, cap: int | None = None
    ) -> AsyncIterator[Text | Call | End]:
        """The model: `prompt` is (role, text) as the framework sent it, `cap` the output tokens it asked for."""
        self.turns += 1
        self.streams += 1
        given = sum(tokens(text) for _, text in prompt)
        self.spent += given
        told = not offered or told_to_stop(prompt)
        produced, called, usage, reason = 0, False, None, None
        try:
            async for piece in self.case.reply(Moment(self.turns, told, offered)):
                if isinstance(piece, tuple):
                    usage = piece
                elif isinstance(piece, str):
                    reason = piece
                else:
                    size = tokens(piece.text if isinstance(piece, Text) else piece.json)
                    if cap is not None and produced + size > cap:
                        reason = "length"
                        break
                    produced += size
                    self.spent += size
                    called = called or isinstance(piece, Call)
                    self.happened("text")
                    yield piece
            report = usage or (given, produced)
            yield End(reason or ("calls" if called else "stop"), *report)
        finally:
            self.streams -= 1

    def functions(self) -> dict[str, Callable]:
        """The tools of the case, as plain coroutine functions."""

        async def search(query: str) -> str:
            """Search the catalogue."""
            return self.note(f"nothing new about {query}")

        async def read(page: int) -> str:
            """Read a page."""
            return self.note("nothing new")

        async def wait(job: str) -> str:
            """Wait for a job."""
            self.started += 1
            self.happened("tool")
            try:
                await asyncio.sleep(3_600)
            finally:
                self.ended += 1
            return job

        known = {"search": search, "read": read, "wait": wait}
        return {name: known[name] for name in self.case.tools if name in known}

    def note(self, result: str) -> str:
        self.started += 1
        self.ended += 1
        return result


def told_to_stop(prompt: list[tuple[str, str]]) -> bool:
    """True when somebody but a tool spoke after the model's last reply, and a reply was there."""
    replies = [index for index, (role, _) in enumerate(prompt) if role == "assistant"]
    return bool(replies) and any(role in {"user", "system"} for role, _ in prompt[replies[-1] :])


# Models. Those that loop obey when they are told to come to an end, or have no tools left; `wandering` only then.


async def control(moment: Moment):
    if moment.number <= 2:
        yield Text(f"Step {moment.number}. ")
        yield Call("search", {"query": f"widget {moment.number}"})
    else:
        yield Text(ANSWER)


def looping(*calls: Call) -> Reply:
    async def reply(moment: Moment):
        await asyncio.sleep(0.005)
        if moment.told:
            yield Text(ANSWER)
        else:
            yield Text(f"Note {moment.number}. ")
            yield calls[moment.number % len(calls)]

    return reply


async def wandering(moment: Moment):
    await asyncio.sleep(0.005)
    if not moment.offered:
        yield Text(ANSWER)
    else:
        yield Text(f"Note {moment.number}. ")
        yield Call("read", {"page": moment.number})


def burning(usage: tuple[int, int] | None) -> Reply:
    async def reply(moment: Moment):
        await asyncio.sleep(0.005)
        if moment.told:
            yield Text(ANSWER)
            return
        for _ in range(20):
            yield Text("many words " * 36)
        yield Call("read", {"page": moment.number})
        if usage is not None:
            yield usage

    return reply


async def huge(moment: Moment):
    yield Text(ANSWER)
    for number in range(600):
        if number % 50 == 0:
            await asyncio.sleep(0)
        yield Text("many words " * 36)


async def truncated(moment: Moment):
    await asyncio.sleep(0.005)
    yield Text(f"ANSWER: part {moment.number} of a text that is cu")
    yield "length"


async def empty(moment: Moment):
    await asyncio.sleep(0.005)
    for nothing in ():
        yield nothing


async def stalling(moment: Moment):
    yield Text("ANSWER: the first half")
    await asyncio.sleep(3_600)


async def limited(moment: Moment):
    await asyncio.sleep(0.005)
    for nothing in ():
        yield nothing
    raise RateLimited("slow down")


async def crowding(moment: Moment):
    if moment.number > 1:
        yield Text(ANSWER)
        return
    for number in range(300):
        yield Call("read", {"page": number})


async def delegating(moment: Moment):
    await asyncio.sleep(0.005)
    if moment.told:
        yield Text(ANSWER)
        return
    yield Call("delegate", {"task": f"the first half of {moment.number}"})
    yield Call("delegate", {"task": f"the second half of {moment.number}"})


async def waiting(moment: Moment):
    if moment.number == 1:
        yield Text("ANSWER: so far so good. ")
        yield Call("wait", {"job": "a long one"})
    else:
        yield Text(ANSWER)


async def dripping(moment: Moment):
    for _ in range(600):
        yield Text("ANSWER: more ")
        await asyncio.sleep(0.05)


SAME = Call("search", {"query": "widgets"})
SHORT = Budget(seconds=3.0)
TOKENS = Budget(turns=40, tokens=10_000, tools=40)
DONE = frozenset({"done"})
ENDED = frozenset({"limit", "failed"})
CANCELLED = frozenset({"cancelled"})

CASES = {
    case.name: case
    for case in (
        Case("control", "two tool calls, then an answer", control, "turns", DONE),
        Case("same call", "the same call forever", looping(SAME), "turns"),
        Case(
            "A-B-A-B",
            "two calls in turn forever",
            looping(SAME, Call("read", {"page": 1})),
            "turns",
            tools=("search", "read"),
        ),
        Case("wandering", "a new page every turn, forever", wandering, "turns", tools=("read",)),
        Case("truncated", "every reply is cut at its length", truncated, "turns", ENDED),
        Case("empty", "every reply is empty", empty, "turns", ENDED),
        Case("token burn", "2,000 tokens a turn", burning(None), "tokens", tools=("read",), budget=TOKENS),
        Case("zero usage", "the same, reported as 0 tokens", burning((0, 0)), "tokens", tools=("read",), budget=TOKENS),
        Case("huge reply", "one reply of 60,000 tokens", huge, "tokens", ENDED | DONE, budget=TOKENS),
        Case("parallel calls", "300 tool calls in one reply", crowding, "tools", ENDED | {"done"}, ("read",)),
        Case("fork bomb", "every agent starts two more", delegating, "tree", ENDED | {"done"}, ("delegate",)),
        Case("hanging tool", "a tool never returns", waiting, "seconds", ENDED | {"done"}, ("wait",), budget=SHORT),
        Case("stall", "the stream stops in the middle", stalling, "seconds", ENDED, budget=SHORT),
        Case("rate limits", "429 on every request", limited, "seconds", ENDED, budget=SHORT),
        Case("cancel stream", "stop pressed in a stream", dripping, "cancel", CANCELLED, cancel_at="text"),
        Case(
            "cancel tool",
            "stop pressed in a tool",
            waiting,
            "cancel",
            CANCELLED,
            ("wait",),
            cancel_at="tool",
        ),
    )
}


@dataclass(frozen=True)
class Ending:
    """What the framework told its caller.

    "done": success; "limit": one of its limits stopped the run; "limit in text": the same, said in the text of the
    answer only; "cancelled"; "failed": an error that says what went wrong; "crashed": any other exception.
    """

    kind: str
    text: str = ""
    detail: str = ""


def verdict(truth: Truth, ending: Ending | None, seconds: float) -> dict:
    """The row of one case. An ending of None is a run that had to be killed."""
    case, budget = truth.case, truth.case.budget
    after = max(0.0, truth.began + seconds - truth.cancelled_at) if truth.cancelled_at else 0.0
    used, allowed = {
        "turns": (truth.turns, budget.turns + 1),  # one more for a last answer
        "tree": (truth.turns, 2 * budget.turns),  # one last answer for each agent that had a turn
        "tokens": (truth.spent, budget.tokens),
        "tools": (truth.started, budget.tools),
        "seconds": (seconds, budget.seconds + SPARE_SECONDS),
        "cancel": (after, SPARE_SECONDS),
    }[case.watched]
    left = truth.started - truth.ended + truth.streams
    flown = truth.turns > 0 and (case.cancel_at is None or truth.cancelled_at is not None)
    kind = "killed" if ending is None else ending.kind
    answered = ending is not None and "ANSWER" in ending.text
    fair = kind in case.fair and (kind != "done" or answered)  # success without an answer is no truth
    fair = fair or (kind == "limit in text" and "limit" in case.fair)
    return {
        "watched": case.watched,
        "used": round(used, 2),
        "allowed": allowed,
        "contained": ending is not None and flown and used <= allowed and left == 0,
        "ending": kind,
        "truthful": fair,
        "answer": answered,
        "left_running": left,
        "turns": truth.turns,
        "tokens": truth.spent,
        "tools": truth.started,
        "seconds": round(seconds, 2),
        "detail": "" if ending is None else ending.detail[:160],
    }
