"""Why an agent came down is data: the same in its journal, its report and after a restart, whatever the words are."""

import pytest

from glidepath.apps.gate import GateGovernor, GateLimits, LineBook, PriceList, choose_upstreams
from glidepath.apps.server.locks import AccessKey, Visitor
from glidepath.sessions import MemoryStore, SqliteStore

from .foreign import fly_anthropic, fly_behind, in_real_time
from .kept import folded_of, keep_at, keep_behind


@pytest.mark.parametrize(
    ("behavior", "limits", "cause"),
    [
        ("loop", {"max_tokens": 6_000}, ("budget_exceeded", "TokenBudgetConstraint", "graceful_exit")),
        ("loop", {"max_iterations": 3}, ("max_steps", "MaxIterationConstraint", "graceful_exit")),
        ("same", {"max_tokens": 60_000}, ("error", "repetition", "land")),
    ],
)
@in_real_time
async def test_a_report_has_the_cause_that_the_journal_has(behavior, limits, cause):
    store = MemoryStore()
    async with keep_behind(behavior, store, limits=limits) as flown:
        await fly_anthropic(flown.url, flown.key)
        report = flown.report()
    result = (await folded_of(store)).result
    for told in (report["cause"], report["agents"][0]["cause"]):
        assert (told["state"], told["source"], told["action"]) == cause
        assert told["reason"] == report["reason"]
    assert (result.state.value, result.cause.source, result.cause.action) == cause


@in_real_time
async def test_a_budget_above_the_run_is_named_and_not_the_runs_own_limit():
    key = AccessKey(name="ci", digest="", role="run", max_tokens=6_000)

    def make(upstreams):
        book = LineBook(GateLimits(tokens=50_000))

        def line_of(request):
            request.key = Visitor("ci", "run", None, key)
            return book.find(request)

        governor = GateGovernor(line_of=line_of, upstreams=choose_upstreams(upstreams), prices=PriceList())
        governor.book = book
        return governor

    async with fly_behind("loop", line="", make_governor=make) as flown:
        await fly_anthropic(f"{flown.gate.address}/run-1", flown.key)
        cause = flown.report()["cause"]
        await flown.gate.governor.book.close()
    assert (cause["state"], cause["source"]) == ("budget_exceeded", "wallet key:ci")
    assert "50,000" not in cause["reason"]


@in_real_time
async def test_after_a_restart_the_cause_is_what_it_was(tmp_path):
    store = SqliteStore(tmp_path / "store")
    async with keep_behind("loop", store) as flown:
        await fly_anthropic(flown.url, flown.key)
        before = flown.report()["cause"]
        async with keep_at(flown.up.url, SqliteStore(tmp_path / "store")) as second:
            flight = await fly_anthropic(second.url, second.key, most=1)  # asks again, and is told the same
            assert "[glidepath]" in flight.text
            assert second.report()["cause"] == before


@in_real_time
async def test_a_child_too_many_has_the_limit_as_its_cause():
    async with fly_behind("loop", max_tokens=40_000, max_descendants=1) as flown:
        await fly_anthropic(flown.url, flown.key, most=1)
        for name in ("one", "two"):
            await fly_anthropic(flown.url, flown.key, headers={"x-glidepath-agent": name}, most=1, task=f"Part {name}.")
        causes = {one["id"]: one["cause"] for one in flown.report()["agents"]}
    assert causes["one"] is None
    assert (causes["two"]["state"], causes["two"]["source"]) == ("max_steps", "max_descendants")
