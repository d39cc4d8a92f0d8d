"""A gate reads its configuration again while it runs: what holds at once, what is never raised, what mistakes do."""

import asyncio
import hashlib
import os
import signal
import subprocess
from contextlib import asynccontextmanager

import httpx
import pytest
from msgspec.structs import replace

from glidepath import Limits
from glidepath.apps.gate import BudgetTerms
from glidepath.errors import ConfigurationError
from glidepath.serve.locks import AccessKey
from glidepath.sessions import MemoryStore

from .foreign import fly_anthropic, in_real_time
from .kept import until
from .test_locks import asked, served
from .test_serve import Served

ANN = "ann-has-a-key-of-her-own"
CARL = "carl-has-a-key-of-his-own"


def key_of(secret, name="ann", **terms):
    return AccessKey(name=name, digest=hashlib.sha256(secret.encode()).hexdigest(), role="run", **terms)


@asynccontextmanager
async def with_ann(behavior="loop", *, limits=None, store=None, **config):
    """A gate with one key, whose runs have these limits."""
    config = {"keys": (key_of(ANN),), **config}
    async with served(None, behavior, store=store, **config) as gate:
        if limits is not None:
            gate.reload(replace(gate.config, limits=limits))
        yield gate


def spent(gate):
    return gate.up.usage.input + gate.up.usage.output


async def fly(gate, path, secret=ANN, **options):
    """What a run uses, by the provider's count, and its answer."""
    before = spent(gate)
    flight = await fly_anthropic(f"{gate.url}{path}", secret, **options)
    return spent(gate) - before, flight.text


# --- limits of runs ---------------------------------------------------------------------------------------------------


@in_real_time
async def test_a_run_that_has_begun_keeps_its_limit_when_a_higher_one_is_read_and_the_next_run_has_that():
    async with with_ann(limits=Limits(max_tokens=6_000)) as gate:
        first, _ = await fly(gate, "/run-1", most=3)
        gate.reload(replace(gate.config, limits=Limits(max_tokens=12_000)))
        rest, text = await fly(gate, "/run-1")
        assert "SCRIPTED-ANSWER" in text
        assert 4_000 < first + rest <= 6_000
        next_run, _ = await fly(gate, "/run-2")
        assert 9_000 < next_run <= 12_000


@in_real_time
async def test_a_run_without_a_limit_stays_without_one_only_until_one_is_read():
    async with with_ann(limits=Limits(max_iterations=50)) as gate:
        first, _ = await fly(gate, "/run-1", most=2)
        gate.reload(replace(gate.config, limits=Limits(max_tokens=6_000)))
        rest, text = await fly(gate, "/run-1")
        assert "SCRIPTED-ANSWER" in text, "it lands, with what was kept for that"
        assert 4_000 < first + rest <= 6_000
        [line] = gate.book._lines.values()
        assert line.sessions["run-1"].limits.calls == 50, "what is no longer said is not lifted"


@in_real_time
async def test_a_limit_that_a_person_has_raised_is_not_lowered():
    async with with_ann(limits=Limits(max_tokens=6_000)) as gate:
        first, _ = await fly(gate, "/run-1", most=2)
        [line] = gate.book._lines.values()
        session = line.sessions["run-1"]
        session.raised = {"tokens": 9_000}
        session.set_limits(replace(session.limits, tokens=9_000))
        gate.reload(replace(gate.config, limits=Limits(max_tokens=5_000)))
        rest, _ = await fly(gate, "/run-1")
        assert 6_000 < first + rest <= 9_000
        assert (await fly(gate, "/run-2"))[0] <= 5_000


# --- keys, models, prices, upstreams ----------------------------------------------------------------------------------


@in_real_time
async def test_keys_come_and_go_and_a_reply_that_is_read_with_one_that_is_gone_ends():
    async with with_ann("endless:tokens=100000") as gate:
        assert (await asked(gate, CARL))[0] == 401
        reading = asyncio.ensure_future(fly(gate, "/run-1", most=1))
        await until(lambda: gate.up.usage.calls == 1)
        gate.reload(replace(gate.config, keys=(key_of(CARL, "carl"),)))
        assert (await asked(gate, ANN))[0] == 401
        _, text = await asyncio.wait_for(reading, 10)
        assert "this key is gone" in text
        await until(lambda: not gate.application.in_flight)


@in_real_time
async def test_models_and_prices_hold_from_the_next_call_on_also_on_lines_that_there_are():
    async with with_ann("answer") as gate:
        assert (await asked(gate, ANN))[0] == 200
        gate.reload(replace(gate.config, models=("claude-haiku-*",)))
        assert (await asked(gate, ANN, "/run-2"))[0] == 403
        gate.reload(replace(gate.config, keys=(key_of(ANN, models=("claude-opus-*",)),)))
        assert (await asked(gate, ANN, "/run-3"))[0] == 200
        gate.reload(replace(gate.config, limits=Limits(max_cost="1"), prices={"claude-opus-5-5": (1, 1_000_000_000)}))
        async with httpx.AsyncClient() as client:
            body = {"model": "claude-opus-5-5", "max_tokens": 10, "messages": [{"role": "user", "content": "hi"}]}
            headers = {"x-api-key": ANN, "anthropic-version": "2023-06-01"}
            reply = await client.post(f"{gate.url}/run-4/v1/messages", json=body, headers=headers, timeout=30)
        assert "x-glidepath-landed" in reply.headers, "nobody could pay that"


@in_real_time
async def test_a_call_goes_to_the_upstream_that_is_configured_now_and_a_mistake_changes_nothing():
    async with with_ann("answer") as gate:
        assert (await asked(gate, ANN))[0] == 200
        elsewhere = tuple([replace(one, url="http://127.0.0.1:9") for one in gate.config.upstreams])
        gate.reload(replace(gate.config, upstreams=elsewhere))
        status, said = await asked(gate, ANN, "/run-2")
        assert (status, "cannot be reached" in said) == (502, True)
        here = tuple([replace(one, url=gate.up.url) for one in gate.config.upstreams])
        gate.reload(replace(gate.config, upstreams=here))
        bad = replace(gate.config, upstreams=(replace(here[0], key="env:NOT_THERE"),), keys=(), models=("none",))
        with pytest.raises(ConfigurationError, match="NOT_THERE"):
            gate.reload(bad)
        assert (await asked(gate, ANN, "/run-3"))[0] == 200
        gate.reload(replace(gate.config, upstreams=here[1:]))
        assert (await asked(gate, ANN, "/run-4"))[0] == 404
        assert gate.up.usage.calls == 2


@in_real_time
async def test_a_call_that_waits_while_its_upstream_is_taken_away_is_refused_and_costs_nothing():
    async with with_ann("answer", limits=Limits(max_tokens=900_000)) as gate:
        upstream = gate.config.upstreams[0]
        gate._client.change(gate.config.upstreams[1:])
        status, said = await asked(gate, ANN)
        assert (status, f"upstream {upstream.name} is no longer configured" in said) == (400, True)
        [line] = gate.book._lines.values()
        assert line.sessions["run-1"].meter.reserved_tokens == 0
        assert spent(gate) == 0


@in_real_time
async def test_what_holds_from_the_start_is_named_and_stays():
    async with with_ann("loop", limits=Limits(max_tokens=6_000)) as gate:
        assert gate.reload(replace(gate.config, observe=True, max_body=20)) == ["gate.observe"]
        assert not gate.config.observe
        assert (await asked(gate, ANN))[0] == 413
        assert gate.reload(replace(gate.config, max_body=1_000_000)) == []
        assert (await fly(gate, "/run-1"))[0] <= 6_000


# --- budgets ----------------------------------------------------------------------------------------------------------


@in_real_time
async def test_a_budget_has_its_new_figure_with_the_next_call_also_for_runs_that_have_begun():
    store = MemoryStore()
    async with with_ann(store=store, keys=(key_of(ANN, max_tokens=5_000),)) as gate:
        first, _ = await fly(gate, "/run-1", most=2)
        gate.reload(replace(gate.config, keys=(key_of(ANN, max_tokens=9_000),)))
        rest, text = await fly(gate, "/run-1")
        assert text
        assert 5_000 < first + rest <= 9_000
        gate.reload(replace(gate.config, keys=(key_of(ANN, max_tokens=4_000),)))
        assert (await fly(gate, "/run-2"))[0] == 0
    [wallet] = await store.wallets()
    assert (wallet.tokens, wallet.held_tokens, wallet.max_tokens) == (first + rest, 0, 4_000)


@pytest.mark.parametrize("kept", [False, True])
@in_real_time
async def test_a_budget_that_is_new_holds_for_runs_that_have_begun(kept):
    store = MemoryStore() if kept else None
    async with with_ann(store=store) as gate:
        await fly(gate, "/ann/run-1", most=3)
        gate.reload(replace(gate.config, users={"ann": BudgetTerms("user:ann", Limits(max_tokens=4_000))}))
        rest, text = await fly(gate, "/ann/run-1")
        assert "SCRIPTED-ANSWER" in text, "she can still land"
        assert rest <= 4_000
        assert 2_000 < rest + (await fly(gate, "/ann/run-2"))[0] <= 4_000, "it counts from now on"
        used, _ = await fly(gate, "/bob/run-1", most=8)
        assert used > 4_000, "he has no budget"
    if kept:
        [wallet] = await store.wallets()
        assert (wallet.name, wallet.held_tokens) == ("user:ann", 0)
        assert 2_000 < wallet.tokens <= 4_000


@in_real_time
async def test_budgets_that_are_gone_and_others_in_their_place_take_over_what_is_kept_for_landings():
    store = MemoryStore()
    old = {"ann": BudgetTerms("user:ann", Limits(max_tokens=30_000))}
    async with with_ann(store=store, users=old) as gate:
        first, _ = await fly(gate, "/ann/run-1", most=3)
        gate.reload(replace(gate.config, users={}, keys=(key_of(ANN, max_tokens=5_000),)))
        second, text = await fly(gate, "/ann/run-1")
        assert "SCRIPTED-ANSWER" in text
        gate.reload(replace(gate.config, keys=(key_of(ANN),)))
        third, _ = await fly(gate, "/ann/run-2", most=12)
        assert third > 5_000
    wallets = {one.name: (one.tokens, one.held_tokens) for one in await store.wallets()}
    assert wallets == {"user:ann": (first, 0), "key:ann": (second, 0)}


@in_real_time
async def test_calls_in_flight_end_on_their_budgets_before_the_next_call_is_made_on_new_ones():
    store = MemoryStore()
    old = {"ann": BudgetTerms("user:ann", Limits(max_tokens=30_000))}
    async with with_ann("answer:tokens=200", store=store, users=old) as gate:
        gate.up._pace = 0.005
        flying = asyncio.ensure_future(fly_anthropic(f"{gate.url}/ann/run-1", ANN))
        await until(lambda: gate.up.usage.calls == 1)
        gate.reload(replace(gate.config, users={}, keys=(key_of(ANN, max_tokens=30_000),)))
        following = asyncio.ensure_future(fly_anthropic(f"{gate.url}/ann/run-2", ANN))
        await asyncio.sleep(0.1)
        assert gate.up.usage.calls == 1, "it waits"
        assert not flying.done()
        assert (await flying).text
        assert (await following).text
    used = {one.name: one.tokens for one in await store.wallets()}
    assert used["user:ann"] > 0
    assert used["key:ann"] > 0
    assert sum(used.values()) == spent(gate)


@in_real_time
async def test_a_call_does_not_wait_for_ever_for_what_is_in_flight_on_old_budgets(monkeypatch):
    monkeypatch.setattr("glidepath.apps.gate.lines.SETTLE", 0.1)
    async with with_ann("endless:tokens=100000") as gate:
        flying = asyncio.ensure_future(fly_anthropic(f"{gate.url}/ann/run-1", ANN))
        await until(lambda: gate.up.usage.calls == 1)
        gate.reload(replace(gate.config, keys=(key_of(ANN, max_tokens=30_000),)))
        status, said = await asked(gate, ANN, "/ann/run-2")
        assert (status, "the budgets of this key have changed" in said) == (402, True)
        assert gate.up.usage.calls == 1
        gate.reload(replace(gate.config, keys=(key_of(ANN),)))
        assert gate.book._lines[("ann", "", "ann")]._next is None, "as it was"
        flying.cancel()


@in_real_time
async def test_many_reloads_in_the_middle_of_many_runs_lose_nothing_and_exceed_nothing():
    store = MemoryStore()
    limits = Limits(max_tokens=6_000)
    async with with_ann(store=store, limits=limits) as gate:
        flights = [asyncio.ensure_future(fly_anthropic(f"{gate.url}/ann/run-{n}", ANN)) for n in range(6)]
        number = 0
        while not all(one.done() for one in flights):
            number += 1
            users = {} if number % 3 else {"ann": BudgetTerms("user:ann", Limits(max_tokens=90_000 + number))}
            keys = (key_of(ANN, max_tokens=None if number % 2 else 90_000 + number),)
            gate.reload(replace(gate.config, users=users, keys=keys, limits=Limits(max_tokens=6_000 + number)))
            await asyncio.sleep(0.02)
        texts = [(await one).text for one in flights]
        assert all("SCRIPTED-ANSWER" in text for text in texts)
        [line] = gate.book._lines.values()
        for session in line.sessions.values():
            assert 3_000 < session.meter.tokens <= 6_000
            assert (session.meter.reserved_tokens, session.meter.aside_tokens) == (0, 0)
        assert sum(one.meter.tokens for one in line.sessions.values()) == spent(gate)
    assert number > 3
    assert {one.held_tokens for one in await store.wallets()} == {0}


@in_real_time
async def test_a_budget_cannot_get_another_period():
    day = BudgetTerms("user:ann", Limits(max_tokens=4_000), "day")
    async with with_ann(users={"ann": day}) as gate:
        with pytest.raises(ConfigurationError, match=r"^users\.ann\.per: this budget has the period day"):
            gate.reload(replace(gate.config, keys=(), users={"ann": replace(day, per="week")}))
        assert (await asked(gate, ANN))[0] == 200, "nothing was changed"


# --- the process ------------------------------------------------------------------------------------------------------


def hang_up(gate, says):
    """Send SIGHUP, and read what the gate says to it."""
    os.kill(gate.process.pid, signal.SIGHUP)
    while says not in (line := gate.process.stderr.readline()):
        assert line, "it ended"


@pytest.mark.process
def test_a_hangup_reads_the_file_again_and_mistakes_leave_the_gate_as_it_was(provider, tmp_path):
    with Served(tmp_path, provider) as gate:
        assert gate.ask()[0] == 200
        path = tmp_path / "gate.toml"
        good = path.read_text()
        path.write_text(good.replace("claude-*", "gpt-*"))
        hang_up(gate, "gate.toml was read again")
        assert gate.ask()[0] == 403
        path.write_text(good.replace("models", "modles"))
        hang_up(gate, "keys.ann.models?; the gate continues as it was")
        assert gate.ask()[0] == 403
        path.write_text(good + "[gate]\nobserve = true\n")
        hang_up(gate, "for gate.observe, restart the gate")
        assert gate.ask()[0] == 200


TERMINAL = """
import fcntl, os, signal, sys, termios
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored, and so it would be in the gate
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


@pytest.mark.process
def test_a_gate_whose_terminal_is_closed_drains_and_ends(provider, tmp_path):
    gate = Served(tmp_path, provider)
    master, slave = os.openpty()
    command = [*gate.command("serve", "--config", "gate.toml", "--port", "0", "--store", "none")]
    gate.process = subprocess.Popen(
        [command[0], "-c", TERMINAL, *command[1:]],
        cwd=tmp_path,
        env=gate.environ,
        stdin=slave,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(slave)
    try:
        gate.url = gate.process.stderr.readline().split("The gate is at ")[1].split(";")[0]
        assert gate.ask()[0] == 200
        hang_up(gate, "was read again")  # its terminal is there
        os.close(master)
        assert gate.process.wait(20) in (0, -signal.SIGTERM)
        assert "was read again" not in gate.process.stderr.read()
    finally:
        if gate.process.poll() is None:
            gate.process.kill()
            gate.process.wait()
        gate.process.stderr.close()
