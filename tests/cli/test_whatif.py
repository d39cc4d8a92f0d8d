"""`glidepath whatif`: other limits, prices and guards over the runs in a store."""

import asyncio
import json
import re

import pytest

from glidepath import Agent, Limits, tool
from glidepath.sessions import SqliteStore
from glidepath.testing import ScriptedModel, call, say

from .shell_user import glidepath
from .terminal import Terminal


@tool
async def look(n: int) -> str:
    """Look."""
    return f"saw {n}"


@pytest.fixture
def folder(tmp_path):
    async def fill():
        store = SqliteStore(tmp_path / "s.db")
        for count in (1, 3, 6):
            model = ScriptedModel([*[call("look", n=n) for n in range(count)], say("the answer")])
            limits = Limits(max_iterations=20)
            agent = Agent(model=model, tools=[look], limits=limits, store=store, prices={"scripted": ("3", "15")})
            await agent.run("go", session=f"s{count}")
        await store.close()

    asyncio.run(fill())
    return tmp_path


@pytest.mark.parametrize("width", [70, 120])
def test_on_a_terminal_the_table_fits_and_keeps_what_was_asked_for(tmp_path, width):
    async def fill():
        store = SqliteStore(tmp_path / "s.db")
        model = ScriptedModel([*[call("look", n=n) for n in range(6)], say("the answer")])
        agent = Agent(model=model, tools=[look], limits=Limits(max_iterations=20), store=store)
        await agent.run("go", session="session_0123456789abcdef")
        await store.close()

    asyncio.run(fill())
    argv = ("whatif", "s.db", "--limits", "max_turns=4", "--prices", "scripted=3/15")
    with Terminal(width, tmp_path, *argv) as terminal:
        assert terminal.code() == 0
        head, row, *_ = terminal.screen().splitlines()
    assert head.endswith("STOPPED BY      AFTER  THEN COST  ANSWER")
    assert ("TOKENS" in head) is (width == 120)
    assert row.startswith("01234567  done")
    assert row.endswith("LOST")


def test_a_table_says_where_each_run_would_have_been_stopped(folder):
    ran = glidepath("whatif", "s.db", "--limits", "max_turns=4,max_tool_calls=5", folder=folder)
    assert ran.code == 0, ran
    lines = ran.out.splitlines()
    assert lines[1].split()[:2] == ["s6", "done"]
    assert lines[1].split()[5:7] == ["max_iterations", "4"]
    assert lines[1].endswith("LOST")
    assert lines[2].startswith("3 runs: 1 would have been stopped; 1 of 3 answers lost; cost $")
    assert len(glidepath("whatif", "s.db", "--limits", "max_turns=4", "--all", folder=folder).out.splitlines()) == 5


def test_the_total_is_the_sum_of_the_column(folder):
    ran = glidepath("whatif", "s.db", "--limits", "max_turns=1", "--all", folder=folder)
    *rows, total = ran.out.splitlines()[1:]
    column = sum(float(row.split()[-2].lstrip("$")) for row in rows)
    assert abs(float(re.findall(r"\$(\d+\.\d+)", total)[-1]) - column) < 0.0002, ran


def test_other_prices_change_what_would_have_been_paid_and_not_what_was(folder):
    before = glidepath("whatif", "s.db", "--limits", "max_turns=50", "--all", folder=folder).out.splitlines()
    after = glidepath("whatif", "s.db", "--prices", "scripted=30/150", "--all", folder=folder).out.splitlines()
    for old, new in zip(before[1:-1], after[1:-1], strict=True):
        assert new.split()[4] == old.split()[4]
        assert abs(float(new.split()[-2][1:]) - 10 * float(old.split()[-2][1:])) < 0.001
    paid, then = re.findall(r"\$(\d+\.\d+)", after[-1])
    assert abs(float(then) - 10 * float(paid)) < 0.001, after
    told = glidepath("whatif", "s.db", "--prices", "scripted=30/150", "--json", folder=folder).out.splitlines()
    assert all(abs(float(one["cost_then"]) / float(one["cost"]) - 10) < 0.01 for one in map(json.loads, told))


def test_a_price_for_a_model_that_no_run_used_names_the_models_there_are(folder):
    ran = glidepath("whatif", "s.db", "--prices", "openai:scripted=3/15", folder=folder)
    assert ran.err == "--prices openai:scripted: no run here used this model; the models are scripted\n"
    assert glidepath("whatif", "s.db", "--prices", "scripted=3/15", folder=folder).err == ""


def test_prices_for_runs_that_had_none_leave_what_was_paid_unknown(tmp_path):
    glidepath("run", "go", "--model", "python:flights:hello", "--store", "s.db", folder=tmp_path)
    (model,) = {one["model"] for one in sessions(tmp_path)}
    words = ("whatif", "s.db", "--prices", f"{model}=3/15")
    ran = glidepath(*words, "--all", folder=tmp_path)
    assert re.search(r"lost; what they cost is unknown; it would have been \$0\.0\d+$", ran.out.strip()), ran
    told = json.loads(glidepath(*words, "--json", folder=tmp_path).out)
    assert (told["cost"], float(told["cost_then"]) > 0) == (None, True)


def sessions(folder):
    return map(json.loads, glidepath("sessions", "list", "--json", "--store", "s.db", folder=folder).out.splitlines())


def test_a_plot_is_printed_and_written(folder):
    ran = glidepath("whatif", "s.db", "--plot", "max_cost", "--svg", "p.svg", folder=folder)
    assert ran.code == 0, ran
    assert "answers kept by max_cost" in ran.out
    assert ran.out.rstrip().endswith("100 % 3/3")
    assert (folder / "p.svg").read_text(encoding="utf-8").startswith("<svg")


def test_runs_are_told_as_json(folder):
    words = ("--prices", "scripted=1/1", "--guards", "max_repeated_tool_steps=2", "--json")
    ran = glidepath("whatif", "s.db", *words, folder=folder)
    told = [json.loads(line) for line in ran.out.splitlines()]
    assert [one["answer"] for one in told] == ["kept", "kept", "kept"]
    assert all(one["stopped_by"] is None for one in told)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "tell it what to try"),
        (("--limits", "max_luck=3"), "there is no limit 'max_luck' to try"),
        (("--limits", "max_tokens"), "--limits: expected NAME=VALUE"),
        (("--limits", "max_tokens=many"), "--limits max_tokens"),
        (("--prices", "gpt=1"), "--prices gpt: expected IN/OUT"),
        (("--prices", "gpt=a/b"), "--prices gpt: expected IN/OUT"),
        (("--guards", "max_luck=3"), "'max_luck' cannot be tried here"),
        (("--guards", "max_error_streak=0"), "--guards max_error_streak: expected a whole number"),
        (("--plot", "luck"), "there is no limit 'luck' to try"),
        (("--svg", "x.svg", "--limits", "max_tokens=1"), "--svg needs --plot"),
        (("--plot", "max_tokens", "--svg", "no/such/x.svg"), "--svg: no/such/x.svg cannot be written"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_what_cannot_be_tried_is_said(folder, words, said):
    ran = glidepath("whatif", "s.db", *words, folder=folder)
    assert (ran.code, said in ran.err) == (2, True), ran


def test_a_store_that_is_not_there_is_said(tmp_path):
    ran = glidepath("whatif", "nothing.db", "--limits", "max_tokens=5", folder=tmp_path)
    assert (ran.code, "there is no session store" in ran.err) == (2, True), ran


def test_the_store_is_the_one_of_the_settings_when_none_is_named(folder):
    words = ("whatif", "--limits", "max_tokens=5", "--json")
    named = glidepath("whatif", "s.db", *words[1:], folder=folder)
    assert (named.code, bool(named.out)) == (0, True), named
    for way in ({"environ": {"GLIDEPATH_STORE": "s.db"}}, {"flags": ("--store", "s.db")}):
        ran = glidepath(*words, *way.get("flags", ()), folder=folder, environ=way.get("environ"))
        assert (ran.code, ran.out) == (0, named.out), ran
    both = glidepath(*words, "t.db", "--store", "s.db", folder=folder)
    assert (both.code, "Name one" in both.err) == (2, True), both


def test_runs_without_a_price_cost_an_unknown_amount_not_nothing(tmp_path):
    glidepath("run", "go", "--model", "python:flights:hello", "--store", "s.db", folder=tmp_path)
    ran = glidepath("whatif", "s.db", "--limits", "max_tokens=1k", "--all", folder=tmp_path)
    assert "0 of 1 answer lost; the cost is unknown, because no run has a price" in ran.out, ran
    assert "$0" not in ran.out
    told = glidepath("whatif", "s.db", "--limits", "max_tokens=1k", "--json", folder=tmp_path)
    assert json.loads(told.out)["cost"] is None


def test_limits_are_tried_on_whole_sessions_too_and_copies_are_not_counted(folder):
    async def more():
        store = SqliteStore(folder / "s.db")
        limits = Limits(max_iterations=20)
        await Agent(model=ScriptedModel([say("more")]), limits=limits, store=store).run("go on", session="s1")
        await store.fork("s6", name="copy")
        await store.close()

    asyncio.run(more())
    ran = glidepath("whatif", "s.db", "--limits", "max_turns=2,scope=session", folder=folder)
    assert [line.split()[0] for line in ran.out.splitlines()[1:-1]] == ["s1", "s6", "s3"], ran
    assert ran.out.splitlines()[-1].startswith("4 runs: 3 would have been stopped; 3 of 4 answers lost")
    wrong = glidepath("whatif", "s.db", "--limits", "scope=both", folder=folder)
    assert (wrong.code, "scope" in wrong.err, "session" in wrong.err) == (2, True, True), wrong
