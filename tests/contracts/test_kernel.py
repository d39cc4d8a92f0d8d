"""Our models, estimators, constraints, policies, context strategies and guards keep their contracts."""

import threading
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import ClassVar

from tests.wire.dialects import DIALECTS
from tests.wire.server import Answer, Wire, error

from glidepath import Limits
from glidepath.conformance import (
    CallGuardContract,
    ContextStrategyContract,
    ModelContract,
    ProtocolPolicyContract,
    ResourceConstraintContract,
    StopGuardContract,
    TokenEstimatorContract,
)
from glidepath.constraints import (
    CostLimitConstraint,
    DefaultResourceConstraint,
    KillSwitchConstraint,
    MaxIterationConstraint,
    TimeoutConstraint,
    TokenBudgetConstraint,
    ToolCallLimitConstraint,
)
from glidepath.context import CharEstimator, Compact, SlidingWindow
from glidepath.errors import TransientError
from glidepath.guards import RepetitionGuard
from glidepath.guards.stops import EmptyAnswerGuard, PrematureEndGuard, TruncationGuard
from glidepath.guards.streaks import ErrorStreakGuard, ReadOnlyGuard
from glidepath.messages import AssistantMessage, TextBlock, ToolCall
from glidepath.models import AnthropicModel, GoogleModel, OpenAIChatModel, OpenAIResponsesModel
from glidepath.spi import ProtocolPolicy, ResourceContext, Step, Stop
from glidepath.testing import ScriptedModel, call, fail, hang, say
from glidepath.testing.conformance.guard_contract import batch

# --- models -------------------------------------------------------------------------------------------------------


class TestScriptedModel(ModelContract):
    subject = ScriptedModel

    @asynccontextmanager
    async def playing(self, scene):
        turn = {
            "text": say("The figures are 42.", delay=0.01),
            "tool": call("lookup", query="figures"),
            "failure": fail(TransientError("gone")),
            "silence": hang("one moment"),
        }[scene]
        yield ScriptedModel(name="mine", price=("1", "2")).forever(turn)

    def open_requests(self, model):
        return model.open_streams


class Wired(ModelContract):
    """An adapter, with a server that speaks its protocol."""

    dialect = ""

    @asynccontextmanager
    async def playing(self, scene):
        dialect = next(one for one in DIALECTS if one.name == self.dialect)
        answer = {
            "text": Answer([*dialect.text("The figures ", "are 42."), *dialect.end()]),
            "tool": Answer([*dialect.calls(("c1", "lookup", '{"query": "figures"}')), *dialect.end("tools")]),
            "failure": error(503, {"error": {"message": "overloaded", "type": "overloaded"}}),
            "silence": Answer(dialect.text("one moment"), ending="hang"),
        }[scene]
        async with Wire([answer] * 20) as wire:
            self.wire = wire
            model = dialect.model(wire.url)
            try:
                yield model
            finally:
                await model.aclose()


class TestAnthropicModel(Wired):
    subject = AnthropicModel
    dialect = "anthropic"


class TestGoogleModel(Wired):
    subject = GoogleModel
    dialect = "google"


class TestOpenAIChatModel(Wired):
    subject = OpenAIChatModel
    dialect = "openai-chat"


class TestOpenAIResponsesModel(Wired):
    subject = OpenAIResponsesModel
    dialect = "openai-responses"


# --- estimators ---------------------------------------------------------------------------------------------------


class TestCharEstimator(TokenEstimatorContract):
    subject = CharEstimator
    # English prose and code, what it is made for; counted by the tokenizer of the embedded model
    samples = (
        ("The quick brown fox jumps over the lazy dog.", 10),
        ("Agents land safely when every budget keeps a reserve for the final answer.", 15),
        ("def total(prices: list[float]) -> float:\n    return sum(prices)\n", 21),
    )

    def make_estimator(self):
        return CharEstimator()


# --- constraints --------------------------------------------------------------------------------------------------


class TestMaxIterationConstraint(ResourceConstraintContract):
    subject = MaxIterationConstraint

    def make_constraint(self):
        return MaxIterationConstraint(5)

    def violating(self, constraint):
        return ResourceContext(iteration=5)


class TestTokenBudgetConstraint(ResourceConstraintContract):
    subject = TokenBudgetConstraint

    def make_constraint(self):
        return TokenBudgetConstraint(1000)

    def violating(self, constraint):
        return ResourceContext(tokens_used=1000)


class TestCostLimitConstraint(ResourceConstraintContract):
    subject = CostLimitConstraint

    def make_constraint(self):
        return CostLimitConstraint("0.50")

    def violating(self, constraint):
        return ResourceContext(cost=constraint.max_cost)


class TestToolCallLimitConstraint(ResourceConstraintContract):
    subject = ToolCallLimitConstraint

    def make_constraint(self):
        return ToolCallLimitConstraint(3)

    def violating(self, constraint):
        return ResourceContext(tool_calls=3)


class TestTimeoutConstraint(ResourceConstraintContract):
    subject = TimeoutConstraint

    def make_constraint(self):
        return TimeoutConstraint(60.0, 10.0)

    def violating(self, constraint):
        return ResourceContext(elapsed=60.0)


class TestTimeoutConstraintInTheLandingWindow(TestTimeoutConstraint):
    def violating(self, constraint):
        return ResourceContext(elapsed=50.0)


class TestKillSwitchConstraint(ResourceConstraintContract):
    subject = KillSwitchConstraint

    def make_constraint(self):
        self.switches = getattr(self, "switches", {})
        switch = threading.Event()
        constraint = KillSwitchConstraint(switch)
        self.switches[constraint] = switch
        return constraint

    def violating(self, constraint):
        self.switches[constraint].set()
        return ResourceContext()

    def calm(self, constraint):
        self.switches[constraint].clear()
        return ResourceContext()


class TestDefaultResourceConstraint(ResourceConstraintContract):
    subject = DefaultResourceConstraint

    def make_constraint(self):
        return DefaultResourceConstraint(Limits(max_iterations=5, max_tokens=1000, timeout=60))

    def violating(self, constraint):
        return ResourceContext(iteration=5)


# --- policies -----------------------------------------------------------------------------------------------------


class TestTheDefaultPolicy(ProtocolPolicyContract):
    subject = ProtocolPolicy

    def make_policy(self):
        return ProtocolPolicy()


class Office(ProtocolPolicy):
    """A policy with a vocabulary of its own."""

    terminal_tool_names = frozenset({"finish"})
    known: ClassVar = {"web_search": "search", "done": "finish"}

    def plain_text_recovery_prompt(self, text, tool_name):
        return f"Please hand in your work with {tool_name}."

    def normalize_tool_calls(self, calls, tool_names):
        return [self._repaired(item, tool_names) for item in calls]

    def _repaired(self, item, tool_names):
        meant = self.known.get(item.name)
        fits = item.name not in tool_names and meant in tool_names
        return ToolCall(item.id, meant, item.arguments) if fits else item

    def hidden_tool_error(self, name, available):
        return f"{name} is put away; use one of {', '.join(available) or 'none'}."


class TestAPolicyWithAliases(ProtocolPolicyContract):
    subject = Office
    aliases = Office.known

    def make_policy(self):
        return Office()


# --- context ------------------------------------------------------------------------------------------------------


class TestCompact(ContextStrategyContract):
    subject = Compact

    def make_strategy(self):
        return Compact()


class TestSlidingWindow(ContextStrategyContract):
    subject = SlidingWindow

    def make_strategy(self):
        return SlidingWindow()


# --- guards -------------------------------------------------------------------------------------------------------


class TestRepetitionGuard(CallGuardContract):
    subject = RepetitionGuard

    def make_guard(self, state):
        return RepetitionGuard(3, state)

    def provoking(self, number):
        return batch("lookup", {"query": "the same"}, f"c{number}", "the same page")


class TestErrorStreakGuard(CallGuardContract):
    subject = ErrorStreakGuard

    def make_guard(self, state):
        return ErrorStreakGuard(5, state)

    def provoking(self, number):
        return batch("lookup", {"query": number}, f"c{number}", "it failed", is_error=True)


class TestReadOnlyGuard(CallGuardContract):
    subject = ReadOnlyGuard

    def make_guard(self, state):
        return ReadOnlyGuard(8, state)

    def provoking(self, number):
        @dataclass
        class Reading:
            polling = False
            read_only = True

        step, results = batch("lookup", {"query": number}, f"c{number}", f"page {number}")
        return Step(step.calls, {"lookup": Reading()}), results


class TestTruncationGuard(StopGuardContract):
    subject = TruncationGuard
    bad_end = Stop(reply=AssistantMessage((TextBlock("The fig"),)), text="The fig", truncated=True, recent_error=False)

    def make_guard(self, state):
        return TruncationGuard(2, state)


class TestPrematureEndGuard(StopGuardContract):
    subject = PrematureEndGuard
    bad_end = Stop(reply=AssistantMessage(()), text="", truncated=False, recent_error=True)

    def make_guard(self, state):
        return PrematureEndGuard(2, state)


class TestEmptyAnswerGuard(StopGuardContract):
    subject = EmptyAnswerGuard
    bad_end = Stop(reply=AssistantMessage(()), text=" ", truncated=False, recent_error=False)

    def make_guard(self, state):
        return EmptyAnswerGuard(1, state)
