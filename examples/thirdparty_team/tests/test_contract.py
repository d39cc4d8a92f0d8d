"""The conformance kit of the installed glidepath certifies our coordinator and our evaluator."""

from glidepath_relay import RelayCoordinator, SourceCounter

from glidepath.conformance import EvaluationStrategyContract, TeamCoordinatorContract


class TestRelayCoordinator(TeamCoordinatorContract):
    def make_coordinator(self):
        return RelayCoordinator()


class TestSourceCounter(EvaluationStrategyContract):
    good = "Bees dance [1], and so do cranes [2]."
    bad = "Everybody knows that bees dance [1]."

    def make_strategy(self):
        return SourceCounter()
