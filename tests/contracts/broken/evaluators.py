"""Evaluators and wrappers that break one clause each."""

import asyncio

from tests.contracts.examine import breaks

from glidepath import Agent, Limits
from glidepath.conformance import EvaluationStrategyContract
from glidepath.teams import (
    EvaluationVerdict,
    RiskProfile,
    SimpleEvaluationStrategy,
    VerdictOutcome,
)
from glidepath.teams.evaluate import Review, review
from glidepath.testing import ScriptedModel
from glidepath.values import settle_field

V = VerdictOutcome
PASS = EvaluationVerdict(outcome=V.PASS, score=1.0)
RUBRIC = SimpleEvaluationStrategy(required=["figures"])


class Trial(EvaluationStrategyContract):
    good = "with figures"
    bad = "without"

    def make_strategy(self):
        """A fresh one; the trial itself is the strategy, so that it can keep what it should not."""
        return type(self)()

    async def evaluate(self, context):
        return RUBRIC.judge(context)


@breaks("EVAL-1", "EVAL-3", "EVAL-8", "EVAL-10", "EVAL-11")
class SaysTrue(Trial):
    """Answers with a bool instead of a verdict."""

    async def evaluate(self, context):
        return RUBRIC.judge(context).passed


@breaks("EVAL-2", "EVAL-3", "EVAL-8", "EVAL-10")
class Enthusiastic(Trial):
    """Scores past the end of the scale."""

    async def evaluate(self, context):
        verdict = RUBRIC.judge(context)
        settle_field(verdict, "score", verdict.score * 10)
        return verdict


@breaks("EVAL-3", "EVAL-8", "EVAL-10")
class Yes(Trial):
    """Passes whatever is not blank."""

    async def evaluate(self, context):
        return PASS if context.artifact.strip() else RUBRIC.judge(context)


@breaks("EVAL-4")
class Curt(Trial):
    """Sends work back without a word."""

    async def evaluate(self, context):
        verdict = RUBRIC.judge(context)
        return verdict if verdict.passed else EvaluationVerdict(outcome=V.REVISE)


@breaks("EVAL-5")
class LikesSilence(Trial):
    """Passes an artifact of nothing but exotic spaces."""

    async def evaluate(self, context):
        return PASS if context.artifact and not context.artifact.strip() else RUBRIC.judge(context)


@breaks("EVAL-6")
class WavesThrough(Trial):
    """Answers AUTO_PASS_WITH_WARNING for what it would have sent back."""

    async def evaluate(self, context):
        verdict = RUBRIC.judge(context)
        return verdict if verdict.passed else EvaluationVerdict(outcome=V.AUTO_PASS_WITH_WARNING)


@breaks("EVAL-7")
class AfraidOfHeights(Trial):
    """Is strict when little is at stake, and passes everything at HIGH."""

    async def evaluate(self, context):
        high = context.config.risk_profile is RiskProfile.HIGH and context.artifact.strip()
        return PASS if high else RUBRIC.judge(context)


@breaks("EVAL-8", "EVAL-10")
class Tired(Trial):
    """Passes everything after it has sent work back three times."""

    rejected = 0

    async def evaluate(self, context):
        verdict = RUBRIC.judge(context)
        self.rejected += not verdict.passed
        return PASS if self.rejected > 3 and context.artifact.strip() else verdict


@breaks("EVAL-9")
class Moody(Trial):
    """Gives another score each time."""

    asked = 0

    async def evaluate(self, context):
        self.asked += 1
        verdict = RUBRIC.judge(context)
        return EvaluationVerdict(outcome=verdict.outcome, score=1 / (self.asked + 1), feedback=verdict.feedback)


@breaks("EVAL-10")
class OneTrackMind(Trial):
    """Keeps the artifact on itself while it waits."""

    async def evaluate(self, context):
        self.current = context
        await asyncio.sleep(1)
        return RUBRIC.judge(self.current)


@breaks("EVAL-11")
class ShortOfMemory(Trial):
    """Cannot cope with long artifacts."""

    async def evaluate(self, context):
        if len(context.artifact) > 100_000:
            raise MemoryError
        return RUBRIC.judge(context)


@breaks("EVAL-12")
class BehindTheBack(Trial):
    """Runs its judge by itself, so that nobody pays."""

    async def evaluate(self, context):
        judge = Agent(model=ScriptedModel().forever("ok"), limits=Limits(max_iterations=2))
        await judge.run("is it good?")
        return RUBRIC.judge(context)


@breaks("EVAL-12")
class Trusting(Trial):
    """Passes what its judge could not be asked about."""

    async def evaluate(self, context):
        judge = Agent(model=ScriptedModel().forever("ok"), limits=Limits(max_iterations=2))
        try:
            await context.ask(judge, "is it good?")
        except Exception:
            return PASS
        return RUBRIC.judge(context)


@breaks("EVAL-13")
class LeavesATask(Trial):
    """Goes on in the background when it is told to stop."""

    async def evaluate(self, context):
        self.task = asyncio.get_running_loop().create_task(asyncio.sleep(1000))
        return RUBRIC.judge(context)


@breaks("EVAL-14")
class CredulousWrapper(Trial):
    """A wrapper that takes a timeout for a pass."""

    async def make_review(self, strategy, context, seconds):
        found = await review(strategy, context, seconds=seconds)
        return Review(verdict=PASS) if "did not answer" in found.verdict.feedback else found


@breaks("EVAL-15")
class GenerousWrapper(Trial):
    """A wrapper that lets AUTO_PASS_WITH_WARNING count at any risk."""

    async def make_review(self, strategy, context, seconds):
        found = await review(strategy, context, seconds=seconds)
        return Review(verdict=PASS) if "AUTO_PASS" in found.verdict.feedback else found
