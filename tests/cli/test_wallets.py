"""`glidepath wallets`, runs with --wallet, and a chat whose money is that of the whole conversation."""

import asyncio
import json

import pytest

from glidepath import Agent, Budget, Limits, Usage
from glidepath.apps.cli import CliContext, make_parser
from glidepath.apps.cli.layers import gather
from glidepath.outcome import LoopOutcome
from glidepath.sessions import SqliteStore
from glidepath.testing import ScriptedModel, say

from .shell_user import glidepath

HELLO = ("--model", "python:flights:hello", "--set", 'prices={"scripted": [3, 15]}')
STORE = ("--store", "w.db")


def wallets(folder, *words):
    return glidepath("wallets", *words, *STORE, folder=folder)


def test_a_wallet_is_made_used_shown_closed_and_removed(tmp_path):
    assert wallets(tmp_path, "set", "team", "--max-tokens", "100000").out == "team: $0, 0 of 100000 tokens used\n"
    made = wallets(tmp_path, "set", "customer:42", "--max-cost", "5", "--per", "month", "--parent", "team")
    assert made.out.startswith("customer:42: $0 of $5, 0 tokens used in 20")
    ran = glidepath("run", "go", *HELLO, *STORE, "--wallet", "customer:42", folder=tmp_path)
    assert (ran.code, ran.out) == (0, "Hello from the script.\n"), ran
    listed = wallets(tmp_path, "list").out.splitlines()
    assert [line.partition(" ")[0] for line in listed] == ["customer:42:", "team:"]
    assert "$0 of $5" not in listed[0]
    shown = wallets(tmp_path, "show", "customer:42").out
    assert "inside    team" in shown
    assert "limits    $5 (an operator's)" in shown
    assert "by 0 runs" in shown
    assert wallets(tmp_path, "close", "team").out.endswith("used, closed\n")
    ran = glidepath("run", "go", *HELLO, *STORE, "--wallet", "customer:42", folder=tmp_path)
    assert ran.code != 0
    assert "wallet team is closed" in ran.err
    assert "closed" not in wallets(tmp_path, "open", "team").out
    assert wallets(tmp_path, "remove", "team").code == 2
    assert wallets(tmp_path, "remove", "customer:42").code == wallets(tmp_path, "remove", "team").code == 0
    last = wallets(tmp_path, "list")
    assert (last.code, last.out, last.err) == (0, "", "there are no wallets in this store\n")


def test_an_operator_outranks_a_program_that_has_not_used_the_wallet_yet(tmp_path):
    wallets(tmp_path, "set", "c", "--max-tokens", "10")

    async def fly():
        store = SqliteStore(tmp_path / STORE[1])
        budget = Budget(Limits(max_tokens=5_000), name="c", store=store)
        agent = Agent(model=ScriptedModel([say("hello")]), limits=Limits(max_iterations=3))
        result = await agent.run("go", parent=budget)
        await store.close()
        return result

    result = asyncio.run(fly())
    assert (result.iterations, result.cause.source) == (0, "wallet c")
    assert "of 5000 tokens" in wallets(tmp_path, "set", "c", "--as-declared").out
    assert asyncio.run(fly()).iterations == 1


def test_an_operator_outranks_a_wallet_and_takes_it_back(tmp_path):
    wallets(tmp_path, "set", "c", "--max-tokens", "5000")
    assert "of 10 tokens" in wallets(tmp_path, "set", "c", "--max-tokens", "10").out
    assert "an operator's" in wallets(tmp_path, "show", "c").out
    assert glidepath("run", "go", *HELLO, *STORE, "--wallet", "c", folder=tmp_path).code != 0
    assert "of 5000 tokens" in wallets(tmp_path, "set", "c", "--as-declared").out
    assert glidepath("run", "go", *HELLO, *STORE, "--wallet", "c", folder=tmp_path).code == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("show", "nobody"), "there is no wallet 'nobody'"),
        (("close", "nobody"), "there is no wallet 'nobody'"),
        (("set", "c"), "pass --max-cost or --max-tokens"),
        (("set", "c", "--max-cost", "$5"), "--max-cost must be an amount in dollars such as '0.50', not '$5'"),
        (("set", "c", "--max-cost", "5 EUR"), "--max-cost must be an amount in dollars"),
        (("set", "c", "--max-tokens", "-1"), "--max-tokens must be at least 0"),
        (("set", "c", "--max-tokens", "9", "--as-declared"), "or else --as-declared"),
        (("set", "new", "--as-declared"), "there is no wallet 'new'"),
        (("set", "new", "--max-tokens", "9", "--parent", "nobody"), "there is no wallet 'nobody'"),
        (("set", "here", "--max-tokens", "9", "--per", "day"), "--per and --parent are only for a new wallet"),
        (("set", "here", "--max-cost", "9"), "wallet 'here' has no max_cost"),
        (("set", "new", "--max-tokens", "9", "--per", "year"), "invalid choice: 'year'"),
        (("remove", "nobody"), "there is no wallet 'nobody'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_what_is_wrong_is_said(words, message, tmp_path):
    wallets(tmp_path, "set", "here", "--max-tokens", "5")
    ran = wallets(tmp_path, *words)
    assert ran.code == 2, ran
    assert message in ran.err


def test_a_wallet_needs_a_store_and_has_to_be_there(tmp_path):
    ran = glidepath("run", "go", *HELLO, "--wallet", "c", folder=tmp_path)
    assert (ran.code, "needs a store: pass --store" in ran.err) == (2, True), ran
    ran = glidepath("run", "go", *HELLO, *STORE, "--wallet", "c", folder=tmp_path)
    assert (ran.code, "there is no wallet 'c'" in ran.err) == (2, True), ran
    assert glidepath("wallets", "list", *STORE, folder=tmp_path).code == 2


def talk(folder, *flags):
    from glidepath.apps.cli.chat.chat_conversation import Conversation

    glidepath("--version", folder=folder)  # the folder of the models is on the path
    world = CliContext(environ={}, folder=folder, now=lambda: 0.0)
    options = make_parser(["chat"]).parse_args(["chat", *HELLO, "--model", "python:flights:talkative", *flags])
    return Conversation(gather(options, world), world)


async def conversation(chat, most=400):
    results = []
    while len(results) < most:
        results.append(await chat.run_turn("again", _nothing, _nothing))
        if results[-1].outcome is not LoopOutcome.DONE:
            break
    return results


@pytest.mark.parametrize("kept", [True, False], ids=["stored", "in memory"])
def test_g4_the_budget_of_a_chat_is_for_the_whole_conversation(kept, tmp_path):
    flags = ("--max-budget-usd", "0.05", *(("--store", str(tmp_path / "s.db")) if kept else ()))

    async def main():
        chat = talk(tmp_path, *flags)
        results = await conversation(chat)
        assert len(results) > 3
        assert float(sum(result.cost for result in results)) <= 0.05
        assert chat.session.totals.cost <= 0.05
        if kept:  # another process goes on with it
            again = talk(tmp_path, *flags)
            await again.resume(chat.session.id)
            assert again.session.totals.cost == chat.session.totals.cost
            more = await conversation(again)
            assert len(more) <= 3
            assert float(sum(result.cost for result in [*results, *more])) <= 0.05
            assert " of $0.05" in again.answer_command("/status")
        chat.clear()
        assert (await chat.run_turn("new", _nothing, _nothing)).outcome is LoopOutcome.DONE

    asyncio.run(main())


async def _nothing(_):
    return None


def test_a_chat_draws_from_a_wallet(tmp_path):
    wallets(tmp_path, "set", "c", "--max-tokens", "9000")

    async def main():
        chat = talk(tmp_path, "--store", str(tmp_path / "w.db"), "--wallet", "c")
        results = await conversation(chat)
        store = SqliteStore(tmp_path / "w.db")
        (wallet,) = await store.wallets("c")
        await store.close()
        assert wallet.tokens == sum(result.usage.total for result in results) <= 9_000
        assert results[-1].cause.source == "wallet c"

    asyncio.run(main())


def test_the_tokens_of_a_wallet_are_written_as_everywhere(tmp_path):
    assert wallets(tmp_path, "set", "c", "--max-tokens", "9k").out == "c: $0, 0 of 9000 tokens used\n"
    wrong = glidepath("wallets", "set", "c", "--max-tokens", "many", "--store", "w.db", folder=tmp_path)
    assert (wrong.code, "expected a whole number such as 5000 or 200k, got 'many'" in wrong.err) == (2, True), wrong


def lied_to(folder, *names):
    """Bills that no call explains, one in each of these wallets."""

    async def fly():
        store = SqliteStore(folder / STORE[1])
        for name in names:
            model = ScriptedModel([say("hello").with_usage(Usage(900_000, 10))])
            agent = Agent(model=model, limits=Limits(max_iterations=3), prices={"scripted": ("1", "1")})
            await agent.run("go", parent=Budget(Limits(max_cost="1"), name=name, store=store))
        await store.close()

    asyncio.run(fly())


@pytest.mark.parametrize(("word", "left"), [("accept", "0.90001"), ("reject", "0.0000")])
def test_disputed_bills_are_shown_and_decided(word, left, tmp_path):
    lied_to(tmp_path, "c")
    assert "disputed" in wallets(tmp_path, "list").out
    shown = wallets(tmp_path, "show", "c")
    assert "disputed  $0.89" in shown.out
    assert "`glidepath wallets accept c [BILL]`" in shown.err
    data = json.loads(wallets(tmp_path, "show", "c", "--json").out)
    (bill,) = data["bills"]
    assert bill["wallets"] == {"c": ""}
    assert bill["cost"] == data["disputed_cost"]
    assert f"bill {bill['id']} of" in shown.out
    wrong = wallets(tmp_path, word, "c", "nonsense")
    assert wrong.code == 2
    assert f"'nonsense' is not a disputed bill of wallet 'c': it has {bill['id']}" in wrong.err
    decided = wallets(tmp_path, word, "c", bill["id"])
    assert decided.code == 0
    assert f"{word}ed bill {bill['id']}" in decided.out
    (listed,) = wallets(tmp_path, "list", "--json").out.splitlines()
    now = json.loads(listed)
    assert (now["disputed_cost"], now["disputed_tokens"]) == ("0", 0)
    assert now["cost"].startswith(left)
    again = wallets(tmp_path, word, "c")
    assert (again.code, again.err) == (0, "wallet c has no disputed bills\n")
    assert wallets(tmp_path, word, "nobody").code == 2


def test_all_bills_of_a_wallet_are_decided_at_once_and_those_of_others_stay(tmp_path):
    lied_to(tmp_path, "c", "c", "d")
    assert wallets(tmp_path, "remove", "c").code == 2
    assert wallets(tmp_path, "reject", "c").out.count("rejected bill") == 2
    assert wallets(tmp_path, "remove", "c").code == 0
    assert json.loads(wallets(tmp_path, "show", "d", "--json").out)["disputed_tokens"] > 890_000
