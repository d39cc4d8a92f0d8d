"""One batch of calls: who runs, beside whom, how many, and who ends the run (SPEC 3, G6, G8)."""

import asyncio

import pytest

from glidepath import Agent, AgentState, ExecutionMode, Limits, LoopOutcome, Plugin, ProtocolPolicy, ToolResult, tool
from glidepath.errors import ToolError
from glidepath.events import GuardTripped, HookFailed, ToolEnded, ToolStarted
from glidepath.messages import ToolCall
from glidepath.spi import AfterDecision, Allow, Ask, Block, Replace
from glidepath.testing import EventRecorder, ScriptedModel, call, calls, transcript_errors, truncated, virtual
from glidepath.values import ResultKind, place_result

LIMITS = Limits(max_iterations=6)


class Workshop:
    """Tools that write down when they begin and end."""

    def __init__(self):
        self.log = []
        self.busy = self.most = 0

    async def work(self, name, seconds=1):
        self.log.append(f"{name} begins")
        self.busy += 1
        self.most = max(self.most, self.busy)
        try:
            await asyncio.sleep(seconds)
        finally:
            self.busy -= 1
            self.log.append(f"{name} ends")
        return name

    def tool(self, name, seconds=1, **options):
        @tool(name=name, **options)
        async def made(n: int = 0) -> str:
            return await self.work(name, seconds)

        return made


async def fly(script, tools, **settings):
    recorder = EventRecorder()
    settings = {"limits": LIMITS, "default_execution_mode": ExecutionMode.PARALLEL} | settings
    plugins = [*settings.pop("plugins", []), recorder.as_plugin()]
    with ScriptedModel(script) as model:
        result = await Agent(model=model, tools=tools, plugins=plugins, **settings).run("go")
    recorder.assert_legal()
    assert transcript_errors(result.messages) == []
    return result, recorder


def results(result):
    return [message for message in result.messages if message.role == "tool_result"]


def kinds(result):
    return [message.kind for message in results(result)]


# --- side by side ---------------------------------------------------------------------------------------------


@virtual
async def test_calls_run_side_by_side():
    shop = Workshop()
    result, _ = await fly([calls(*[call("a")] * 10), "done"], [shop.tool("a")])
    assert (result.elapsed, shop.most) == (1, 10)


@pytest.mark.parametrize(("width", "seconds"), [(1, 10), (3, 4), (16, 1)])
@virtual
async def test_at_most_so_many_run_at_a_time(width, seconds):
    shop = Workshop()
    result, _ = await fly([calls(*[call("a")] * 10), "done"], [shop.tool("a")], max_parallel_tools=width)
    assert (result.elapsed, shop.most) == (seconds, min(width, 10))


@virtual
async def test_a_batch_whose_results_come_in_order_looks_for_no_place_for_any_of_them(monkeypatch):
    """To look through the whole reply for each result takes half a second of a reply with two thousand calls."""
    looked = []
    monkeypatch.setattr(
        "glidepath.run.snapshot.place_result", lambda *given: looked.append(given) or place_result(*given)
    )
    names = [f"tool_{n}" for n in range(20)]
    shop = Workshop()
    result, _ = await fly([calls(*map(call, names)), "done"], [shop.tool(name) for name in names])
    assert ([message.text for message in results(result)], looked) == (names, [])


@virtual
async def test_sequential_mode_runs_one_after_the_other_in_source_order():
    shop = Workshop()
    tools = [shop.tool("a", 3), shop.tool("b", 1)]
    result, _ = await fly(
        [calls(call("a"), call("b"), call("a")), "done"], tools, default_execution_mode=ExecutionMode.SEQUENTIAL
    )
    assert shop.log == [f"{name} {what}" for name in "aba" for what in ("begins", "ends")]
    assert result.elapsed == 7


@virtual
async def test_one_exclusive_tool_makes_its_whole_batch_sequential():
    shop = Workshop()
    tools = [shop.tool("a"), shop.tool("alone", exclusive=True)]
    result, _ = await fly([calls(call("a"), call("alone"), call("a")), calls(call("a"), call("a", n=1)), "x"], tools)
    assert shop.log[:6] == [f"{name} {what}" for name in ("a", "alone", "a") for what in ("begins", "ends")]
    assert result.elapsed == 4, "the second batch has no exclusive tool"


@virtual
async def test_an_exclusive_call_that_does_not_run_makes_nothing_sequential():
    shop = Workshop()
    tools = [shop.tool("a"), shop.tool("alone", exclusive=True)]
    result, _ = await fly([calls(call("a"), call("a"), call("alone", wrong=1)), "done"], tools)
    assert (result.elapsed, kinds(result)) == (1, [None, None, "invalid_arguments"])


# --- one failure stops the others -----------------------------------------------------------------------------


@virtual
async def test_a_failing_tool_can_abort_its_siblings():
    shop = Workshop()

    @tool(aborts_siblings_on_error=True)
    async def fragile() -> str:
        await asyncio.sleep(1)
        raise ToolError("it broke")

    batch = calls(call("a"), call("fragile"), call("long"), call("long"), call("long"))
    tools = [shop.tool("a", 0.5), fragile, shop.tool("long", 10)]
    result, recorder = await fly([batch, "done"], tools, max_parallel_tools=3)
    assert kinds(result) == [None, "ToolError", "cancelled", "cancelled", "aborted"]
    assert result.elapsed == 1
    assert "fragile failed and aborts its siblings" in results(result)[2].text
    assert results(result)[4].text == "Not started: fragile failed and aborts its siblings."
    assert len(recorder.of(ToolStarted)) == 4
    assert len(recorder.of(ToolEnded)) == 5


@virtual
async def test_a_tool_that_succeeds_aborts_nobody():
    shop = Workshop()
    tools = [shop.tool("a", aborts_siblings_on_error=True), shop.tool("b", 3)]
    result, _ = await fly([calls(call("a"), call("b")), "done"], tools)
    assert kinds(result) == [None, None]


# --- how many -------------------------------------------------------------------------------------------------


@virtual
async def test_calls_past_the_cap_of_a_turn_are_skipped_with_a_typed_result():
    shop = Workshop()
    tools = [
        shop.tool("a"),
        shop.tool("safe", parallel_safe=True),
        shop.tool("free", counts_toward_limit=False),
    ]
    batch = calls(call("a"), call("safe"), call("nobody"), call("a"), call("free"), call("a"), call("a"))
    result, _ = await fly([batch, "done"], tools, max_tool_calls_per_turn=2)
    assert kinds(result) == [None, None, "unknown_tool", None, None, "skipped", "skipped"]
    assert "at most 2 tool calls" in results(result)[-1].text


@virtual
async def test_a_batch_larger_than_what_is_left_runs_what_fits_and_lands():
    shop = Workshop()
    script = [calls(call("a"), call("a", n=1)), calls(call("a", n=2), call("a", n=3), call("a", n=4)), "landed"]
    result, _ = await fly(script, [shop.tool("a")], limits=Limits(max_tool_calls=3))
    assert kinds(result) == [None, None, None, "skipped", "skipped"]
    assert (result.state, result.outcome, result.text) == (AgentState.MAX_STEPS, LoopOutcome.WRAPPED_UP, "landed")
    assert (result.cause.source, result.tool_calls) == ("ToolCallLimitConstraint", 3)


@virtual
async def test_a_tool_that_does_not_count_runs_beyond_the_limit_of_the_run():
    shop = Workshop()
    tools = [shop.tool("a"), shop.tool("free", counts_toward_limit=False)]
    result, _ = await fly([calls(call("free"), call("a"), call("free")), "x"], tools, limits=Limits(max_tool_calls=1))
    assert kinds(result) == [None, None, None]


# --- who ends the run -----------------------------------------------------------------------------------------


@tool
async def vote(yes: bool = True) -> ToolResult:
    return ToolResult("voted", terminate=yes)


@tool(votes_on_termination=False)
async def abstain() -> str:
    return "abstained"


@tool(terminal=True)
async def deliver(answer: str = "delivered") -> str:
    if answer == "no":
        raise ToolError("cannot deliver")
    return answer


@pytest.mark.parametrize(
    ("batch", "ends"),
    [
        (calls(call("vote")), True),
        (calls(call("vote"), call("vote")), True),
        (calls(call("vote"), call("abstain")), True),
        (calls(call("vote"), call("vote", yes=False)), False),
        (calls(call("abstain")), False),
        (calls(call("vote"), call("nobody")), False),
        (calls(call("vote"), call("vote", wrong=1)), False),
        (calls(call("deliver"), call("vote", yes=False)), True),
        (calls(call("deliver", answer="no"), call("abstain")), False),
    ],
    ids=lambda value: value.describe() if hasattr(value, "describe") else str(value),
)
@virtual
async def test_the_run_ends_when_all_that_vote_agree_or_a_terminal_tool_succeeds(batch, ends):
    script = [batch] if ends else [batch, "went on"]
    result, _ = await fly(script, [vote, abstain, deliver])
    assert result.outcome is LoopOutcome.DONE
    assert result.iterations == len(script)
    assert result.text == ("went on" if not ends else results(result)[-1].text)


@virtual
async def test_an_after_hook_can_vote():
    class Enough(Plugin):
        def after_tool_call(self, context):
            return AfterDecision(terminate=True)

    shop = Workshop()
    result, _ = await fly([call("a")], [shop.tool("a")], plugins=[Enough()])
    assert (result.outcome, result.iterations, result.text) == (LoopOutcome.DONE, 1, "a")


# --- calls that never run -------------------------------------------------------------------------------------


@virtual
async def test_an_unknown_tool_is_answered_with_the_closest_name():
    shop = Workshop()
    result, recorder = await fly([call("serch"), "sorry"], [shop.tool("search"), shop.tool("zebra")])
    answer = results(result)[0]
    assert (answer.is_error, answer.kind) == (True, "unknown_tool")
    assert "search" in answer.text
    assert "zebra" in answer.text
    assert recorder.of(ToolStarted) == []


@virtual
async def test_wrong_arguments_are_answered_and_the_tool_does_not_run():
    @tool
    async def add(a: int, b: int) -> int:
        raise AssertionError("ran with wrong arguments")

    batch = calls(call("add", a=1), call("add", a=1, b="x"), call("add", a=1, b=2, c=3))
    result, recorder = await fly([batch, "sorry"], [add])
    assert kinds(result) == ["invalid_arguments"] * 3
    assert ["`b`" in message.text or "b" in message.text for message in results(result)] == [True, True, True]
    assert recorder.of(ToolStarted) == []
    assert result.tool_calls == 0


@pytest.mark.parametrize("cut", [0, 4, 1000], ids=["nothing left", "half", "complete and yet cut"])
@virtual
async def test_g8_a_cut_tool_call_never_runs_and_may_be_sent_again_once(cut):
    shop = Workshop()
    made = calls(call("a", n=1), call("a", n=2))
    result, recorder = await fly([truncated(made, cut=cut), call("a", n=2), "done"], [shop.tool("a")])
    assert kinds(result) == ["cut", "cut", None]
    assert "smaller" in results(result)[0].text
    assert shop.log == ["a begins", "a ends"]
    assert [event.guard for event in recorder.of(GuardTripped)] == ["truncated_call"]
    assert result.outcome is LoopOutcome.DONE


@virtual
async def test_g8_calls_that_are_cut_again_end_the_run():
    shop = Workshop()
    script = [truncated(call("a", n=1)), call("a", n=5), truncated(call("a", n=2).with_text("so far"))]
    result, _ = await fly(script, [shop.tool("a")])
    assert (result.state, result.outcome) == (AgentState.COMPLETED, LoopOutcome.CUT_OFF)
    assert (result.cause.source, result.text, result.partial) == ("truncation", "so far", True)


@virtual
async def test_calls_in_a_refusal_never_run():
    from glidepath.values import replace

    shop = Workshop()
    result, _ = await fly([replace(call("a").with_text("no"), stop_reason="refusal")], [shop.tool("a")])
    assert shop.log == []
    assert kinds(result) == ["skipped"]
    assert result.outcome is LoopOutcome.DONE


@virtual
async def test_a_blocked_call_does_not_run_and_says_why():
    class Guard(Plugin):
        def before_tool_call(self, context):
            return Block("not on Sundays") if context.arguments["n"] == 1 else None

    shop = Workshop()
    result, recorder = await fly([calls(call("a", n=1), call("a", n=2)), "ok"], [shop.tool("a")], plugins=[Guard()])
    assert [(message.kind, message.text) for message in results(result)] == [
        ("blocked", "Blocked: not on Sundays"),
        (None, "a"),
    ]
    assert [event.arguments for event in recorder.of(ToolStarted)] == [{"n": 2}]


@virtual
async def test_g10_replaced_arguments_are_validated_and_seen_by_everybody():
    seen = []

    @tool
    async def spend(amount: int) -> str:
        seen.append(("tool", amount))
        return str(amount)

    class Cap(Plugin):
        def before_tool_call(self, context):
            seen.append(("cap", context.arguments["amount"], context.replaceable))
            return Replace({"amount": "7"}) if context.arguments["amount"] > 10 else None

    class Audit(Plugin):
        def before_tool_call(self, context):
            seen.append(("audit", context.arguments["amount"]))

        def after_tool_call(self, context):
            seen.append(("after", context.arguments["amount"]))

    result, recorder = await fly([call("spend", amount=99), "ok"], [spend], plugins=[Cap(), Audit()])
    assert seen == [
        ("cap", 99, True),
        ("audit", "7"),
        ("cap", 7, False),
        ("audit", 7),
        ("tool", 7),
        ("after", 7),
    ]
    assert recorder.one(ToolStarted).arguments == {"amount": 7}
    assert results(result)[0].text == "7"


@virtual
async def test_g10_arguments_are_replaced_once_only():
    class Always(Plugin):
        def before_tool_call(self, context):
            return Replace({"n": context.arguments["n"] + 1})

    shop = Workshop()
    _, recorder = await fly([call("a", n=1), "ok"], [shop.tool("a")], plugins=[Always()])
    assert recorder.one(ToolStarted).arguments == {"n": 2}
    assert recorder.one(HookFailed).effect == "ignored"


@virtual
async def test_a_hook_that_allows_lets_the_call_run_and_nonsense_blocks_it():
    class Allowing(Plugin):
        def before_tool_call(self, context):
            return Allow() if context.arguments["n"] == 1 else "fine with me"

    shop = Workshop()
    result, _ = await fly([calls(call("a", n=1), call("a", n=2)), "ok"], [shop.tool("a")], plugins=[Allowing()])
    assert kinds(result) == [None, "blocked"]


@virtual
async def test_a_call_a_person_must_decide_about_pauses_the_run_after_the_rest_of_its_batch():
    class Asking(Plugin):
        def before_tool_call(self, context):
            return Ask("really?") if context.arguments["n"] == 1 else None

    shop = Workshop()
    tools = [shop.tool("a"), shop.tool("b", requires_approval=True)]
    recorder = EventRecorder()
    with ScriptedModel([calls(call("a", n=1), call("b"), call("a", n=2), text="so far")]) as model:
        agent = Agent(model=model, tools=tools, limits=LIMITS, plugins=[Asking(), recorder.as_plugin()])
        result = await agent.run("go")
    recorder.assert_legal()
    assert (result.state, result.outcome, result.cause) == (AgentState.WAITING_FOR_INPUT, LoopOutcome.PAUSED, None)
    assert [(item.call.name, item.reason) for item in result.pending] == [
        ("a", "really?"),
        ("b", "this tool needs a person's approval"),
    ]
    assert shop.log == ["a begins", "a ends"]
    assert transcript_errors(result.messages, result.pending) == []


@virtual
async def test_replaced_arguments_that_are_wrong_are_answered():
    class Break(Plugin):
        def before_tool_call(self, context):
            return Replace({"n": "many"})

    shop = Workshop()
    result, _ = await fly([call("a"), "ok"], [shop.tool("a")], plugins=[Break()])
    assert kinds(result) == ["invalid_arguments"]
    assert shop.log == []


@virtual
async def test_after_hooks_are_chained_in_source_order_of_the_calls():
    class Mark(Plugin):
        def __init__(self, name):
            self.name = name

        def after_tool_call(self, context):
            return AfterDecision(content=f"{context.result.text}+{self.name}")

    class Fail(Plugin):
        def after_tool_call(self, context):
            return AfterDecision(is_error=True) if "b" in context.result.text else None

    shop = Workshop()
    tools = [shop.tool("a", 2), shop.tool("b", 1)]
    plugins = [Mark("x"), Mark("y"), Fail()]
    result, _ = await fly([calls(call("a"), call("b")), "ok"], tools, plugins=plugins)
    assert [(m.text, m.is_error, m.kind) for m in results(result)] == [("a+x+y", False, None), ("b+x+y", True, "fail")]


@virtual
async def test_an_after_hook_is_asked_behind_one_that_waits_and_one_that_has_nothing_to_say():
    class Waiting(Plugin):
        name = "waiting"

        async def after_tool_call(self, context):
            await asyncio.sleep(1)

    class Silent(Plugin):
        name = "silent"

        def after_tool_call(self, context):
            return None

    class Redact(Plugin):
        name = "redact"

        def after_tool_call(self, context):
            return AfterDecision(content="[redacted]")

    shop = Workshop()
    result, _ = await fly([call("a", n=1), "ok"], [shop.tool("a")], plugins=[Waiting(), Silent(), Redact()])
    assert [one.text for one in results(result)] == ["[redacted]"]


@pytest.mark.parametrize("answer", [Allow(rule=5), Block("no", rule=None), Ask("really?", rule=b"x")])
@virtual
async def test_g9_a_rule_that_is_no_text_blocks_the_call(answer):
    class Odd(Plugin):
        def before_tool_call(self, context):
            return answer

    shop = Workshop()
    result, recorder = await fly([call("a", n=1), "ok"], [shop.tool("a")], plugins=[Odd()])
    assert kinds(result) == ["blocked"]
    assert "takes its rule as a str" in str(recorder.one(HookFailed))
    assert shop.log == []


@virtual
async def test_an_after_hook_that_answers_nonsense_changes_nothing():
    class Odd(Plugin):
        def after_tool_call(self, context):
            return "redacted"

    shop = Workshop()
    result, recorder = await fly([call("a"), "ok"], [shop.tool("a")], plugins=[Odd()])
    assert results(result)[0].text == "a"
    assert recorder.one(HookFailed).effect == "skipped"


# --- results --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("no luck"), "ValueError"),
        (SystemExit(3), "SystemExit"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (GeneratorExit(), "GeneratorExit"),
        (asyncio.CancelledError(), "CancelledError"),
        (ToolError("told so"), "ToolError"),
        (StopIteration(), "RuntimeError"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize("waits", [False, True])
@virtual
async def test_whatever_a_tool_raises_is_its_result(error, kind, more, waits):
    @tool
    async def broken() -> str:
        if waits:
            await asyncio.sleep(1)
        raise error

    shop = Workshop()
    batch = calls(call("broken"), *[call("a")] * more)
    result, recorder = await fly([batch, "done"], [broken, shop.tool("a")])
    assert kinds(result)[0] == kind
    assert results(result)[0].is_error
    assert result.outcome is LoopOutcome.DONE
    ended = recorder.of(ToolEnded)[0]
    assert "Traceback" not in ended.result.text


@virtual
async def test_the_traceback_is_for_people_only():
    @tool
    async def broken() -> str:
        raise ValueError("no luck")

    result, recorder = await fly([call("broken"), "done"], [broken])
    assert results(result)[0].text == "ValueError: no luck"
    assert "in broken" in recorder.one(ToolEnded).traceback


@virtual
async def test_a_huge_result_is_cut_to_its_head_and_tail():
    @tool
    async def dump() -> str:
        return "a" * 10**6 + "END"

    result, _ = await fly([call("dump"), "done"], [dump])
    text = results(result)[0].text
    assert len(text) <= 32_000
    assert text.startswith("aaaa")
    assert text.endswith("END")
    assert "1000003" in text.replace(",", "").replace("_", "")


@virtual
async def test_a_result_that_no_model_can_read_is_an_error_result():
    @tool
    async def odd() -> object:
        return b"no image"

    result, _ = await fly([call("odd"), "done"], [odd])
    assert results(result)[0].is_error


@virtual
async def test_a_tool_that_streams_progress_ends_in_its_last_value():
    from glidepath.events import ToolProgress

    @tool
    async def steps():
        for number in range(3):
            yield f"step {number}"
            await asyncio.sleep(1)

    result, recorder = await fly([calls(call("steps"), call("steps")), "done"], [steps])
    assert [message.text for message in results(result)] == ["step 2"] * 2
    assert len(recorder.of(ToolProgress)) == 4


@virtual
async def test_a_timeout_of_a_tool_is_its_own_or_the_agents():
    @tool(timeout=1)
    async def brief() -> str:
        await asyncio.sleep(100)
        return "never"

    @tool
    async def long() -> str:
        await asyncio.sleep(100)
        return "never"

    result, _ = await fly([calls(call("brief"), call("long")), call("brief"), "ok"], [brief, long], tool_timeout=5)
    assert [(m.kind, m.text) for m in results(result)] == [
        ("timeout", "The tool was stopped: no result within 1 s."),
        ("timeout", "The tool was stopped: no result within 5 s."),
        ("timeout", "The tool was stopped: no result within 1 s."),
    ]
    assert result.elapsed == 6


# --- the protocol policy --------------------------------------------------------------------------------------


class Aliases(ProtocolPolicy):
    def normalize_tool_calls(self, calls, tool_names):
        return [ToolCall(made.id, made.name.removeprefix("functions."), made.arguments) for made in calls]


@virtual
async def test_aliases_are_repaired_by_the_policy():
    shop = Workshop()
    result, _ = await fly([call("functions.a"), "done"], [shop.tool("a")], protocol_policy=Aliases())
    assert results(result)[0].text == "a"


@pytest.mark.parametrize("answer", [(), [1], None, ValueError])
@virtual
async def test_g9_a_policy_that_answers_nonsense_keeps_the_calls_from_running(answer):
    class Odd(ProtocolPolicy):
        def normalize_tool_calls(self, calls, tool_names):
            if answer is ValueError:
                raise ValueError("odd")
            return answer

    shop = Workshop()
    result, recorder = await fly([call("a"), "done"], [shop.tool("a")], protocol_policy=Odd())
    assert (kinds(result), shop.log) == (["policy_failed"], [])
    assert recorder.one(HookFailed).plugin == "protocol_policy"


@virtual
async def test_a_call_that_its_policy_kept_from_running_is_not_counted_as_one_that_ran():
    class Tired(ProtocolPolicy):
        asked = 0

        def normalize_tool_calls(self, calls, tool_names):
            self.asked += 1
            if self.asked > 1:
                raise ValueError("odd")
            return calls

    shop = Workshop()
    result, _ = await fly([call("a"), call("a"), "done"], [shop.tool("a")], protocol_policy=Tired())
    assert kinds(result)[-1] == "policy_failed"
    assert [spend.calls for spend in result.breakdown if spend.kind == "tool"] == [1]


@pytest.mark.parametrize("kind", ResultKind, ids=[kind.value for kind in ResultKind])
def test_a_kind_of_result_is_the_word_that_journals_have(kind):
    assert (kind, type(kind.value)) == (kind.value, str)
    assert isinstance(kind.ran, bool)
    assert isinstance(kind.failed, bool)


@pytest.mark.parametrize(
    ("answer", "wanted"), [("use b", "use b"), (None, "Reason: closed today"), (ValueError, "Reason: closed today")]
)
@virtual
async def test_a_hidden_tool_is_answered_in_the_words_of_the_policy_or_ours(answer, wanted):
    class Words(ProtocolPolicy):
        def hidden_tool_error(self, name, available):
            if answer is ValueError:
                raise ValueError("odd")
            return answer

    class Closed(Plugin):
        def tool_gate(self, context):
            from glidepath.spi import Gate

            return Gate(allowed=frozenset({"b"}), denial_reason="closed today")

    shop = Workshop()
    tools = [shop.tool("a"), shop.tool("b")]
    result, _ = await fly([call("a"), "ok"], tools, protocol_policy=Words(), plugins=[Closed()])
    assert kinds(result) == ["hidden_tool"]
    assert wanted in results(result)[0].text


@virtual
async def test_a_result_gets_its_share_of_what_is_left_in_the_window():
    @tool
    async def dump() -> str:
        return "x" * 30_000

    result, _ = await fly([calls(call("dump"), call("dump")), "done"], [dump], context_window=8_000)
    sizes = [len(message.text) for message in results(result)]
    assert 200 < sizes[0] <= 8_000 * 0.35 * 3 / 2
    assert 200 < sizes[1] <= sizes[0]


@virtual
async def test_a_tool_may_say_itself_how_much_of_its_result_is_kept():
    @tool(max_result_chars=500)
    async def dump() -> str:
        return "x" * 30_000

    result, _ = await fly([call("dump"), "done"], [dump])
    assert len(results(result)[0].text) <= 500
