"""Tools that run at the provider, in a run: reserved at their worst, closed by gates, withdrawn in a landing."""

from decimal import Decimal

import pytest

from glidepath import Agent, ConfigurationError, Limits, Rules, tool
from glidepath.messages import ReplyInfo, StreamEnd, TextDelta, Usage
from glidepath.models import CodeExecution, WebSearch
from glidepath.run import Price
from glidepath.spi import Gate, Plugin, reserve_for
from glidepath.testing import ScriptedModel, call, raw, say

FEW = Limits(max_iterations=5)


@tool
def note(text: str) -> str:
    """Write it down."""
    return text


def test_the_worst_case_reads_the_prompt_again_after_every_use():
    reserve = reserve_for((WebSearch(max_uses=2),), search=7, session=0)
    assert reserve.tokens(1_000) == 2 * 1_000 + 10_000 * 2 + 10_000
    assert reserve.fees == 14
    assert reserve_for((WebSearch(max_uses=30),), search=1, session=0).rounds == 10
    assert reserve_for((), search=7, session=7) is None


def test_g4_a_call_with_hosted_tools_is_reserved_at_its_worst():
    held = []
    model = ScriptedModel(["Found."], max_output_tokens=100)
    agent = Agent(
        model=model,
        tools=[WebSearch(max_uses=2)],
        limits=Limits(max_tokens=100_000, max_cost="5"),
        prices={"scripted": Price.per_million(("1", "1", "0", "0", "1000"), field="price")},
        event_sink=lambda event: held.append(event) if type(event).__name__ == "BudgetReserved" else None,
    )
    assert agent.run_sync("Search.").text == "Found."
    assert held[0].tokens > 30_000
    assert held[0].cost > 2  # two searches of a dollar each, beside the tokens
    assert model.requests[0].hosted_tools == ("web_search",)


def test_what_no_call_could_pay_for_is_refused_with_the_figure():
    with pytest.raises(ConfigurationError, match="max_tokens=3000 can never hold one call with its hosted tools"):
        Agent(model=ScriptedModel(), tools=[WebSearch()], limits=Limits(max_tokens=3_000))
    with pytest.raises(ConfigurationError, match=r"max_cost=0.1 can never pay .* lower max_uses"):
        Agent(model=ScriptedModel(price=(3, 15)), tools=[WebSearch()], limits=Limits(max_cost="0.10", max_iterations=2))


def test_a_required_gate_closes_them_as_it_closes_any_tool():
    class OnlyNote(Plugin):
        name = "only note"

        def tool_gate(self, context):
            assert context.tools == {"note", "web_search"}
            return Gate(allowed=frozenset({"note"}), required=True)

    model = ScriptedModel(["Done."])
    Agent(model=model, tools=[note, WebSearch()], plugins=[OnlyNote()], limits=Limits(max_iterations=3)).run_sync("Go.")
    assert model.requests[0].hosted_tools == ()
    assert model.requests[0].tools == ("note",)


def test_a_gate_that_opens_later_is_heard_although_nothing_else_has_changed():
    class Later(Plugin):
        name = "later"

        def tool_gate(self, context):
            return None if context.iteration > 0 else Gate(allowed=frozenset({"note"}), required=True)

    model = ScriptedModel([call("note", text="a"), "Done."])
    Agent(model=model, tools=[note, WebSearch()], plugins=[Later()], limits=Limits(max_iterations=5)).run_sync("Go.")
    assert [request.hosted_tools for request in model.requests] == [(), ("web_search",)]


def test_nothing_runs_at_the_provider_in_a_landing():
    model = ScriptedModel([call("note", text="a")]).forever(lambda request: say("Landed."))
    agent = Agent(model=model, tools=[note, WebSearch()], limits=Limits(max_iterations=1))
    assert agent.run_sync("Go.").text == "Landed."
    assert [request.hosted_tools for request in model.requests] == [("web_search",), ()]


def test_g4_a_call_whose_worst_does_not_fit_is_made_smaller_and_never_exceeds_the_budget():
    spent = []

    def work(request):
        return call("note", text=f"{len(request.messages)} word " * 300) if request.tools else say("Landed.")

    model = ScriptedModel(max_output_tokens=1_500).forever(work)
    agent = Agent(
        model=model,
        tools=[note, WebSearch(max_uses=1)],
        limits=Limits(max_iterations=20, max_tokens=60_000, landing_tokens=2_000),
        event_sink=lambda event: spent.append(event.tokens) if type(event).__name__ == "BudgetReserved" else None,
    )
    result = agent.run_sync("Go.")
    assert result.usage.total <= 60_000
    assert max(spent) <= 60_000
    assert any(request.hosted_tools for request in model.requests)
    assert result.text == "Landed."


@pytest.mark.parametrize(
    ("rules", "offered"),
    [
        (Rules(deny=["web_search"]), ("code_execution",)),
        (Rules(ask=["web_*"]), ("code_execution",)),
        (Rules(deny=["web_search(example.com)"]), ("code_execution",)),
        (Rules(allow=["web_search"]), ("web_search", "code_execution")),
        (Rules(deny=["note"], allow=["web_search"]), ("web_search", "code_execution")),
    ],
    ids=["deny", "ask", "deny in part", "allow", "another"],
)
@pytest.mark.parametrize("depth", [1, 2])
def test_g9_a_child_is_not_offered_one_that_a_rule_of_its_parent_holds(rules, offered, depth):
    child = ScriptedModel(["Found."], name="child")
    agent = Agent(
        model=child,
        tools=[WebSearch(), CodeExecution()],
        limits=FEW,
        agent_name="searcher",
        approvals=Rules(allow=["web_search"]),  # its own rules open nothing that its parent holds
    )
    for number in range(depth):
        own = {"approvals": rules} if number == depth - 1 else {}
        asks = ScriptedModel([call(agent.config.agent_name, task="search"), "Done."], name=f"parent {number}")
        agent = Agent(
            model=asks,
            tools=[note, agent.as_tool(agent.config.agent_name, "Search.")],
            limits=Limits(max_iterations=5),
            agent_name=f"p{number}",
            **own,
        )
    assert agent.run_sync("Go.").text == "Done."
    assert child.requests[0].hosted_tools == offered


@pytest.mark.parametrize("far", [False, True])
def test_g9_an_agent_with_one_that_a_rule_holds_cannot_take_over(far):
    searcher = Agent(model=ScriptedModel(), tools=[WebSearch()], limits=FEW, agent_name="searcher")
    if far:
        searcher = Agent(model=ScriptedModel(), handoffs=[searcher], limits=FEW, agent_name="middle")
    said = r"handoffs: agent 'searcher': approvals.deny\[0\]: 'web_search' cannot hold web_search"
    with pytest.raises(ConfigurationError, match=said):
        Agent(model=ScriptedModel(), handoffs=[searcher], limits=FEW, approvals=Rules(deny=["web_search"]))
    Agent(model=ScriptedModel(), handoffs=[searcher], limits=FEW, approvals=Rules(allow=["web_search"]))


def test_a_container_at_the_provider_is_charged():
    info = ReplyInfo(code_sessions=1)
    model = ScriptedModel([raw(TextDelta("Done."), StreamEnd("end_turn", Usage(10, 2), info=info))])
    price = Price(0, 0, code_session=30 * 10**9)
    result = Agent(model=model, tools=[CodeExecution()], limits=Limits(max_iterations=2), prices={"scripted": price})
    assert result.run_sync("Compute.").cost == Decimal("0.03")
