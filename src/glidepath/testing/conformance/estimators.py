"""The contract of a `TokenEstimator`, clause by clause."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from glidepath.spi import TokenEstimator
from glidepath.testing.conformance.contract import Contract, missing

ODD = ("", " ", "\0", "\ud800", "\U0001f6eb" * 50, "\u0623\u0644\u0641" * 30, "a\n" * 500, "{" * 1000, "x" * 100_000)


class TokenEstimatorContract(Contract):
    """Subclass this and provide `make_estimator` and `samples`: texts, each with the tokens that the model counted."""

    samples: Sequence[tuple[str, int]]

    def make_estimator(self) -> TokenEstimator:
        """The estimator as a user would create it."""
        raise NotImplementedError(missing(self, "make_estimator"))

    def test_est_1_it_counts_any_text(self) -> None:
        """EST-1: any text has a whole number of tokens, at least one unless it is empty; nothing makes it raise."""
        estimator = self.make_estimator()
        for text in ODD:
            tokens = estimator.estimate(text)
            assert type(tokens) is int, f"{text[:20]!r}: {tokens!r}"
            assert tokens >= bool(text), f"{text[:20]!r}: {tokens}"

    def test_est_2_never_too_few(self) -> None:
        """EST-2: it never counts less than the model does."""
        estimator = self.make_estimator()
        assert len(self.samples) >= 3, "give at least three samples that were counted by the model"
        for text, counted in self.samples:
            assert estimator.estimate(text) >= counted, f"{text[:60]!r}: {estimator.estimate(text)} of {counted}"

    def test_est_3_not_absurdly_many(self) -> None:
        """EST-3: it does not overcount so much that budgets become useless: within ten times, plus ten."""
        estimator = self.make_estimator()
        for text, counted in self.samples:
            assert estimator.estimate(text) <= 10 * counted + 10, (
                f"{text[:60]!r}: {estimator.estimate(text)} of {counted}"
            )

    def test_est_4_it_is_pure(self) -> None:
        """EST-4: the same text has the same number, whatever was counted before, and by any object."""
        estimator, texts = self.make_estimator(), [text for text, _ in self.samples]
        first = [estimator.estimate(text) for text in texts]
        assert [estimator.estimate(text) for text in reversed(texts)] == first[::-1]
        assert [self.make_estimator().estimate(text) for text in texts] == first

    def test_est_5_more_text_is_more_tokens(self) -> None:
        """EST-5: a text fifty times as long has at least twenty times the tokens: there is no cap."""
        estimator = self.make_estimator()
        for text, _ in self.samples:
            assert estimator.estimate(text * 50) >= 20 * estimator.estimate(text), f"{text[:60]!r}"

    def test_est_6_it_is_fast(self) -> None:
        """EST-6: a million characters take less than a second of CPU: every text of a run is counted."""
        text, estimator = "The figures are 42 and 43. " * 40_000, self.make_estimator()
        began = time.thread_time()
        estimator.estimate(text)
        took = time.thread_time() - began
        assert took < 1, f"it took {took:.1f} s"

    def test_est_7_threads_may_share_it(self) -> None:
        """EST-7: one object may be used from many threads at once."""
        estimator, texts = self.make_estimator(), [text for text, _ in self.samples] * 50
        alone = [estimator.estimate(text) for text in texts]
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(estimator.estimate, texts)) == alone
