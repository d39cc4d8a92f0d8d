"""The prompt cache is money: what one request of a run has sent stands at the beginning of the next one."""

from functools import cache

import pytest

from glidepath import Agent, Limits, LoopOutcome, tool
from glidepath.context import SpillResults
from glidepath.events import ContextShaped, GateApplied, GuardTripped, StreamStarted
from glidepath.messages import AssistantMessage, ReasoningBlock, TextBlock, ToolCall, ToolResultMessage, UserMessage
from glidepath.models import ModelRequest, ToolSpec

from .dialects import DIALECTS, Anthropic, Chat, Google, Responses
from .prefix import GATED, TURNS, cached, fly
from .server import Answer, Wire, run

every = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
SEARCH = ToolSpec("search", "Search.", {"type": "object", "properties": {"q": {"type": "string"}}})
WRITE = ToolSpec("write", "Write.", {"type": "object", "properties": {}})


@cache
def _flown(kind, window):
    return run(lambda: fly(kind(), window=window))


def flown(dialect, window=None):
    return _flown(type(dialect), window)


def body_of(dialect, **fields):
    return dialect.model("http://127.0.0.1:1")._body(ModelRequest(**fields))


@every
def test_a_gate_a_withdrawal_and_a_landing_keep_the_prefix(dialect):
    flight = flown(dialect)
    assert (flight.result.outcome, flight.result.landing_calls) == (LoopOutcome.WRAPPED_UP, 1)
    assert flight.shaped() == []
    assert len(flight.bodies) == TURNS + 1
    assert min(flight.kept()) >= 0.95


@every
def test_a_compaction_breaks_the_prefix_once_and_nothing_else_does(dialect):
    flight = flown(dialect, 5_500)
    kept = dict(enumerate(flight.kept(), 1))  # by the place of the later request
    assert len(flight.shaped()) == 1
    assert all(kept.pop(place) < 0.95 for place in flight.shaped())
    assert min(kept.values()) >= 0.95


@every
@pytest.mark.parametrize("strategy", ["compact", "clear"])
def test_each_break_is_reported_with_what_is_left_of_the_prefix(dialect, strategy):
    flight = run(lambda: fly(dialect, window=5_500, context_strategy=strategy))
    kept = dict(enumerate(flight.kept(), 1))
    broken = {place: kept.pop(place) for place in flight.shaped()}
    shaped = [event for event in flight.events if type(event) is ContextShaped]
    assert min(kept.values()) >= 0.95, "nothing else breaks it"
    assert len(shaped) == len(broken) > 0
    for event, share in zip(shaped, broken.values(), strict=True):
        assert event.kept_tokens > 0
        assert event.resent_tokens > 0
        whole = event.before_tokens - event.after_tokens + event.kept_tokens + event.resent_tokens
        before = event.kept_tokens / whole
        assert abs(before - share) < 0.1, "the event says what the bodies show"


@every
def test_a_small_window_breaks_the_prefix_often_says_so_each_time_and_least_when_results_are_spilled(dialect, tmp_path):
    breaks = {}
    for name in ("compact", "clear", "spill"):
        spill = SpillResults(tmp_path, over=200, shown=60) if name == "spill" else None
        strategy = "compact" if spill else name
        flight = run(lambda spill=spill, strategy=strategy: fly(
            dialect, window=3_600, spill=spill, context_strategy=strategy
        ))  # fmt: skip
        broken = {place for place, share in enumerate(flight.kept(), 1) if share < 0.95}
        assert broken == set(flight.shaped()), "each break is reported, and what is reported is a break"
        breaks[name] = len(broken)
    assert breaks["compact"] >= 3
    assert breaks["compact"] >= breaks["clear"] > breaks["spill"]


def test_the_price_of_a_break_is_that_of_the_cache_that_is_lost():
    flight = run(lambda: fly(Anthropic(), window=5_500, prices={"claude-sonnet-4-5": ("3", "15", "0.3", "3.75")}))
    (event,) = [event for event in flight.events if type(event) is ContextShaped]
    assert event.picodollars == event.resent_tokens * 3_450_000


@every
def test_the_flight_had_a_gate_a_withdrawal_and_a_landing_without_tools(dialect):
    flight = flown(dialect)
    tripped = [event for event in flight.events if type(event) is GuardTripped]
    assert [(event.action, event.tools) for event in tripped if event.action == "withdraw"] == [
        ("withdraw", ("status",))
    ]
    assert sum(type(event) is GateApplied for event in flight.events) == len(GATED)
    assert [event.landing for event in flight.events if type(event) is StreamStarted] == [False] * TURNS + [True]


@pytest.mark.parametrize("window", [None, 5_500])
def test_anthropics_tool_choice_never_changes_because_that_costs_the_message_cache(window):
    flight = flown(Anthropic(), window)
    assert [body["tool_choice"] for body in flight.bodies] == [{"type": "auto"}] * (TURNS + 1)


@pytest.mark.parametrize(
    ("dialect", "choice"),
    [
        (Chat(), lambda body: body["tool_choice"]),
        (Responses(), lambda body: body["tool_choice"]),
        (Google(), lambda body: body["toolConfig"]["functionCallingConfig"]["mode"].lower()),
    ],
    ids=["openai-chat", "openai-responses", "google"],
)
def test_the_landing_call_forbids_calls_where_that_costs_nothing(dialect, choice):
    flight = flown(dialect)
    assert [choice(body) for body in flight.bodies] == ["auto"] * (TURNS - 1) + [
        "none"
    ] * 2  # the last turn has no tools left


@every
def test_a_request_without_defined_tools_declares_its_tools(dialect):
    fields = {"messages": [UserMessage("hi")], "tools": (SEARCH,)}
    assert body_of(dialect, **fields) == body_of(dialect, **fields, defined_tools=(SEARCH,))


@every
def test_what_is_defined_is_declared_and_not_what_may_be_called(dialect):
    fields = {"messages": [UserMessage("hi")], "defined_tools": (SEARCH, WRITE)}
    bodies = [body_of(dialect, **fields, tools=tools) for tools in ((SEARCH, WRITE), (WRITE,), ())]
    assert len({cached(dialect, body) for body in bodies}) == 1


def test_a_landing_in_a_schema_of_an_older_gemini_gives_up_its_tools():
    """Tools and a schema together are refused there, and an answer that fits is worth more than the cache."""
    model = Google().model("http://127.0.0.1:1")
    model.name = "gemini-2.5-flash"
    schema = {"type": "object", "properties": {}}
    request = ModelRequest(messages=[UserMessage("hi")], defined_tools=(SEARCH,), output_schema=schema)
    body = model._body(request)
    assert "tools" not in body
    assert body["generationConfig"]["responseJsonSchema"] == schema


@pytest.mark.parametrize("text", ["", "Half of it is done. "])
def test_a_call_in_the_landing_call_is_not_run_and_its_text_is_kept(text):
    """Anthropic is not told that no tool may be called: the model may try."""
    ran = []

    @tool
    def look() -> str:
        """Look."""
        ran.append(1)
        return "seen"

    dialect = Anthropic()

    def turn(number, said):
        return Answer([*dialect.text(said), *dialect.calls((f"c{number}", "look", "{}")), *dialect.end("tools")])

    async def fly_once():
        async with Wire([turn(1, "I look. "), turn(2, text)]) as wire:
            model = dialect.model(wire.url)
            result = await Agent(model=model, tools=[look], limits=Limits(max_iterations=1)).run("go")
            await model.aclose()
            return result

    result = run(fly_once)
    assert (result.outcome, result.partial, result.landing_calls) == (LoopOutcome.CUT_OFF, True, 1)
    assert result.text == (text or "I look. ")
    assert len(ran) == 1
    assert result.messages[-1].is_error


def test_what_a_person_says_in_a_tool_loop_takes_no_reasoning_out_of_it():
    thought = ReasoningBlock(opaque='{"at":[0,0],"item":{"reasoning_content":"hm"}}', vendor="openai-chat")
    loop = [
        UserMessage("go"),
        AssistantMessage((thought, ToolCall("c1", "search", {}))),
        ToolResultMessage("c1", "search", "found"),
    ]
    chat = Chat()
    before = body_of(chat, messages=loop)["messages"]
    assert before[1]["reasoning_content"] == "hm"
    assert body_of(chat, messages=[*loop, UserMessage("be quick")])["messages"][: len(before)] == before


def test_a_finished_tool_loop_is_sent_without_its_reasoning():
    thought = ReasoningBlock(opaque='{"at":[0,0],"item":{"reasoning_content":"hm"}}', vendor="openai-chat")
    loop = [
        UserMessage("go"),
        AssistantMessage((thought, ToolCall("c1", "search", {}))),
        ToolResultMessage("c1", "search", "found"),
        AssistantMessage((TextBlock("done"),)),
        UserMessage("and now?"),
    ]
    assert "reasoning_content" not in body_of(Chat(), messages=loop)["messages"][1]
