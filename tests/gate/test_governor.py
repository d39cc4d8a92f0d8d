"""What the gate does to requests and replies, and what it leaves alone."""

import asyncio
import itertools
import json

import aiohttp
import pytest

from glidepath import Limits
from glidepath.apps.gate import BudgetTerms, GateGovernor, GateLimits, Line, LineBook, PriceList, choose_upstreams
from glidepath.serve.locks import AccessKey, Visitor
from glidepath.sessions import MemoryStore, SqliteStore

from .foreign import LOOPS, fly_anthropic, fly_behind, fly_chat, in_real_time

DIALECTS = pytest.mark.parametrize("dialect", sorted(LOOPS))


def bodies(flown):
    return [call.body for call in flown.up.calls]


def place_of_messages(body):
    return next(body[name] for name in ("messages", "input") if name in body)


@DIALECTS
@in_real_time
async def test_each_request_begins_with_all_of_the_one_before(dialect):
    """A notice stays where it was put, so that what the provider has cached is sent again byte for byte."""
    async with fly_behind("loop", max_tokens=20_000) as flown:
        await LOOPS[dialect](flown.url, flown.key)
        sent = [place_of_messages(body) for body in bodies(flown)]
        assert any("[glidepath]" in json.dumps(messages) for messages in sent[:-1]), "no early notice"
        for before, after in itertools.pairwise(sent):
            assert json.dumps(after)[: len(json.dumps(before)) - 2] == json.dumps(before)[:-2]


@DIALECTS
@in_real_time
async def test_the_last_call_keeps_tools_and_system_and_changes_the_choice_alone(dialect):
    async with fly_behind("loop", max_tokens=12_000) as flown:
        await LOOPS[dialect](flown.url, flown.key)
        *_, before, last = bodies(flown)
        assert last["tools"] == before["tools"]
        assert last.get("system") == before.get("system")
        assert last["tool_choice"] in ("none", {"type": "none"})
        assert "tool_choice" not in before or before["tool_choice"] != last["tool_choice"]


@in_real_time
async def test_bytes_pass_unchanged_while_nothing_has_to_change():
    body = (
        b'{ "model" : "claude-opus-5-5", "max_tokens":50,  "stream": true, "temperature": 1e0,'
        b' "messages" : [ {"role":"user","content":"h\\u00e9"} ] }'
    )
    async with fly_behind("answer", max_tokens=50_000) as flown, aiohttp.ClientSession() as client:
        headers = {"x-api-key": flown.key, "content-type": "application/json", "anthropic-version": "2023-06-01"}
        async with client.post(f"{flown.url}/v1/messages?beta=true", data=body, headers=headers) as reply:
            governed = await reply.read()
        assert flown.up.calls[-1].headers["content-length"] == str(len(body))
        assert reply.status == 200
        assert reply.headers["x-glidepath-run"] == "run-1"
        assert "x-glidepath-landed" not in reply.headers
        assert governed.startswith(b"event: message_start\n")
        assert governed.rstrip().endswith(b'data: {"type":"message_stop"}')


@in_real_time
async def test_twins_with_equal_prompts_stay_two():
    async with fly_behind("loop", max_tokens=200_000, max_iterations=30, line="") as flown:
        await asyncio.gather(fly_chat(flown.url, flown.key, most=5), fly_chat(flown.url, flown.key, most=5))
        runs = flown.report()["runs"]
        assert [run["calls"] for run in runs] == [5, 5]


@in_real_time
async def test_calls_beyond_the_budget_wait_for_what_others_give_back():
    """Twenty short answers at once: their worst cases are four times what they use, and nearly all are served."""
    async with fly_behind("answer:tokens=50", max_tokens=4_000) as flown:
        flights = await asyncio.gather(
            *[
                fly_chat(flown.url, flown.key, headers={"x-glidepath-agent": f"a{number}"}, max_tokens=200)
                for number in range(20)
            ]
        )
        assert sum("SCRIPTED-ANSWER" in flight.text for flight in flights) >= 18
        flown.assert_within(4_000)


@in_real_time
async def test_a_landing_that_does_not_fit_loses_the_middle_of_its_results():
    from . import foreign

    async with fly_behind("loop", max_tokens=12_000) as flown:
        before = foreign.RESULT
        foreign.RESULT = "A very long result. " * 2_000
        try:
            flight = await fly_anthropic(flown.url, flown.key)
        finally:
            foreign.RESULT = before
        assert "SCRIPTED-ANSWER" in flight.text
        assert "left out to fit the budget" in json.dumps(bodies(flown)[-1])
        flown.assert_within(12_000)


@in_real_time
async def test_a_child_too_many_is_answered_and_costs_nothing():
    async with fly_behind("loop", max_tokens=500_000, max_descendants=2) as flown:
        await fly_anthropic(flown.url, flown.key, most=2, headers={"x-glidepath-agent": "main"})
        for name in ("one", "two"):
            await fly_anthropic(flown.url, flown.key, most=1, headers={"x-glidepath-agent": name})
        before = flown.up.usage.calls
        flight = await fly_anthropic(flown.url, flown.key, headers={"x-glidepath-agent": "three"})
        assert "this run may have 2 sub-agents" in flight.text
        assert flown.up.usage.calls == before


@in_real_time
async def test_observing_changes_nothing_and_counts():
    def observe(upstreams):
        line = Line("gate", GateLimits())
        return GateGovernor(line_of=lambda _: line, upstreams=choose_upstreams(upstreams), observe=True)

    async with fly_behind("same", make_governor=observe) as flown:
        await fly_chat(flown.url, flown.key, most=12)
        assert flown.up.usage.calls == 12
        assert flown.report()["calls"] == 12
        assert "[glidepath]" not in json.dumps(bodies(flown))


# --- keys, tenants, users -------------------------------------------------------------------------------------------


def with_book(store, visitor, **options):
    def make(upstreams):
        book = LineBook(GateLimits(), store=store, **options)

        def line_of(request):
            request.key = visitor
            return book.find(request)

        governor = GateGovernor(line_of=line_of, upstreams=choose_upstreams(upstreams), prices=PriceList())
        governor.book = book
        return governor

    return make


KEYED = Visitor("ci", "run", "acme", AccessKey(name="ci", digest="", role="run", tenant="acme", max_tokens=6_000))


@pytest.mark.parametrize("kept", [None, "memory", "sqlite"])
@in_real_time
async def test_what_a_key_may_spend_bounds_all_of_its_runs(kept, tmp_path):
    store = {None: lambda: None, "memory": MemoryStore, "sqlite": lambda: SqliteStore(tmp_path / "s.db")}[kept]()
    async with fly_behind("loop", line="", make_governor=with_book(store, KEYED)) as flown:
        for number in range(3):
            flight = await fly_anthropic(f"{flown.gate.address}/ann/run-{number}", flown.key)
            assert flight.text
        flown.assert_within(6_000)
        assert flown.report()["tokens"] > 3_500
        await flown.gate.governor.book.close()
    if kept == "sqlite":
        wallet = (await store.wallets("key:ci"))[0]
        assert wallet.tokens == flown.report()["tokens"]
        assert wallet.held_tokens == 0
    if store is not None:
        await store.close()


@in_real_time
async def test_a_path_that_names_another_tenant_is_refused():
    async with fly_behind("answer", line="", make_governor=with_book(None, KEYED)) as flown:
        with pytest.raises(Exception, match="key ci is bound to tenant acme, not to other"):
            await fly_anthropic(f"{flown.gate.address}/other/ann/run-1", flown.key)
        assert flown.up.usage.calls == 0


@in_real_time
async def test_users_below_a_key_have_limits_of_their_own():
    users = {"ann": BudgetTerms("user:ann", Limits(max_tokens=4_000))}
    async with fly_behind("loop", line="", make_governor=with_book(None, KEYED, users=users)) as flown:
        await fly_anthropic(f"{flown.gate.address}/ann/run-1", flown.key)
        used = flown.up.usage
        assert used.input + used.output <= 4_000
        await fly_anthropic(f"{flown.gate.address}/bob/run-2", flown.key)
        flown.assert_within(6_000)


def with_keys(store, *keys, **options):
    """The key is the first segment of a path; the rest is what a client says."""
    visitors = {key.name: Visitor(key.name, "run", None, key) for key in keys}

    def make(upstreams):
        book = LineBook(GateLimits(), store=store, **options)

        def line_of(request):
            request.key, request.line = visitors[request.line[0]], request.line[1:]
            return book.find(request)

        governor = GateGovernor(line_of=line_of, upstreams=choose_upstreams(upstreams), prices=PriceList())
        governor.book = book
        return governor

    return make


ONE = AccessKey(name="one", digest="", role="run", max_tokens=5_000)
TWO = AccessKey(name="two", digest="", role="run", max_tokens=5_000)


async def spend(flown, path, run=fly_anthropic):
    """What a run on this path uses, by the provider's count, and its answer."""
    before = flown.up.usage.input + flown.up.usage.output
    flight = await run(f"{flown.gate.address}{path}", flown.key)
    return flown.up.usage.input + flown.up.usage.output - before, flight.text


@pytest.mark.parametrize("kept", [None, "sqlite"])
@in_real_time
async def test_a_user_with_two_keys_has_one_budget_and_that_of_the_key_he_comes_with(kept, tmp_path):
    store = None if kept is None else SqliteStore(tmp_path / "s.db")
    users = {"ann": BudgetTerms("user:ann", Limits(max_tokens=8_000))}
    async with fly_behind("loop", line="", make_governor=with_keys(store, ONE, TWO, users=users)) as flown:
        by_one, text = await spend(flown, "/one/ann/run-1")
        assert "SCRIPTED-ANSWER" in text
        assert 3_000 < by_one <= 5_000, "the key bounds her"
        by_two, text = await spend(flown, "/two/ann/run-2")
        assert "SCRIPTED-ANSWER" in text, "the second key is as good as the first"
        assert 1_500 < by_two <= 8_000 - by_one, "she bounds herself"
        rest, text = await spend(flown, "/two/bob/run-3")
        assert rest <= 5_000 - by_two, "and the key bounds everybody who comes with it"
        assert text
        await flown.gate.governor.book.close()
    if store is not None:
        used = {one.name: one.tokens for one in await store.wallets()}
        assert used == {"key:one": by_one, "key:two": by_two + rest, "user:ann": by_one + by_two}
        await store.close()


@in_real_time
async def test_calls_at_once_through_many_keys_stay_inside_the_budget_of_their_user():
    keys = [AccessKey(name=f"key-{n}", digest="", role="run", max_tokens=20_000) for n in range(6)]
    users = {"ann": BudgetTerms("user:ann", Limits(max_tokens=12_000))}
    store = MemoryStore()
    async with fly_behind("loop", line="", make_governor=with_keys(store, *keys, users=users)) as flown:
        paths = [f"/key-{n}/ann/run-{n}" for n in range(6)]
        flights = await asyncio.gather(*[fly_anthropic(f"{flown.gate.address}{path}", flown.key) for path in paths])
        assert all(flight.text for flight in flights)
        flown.assert_within(12_000)
        await flown.gate.governor.book.close()
    wallets = {one.name: one for one in await store.wallets()}
    assert wallets["user:ann"].tokens == sum(wallets[key.wallet].tokens for key in keys) <= 12_000
    assert {one.held_tokens for one in wallets.values()} == {0}


@in_real_time
async def test_shares_that_are_more_than_their_window_hold_it_together():
    window = BudgetTerms("window:max", Limits(max_tokens=6_000), "5h")
    users = {name: BudgetTerms(f"user:{name}", Limits(max_tokens=5_000), "5h") for name in ("ann", "bob")}
    windows = {f"user:{name}": window for name in users}
    making = with_keys(MemoryStore(), AccessKey(name="ci", digest="", role="run"), users=users, windows=windows)
    async with fly_behind("loop", line="", make_governor=making) as flown:
        first, _ = await spend(flown, "/ci/ann/run-1")
        second, text = await spend(flown, "/ci/bob/run-2")
        assert 3_000 < first <= 5_000
        assert text
        assert first + second <= 6_000
        await flown.gate.governor.book.close()


@pytest.mark.parametrize(("limit", "hears"), [(500_000, False), (9_000, True)])
@in_real_time
async def test_a_model_is_told_to_finish_when_little_is_left_in_the_wallet_and_not_before(limit, hears):
    key = AccessKey(name="ci", digest="", role="run", max_tokens=limit)
    async with fly_behind("loop", line="", make_governor=with_keys(MemoryStore(), key)) as flown:
        await fly_anthropic(f"{flown.gate.address}/ci/run-1", flown.key, most=6 if not hears else 60)
        told = [body for body in bodies(flown) if "[glidepath]" in json.dumps(body)]
        assert bool(told) is hears
        early = [body for body in told if body.get("tool_choice", {}).get("type") != "none"]
        assert bool(early) is hears, "before the last call, too"
        await flown.gate.governor.book.close()


@in_real_time
async def test_a_share_of_a_window_lands_runs_and_is_there_again_when_the_next_window_begins():
    now = [1_800_000_000.0]  # the beginning of five hours
    share = BudgetTerms("user:ann", Limits(max_tokens=4_000), "5h")
    store = MemoryStore(clock=lambda: now[0])
    making = with_book(store, Visitor("ci", "run", None), users={"ann": share})
    async with fly_behind("loop", line="", make_governor=making) as flown:

        async def fly(run):
            before = flown.up.usage.input + flown.up.usage.output
            flight = await fly_anthropic(f"{flown.gate.address}/ann/{run}", flown.key)
            return flight.text, flown.up.usage.input + flown.up.usage.output - before

        text, used = await fly("one")
        assert "SCRIPTED-ANSWER" in text
        assert 2_000 < used <= 4_000
        now[0] += 17_999
        text, more = await fly("two")
        assert text
        assert used + more <= 4_000, "it is the same window"
        now[0] += 1
        text, used = await fly("three")
        assert "SCRIPTED-ANSWER" in text
        assert 2_000 < used <= 4_000
        await flown.gate.governor.book.close()
    [wallet] = await store.wallets("user:ann")
    assert list(wallet.history) == ["2027-01-15T08:00", "2027-01-15T13:00"]


@in_real_time
async def test_a_model_that_a_key_does_not_name_is_refused_before_it_costs():
    narrow = Visitor("ci", "run", None, AccessKey(name="ci", digest="", role="run", models=("claude-*",)))
    async with fly_behind("answer", line="", make_governor=with_book(None, narrow)) as flown:
        with pytest.raises(Exception, match="model 'gpt-4o-mini' is not allowed with this key"):
            await fly_chat(flown.gate.address, flown.key)
        assert flown.up.usage.calls == 0
