"""One agent over many items: in order, on one budget, and again after a crash without repeating what is done."""

import asyncio
import itertools
import os
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import aclosing, suppress

import pytest

from glidepath import Agent, Budget, ConfigurationError, Limits
from glidepath.errors import ItemsError
from glidepath.sessions import MemoryStore
from glidepath.testing import ScriptedModel, say, virtual

LIMITS = Limits(max_iterations=3)


def echo(**settings):
    return ScriptedModel(**{"delay": 0.01, **settings}).forever(lambda rq: say(f"did {rq.messages[-1].text}"))


async def collect(results):
    return [one async for one in results]


@virtual
async def test_results_come_in_the_order_of_the_items_whatever_ends_first():
    def answer(request):
        number = int(request.messages[-1].text)
        return say(f"{number}" + " x" * (10 - number))

    agent = Agent(model=ScriptedModel(delay=0.01).forever(answer), limits=LIMITS)
    results = await collect(agent.map([str(n) for n in range(10)], at_once=4))
    assert [one.text.split()[0] for one in results] == [str(n) for n in range(10)]


@virtual
async def test_no_more_than_so_many_run_at_once():
    flying, most = set(), 0

    def answer(request):
        return say("ok ok ok ok")

    class Counting(ScriptedModel):
        async def stream(self, request):
            nonlocal most
            flying.add(id(request))
            most = max(most, len(flying))
            try:
                async for delta in super().stream(request):
                    yield delta
            finally:
                flying.discard(id(request))

    agent = Agent(model=Counting(delay=0.01).forever(answer), limits=LIMITS)
    assert len(await collect(agent.map(["x"] * 30, at_once=5))) == 30
    assert 1 < most <= 5


@virtual
async def test_one_budget_is_spent_by_many_at_once_nearly_as_far_as_one_by_one():
    done = {}
    for at_once in (1, 20):
        model = ScriptedModel(price=("3", "15"), delay=0.001, max_output_tokens=200).forever(lambda rq: say("ok " * 20))
        agent = Agent(model=model, limits=LIMITS)
        results = await collect(agent.map(["Item"] * 200, budget=Limits(max_cost="0.03"), at_once=at_once))
        assert len(results) == 200
        assert sum(one.cost or 0 for one in results) <= 0.03
        done[at_once] = sum(one.ok for one in results)
    assert done[20] >= 0.9 * done[1] > 0


@virtual
async def test_an_endless_iterable_is_read_as_it_is_needed_and_ends_with_the_budget():
    read = []

    def forever():
        for number in itertools.count():
            read.append(number)
            yield f"item {number}"

    agent = Agent(model=echo(price=("3", "15"), max_output_tokens=100), limits=LIMITS)
    results = agent.map(forever(), at_once=3)
    assert [(await anext(results)).text for _ in range(5)] == [f"did item {n}" for n in range(5)]
    await results.aclose()
    assert len(read) < 40
    for at_once in (3, 30):
        mapped = agent.map(forever(), budget=Limits(max_cost="0.01"), at_once=at_once)
        ended = await asyncio.wait_for(collect(mapped), 1e6)
        assert sum(one.ok for one in ended) > 0
        assert not ended[-1].ok


@virtual
async def test_items_may_come_from_an_async_source_and_be_messages():
    async def source():
        for number in range(3):
            await asyncio.sleep(1)
            yield f"late {number}"

    agent = Agent(model=echo(), limits=LIMITS)
    assert [one.text async for one in agent.map(source())] == [f"did late {n}" for n in range(3)]
    assert await collect(agent.map([])) == []


@virtual
async def test_a_source_that_fails_raises_after_its_last_result():
    def broken():
        yield from ("a", "b")
        raise OSError("disk gone")

    results = Agent(model=echo(), limits=LIMITS).map(broken())
    assert [(await anext(results)).text for _ in range(2)] == ["did a", "did b"]
    with pytest.raises(ItemsError, match="number 2: OSError: disk gone") as caught:
        await anext(results)
    assert isinstance(caught.value.__cause__, OSError)


@virtual
async def test_a_result_does_not_wait_for_the_next_item():
    seen = asyncio.Event()

    async def ask_after_each_answer():
        for prompt in ("one", "two", "three"):
            seen.clear()
            yield prompt
            await seen.wait()

    texts = []
    async for result in Agent(model=echo(), limits=LIMITS).map(ask_after_each_answer()):
        texts.append(result.text)
        seen.set()
    assert len(texts) == 3


@virtual
async def test_a_source_that_does_not_stop_when_it_is_asked_to_keeps_nobody():
    async def stubborn():
        while True:
            with suppress(asyncio.CancelledError):
                yield "one"
                await asyncio.sleep(60)

    began = asyncio.get_running_loop().time()
    async with aclosing(Agent(model=echo(), limits=LIMITS).map(stubborn(), at_once=2)) as results:
        assert (await anext(results)).text == "did one"
    assert asyncio.get_running_loop().time() - began < 60, "it was waited for"


@virtual
async def test_a_source_that_is_cancelled_by_itself_has_failed():
    async def broken():
        yield "one"
        raise asyncio.CancelledError

    results = Agent(model=echo(), limits=LIMITS).map(broken())
    assert (await anext(results)).text == "did one"
    with pytest.raises(ItemsError, match="items failed at number 1: CancelledError"):
        await anext(results)


@virtual
async def test_leaving_early_lands_what_flies_and_leaves_no_task():
    agent = Agent(model=echo(delay=10), limits=LIMITS)
    results = agent.map(["a"] * 50, at_once=10)
    async for _ in results:
        break
    await results.aclose()
    assert len(asyncio.all_tasks()) == 1


@virtual
async def test_a_failing_run_is_a_result_and_the_others_go_on():
    def answer(request):
        if request.messages[-1].text == "b":
            raise RuntimeError("model broke")
        return say("ok")

    agent = Agent(model=ScriptedModel().forever(answer), limits=LIMITS, max_retries=0)
    results = await collect(agent.map(["a", "b", "c"]))
    assert [one.ok for one in results] == [True, False, True]


@virtual
async def test_the_same_key_repeats_nothing_that_is_done_and_charges_the_budget_for_it():
    store, model = MemoryStore(), echo(price=("3", "15"), max_output_tokens=100)
    agent = Agent(model=model, store=store, limits=LIMITS)
    first = await collect(agent.map(["a", "b"], key="job", budget=Budget(Limits(max_cost="1"))))
    budget = Budget(Limits(max_cost="1"))
    again = await collect(agent.map(["a", "b", "c"], key="job", budget=budget))
    assert ([one.text for one in again], len(model.requests)) == (["did a", "did b", "did c"], 3)
    assert [one.run_id for one in again[:2]] == [one.run_id for one in first]
    spent = budget.meter.money
    assert spent == sum(int(one.cost * 10**12) for one in again)
    await collect(agent.map(["a", "b", "c"], key="job", budget=budget))
    assert budget.meter.money == spent


@virtual
async def test_a_key_of_another_item_or_another_agent_is_an_error():
    store = MemoryStore()
    agent = Agent(model=echo(), store=store, limits=LIMITS)
    await collect(agent.map(["a", "b"], key="job"))
    with pytest.raises(ConfigurationError, match=r"items\[1\] is not the item that session 'job.1' was made for"):
        await collect(agent.map(["a", "other"], key="job"))
    other = Agent(model=echo(), store=store, limits=LIMITS, system_prompt="Be brief.")
    with pytest.raises(ConfigurationError, match="made by another agent"):
        await collect(other.map(["a", "b"], key="job"))
    written = Agent(model=echo(), store=MemoryStore(), limits=LIMITS, system_prompt=lambda c: f"{time.time_ns()}")
    await collect(written.map(["a"], key="job"))
    await collect(written.map(["a"], key="job"))


@virtual
async def test_a_function_names_the_items_each_differently():
    store, model = MemoryStore(), echo()
    agent = Agent(model=model, store=store, limits=LIMITS)
    await collect(agent.map(["a", "b"], key=lambda item: f"letter-{item}"))
    await collect(agent.map(["b", "a", "c"], key=lambda item: f"letter-{item}"))
    assert len(model.requests) == 3
    with pytest.raises(ConfigurationError, match=r"items\[1\] has the key 'x' of items\[0\]"):
        await collect(agent.map(["a", "b"], key=lambda item: "x"))
    with pytest.raises(ConfigurationError, match="key must return a name"):
        await collect(agent.map(["a"], key=lambda item: None))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"items": "abc"}, "items must be prompts"),
        ({"items": 7}, "items must be prompts"),
        ({"at_once": 0}, "at_once"),
        ({"at_once": "many"}, "at_once"),
        ({"budget": "1"}, "budget must be"),
        ({"key": ""}, "key must be"),
        ({"key": "job"}, "key needs a store"),
        ({"session": "s"}, "session"),
        ({"items": ["ok", 7]}, r"items\[1\]: prompt must be"),
        ({"items": [""]}, r"items\[0\]: prompt is empty"),
    ],
)
@virtual
async def test_wrong_arguments_are_named(settings, said):
    settings = {"items": ["a"], **settings}
    with pytest.raises(ConfigurationError, match=said):
        await collect(Agent(model=echo(), limits=LIMITS).map(settings.pop("items"), **settings))


def test_a_list_for_code_without_a_loop_with_a_line_for_people(capsys):
    results = Agent(model=echo(delay=0), limits=LIMITS).map_sync(["a", "b"], progress=True)
    assert [one.text for one in results] == ["did a", "did b"]
    assert "2 of 2 done" in capsys.readouterr().err


PROGRAM = """
    import asyncio, sys
    from glidepath import Agent, Limits
    from glidepath.sessions import SqliteStore
    from glidepath.testing import ScriptedModel, say

    def answer(request):
        with open(sys.argv[2], "a") as ledger:
            ledger.write(request.messages[-1].text + "\\n")
        return say("ok")

    async def main():
        agent = Agent(
            model=ScriptedModel(delay=0.02).forever(answer), store=SqliteStore(sys.argv[1]), durability="full",
            limits=Limits(max_iterations=3),
        )
        async for result in agent.map([f"item {n}" for n in range(12)], key="job", at_once=3, progress=False):
            print(result.ok, flush=True)

    asyncio.run(main())
"""


def test_kill_9_in_the_middle_and_again_repeats_only_what_was_in_flight(tmp_path):
    program = tmp_path / "job.py"
    program.write_text(textwrap.dedent(PROGRAM))
    command = [sys.executable, str(program), str(tmp_path / "s.db"), str(tmp_path / "ledger")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as first:
        seen = [first.stdout.readline() for _ in range(4)]
        os.kill(first.pid, signal.SIGKILL)
    assert seen == ["True\n"] * 4
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "True\n" * 12, done.stderr
    asked = (tmp_path / "ledger").read_text().splitlines()
    assert set(asked) == {f"item {n}" for n in range(12)}
    assert len(asked) - 12 <= 6, "only what was in flight may be asked again"
    assert [asked.count(f"item {n}") for n in range(4)] == [1, 1, 1, 1]
