"""`glidepath runs`: what is in a store, and what can be done with it."""

import json
import re

from .shell_user import glidepath

HELLO = ("--model", "python:flights:hello", "--store", "runs.db")


def fly(folder):
    ran = glidepath("run", "go", *HELLO, "--output-format", "json", folder=folder)
    assert ran.code == 0, ran
    return re.search(r"session_[0-9a-f]{8,}", ran.out).group()


def test_runs_are_listed_shown_exported_imported_and_pruned(tmp_path):
    session = fly(tmp_path)
    listed = glidepath("runs", "list", "--store", "runs.db", folder=tmp_path)
    assert session in listed.out
    assert "done" in listed.out
    shown = glidepath("runs", "show", session, "--store", "runs.db", folder=tmp_path)
    assert "COMPLETED/DONE" in shown.out
    assert "[user] go" in shown.out
    assert glidepath("runs", "export", session, "--store", "runs.db", "--out", "run.jsonl", folder=tmp_path).code == 0
    assert (tmp_path / "run.jsonl").exists()
    taken = glidepath("runs", "import", "run.jsonl", "--store", "other.db", "--as", "copy", folder=tmp_path)
    assert taken.code == 0, taken
    assert "copy" in glidepath("runs", "list", "--store", "other.db", folder=tmp_path).out
    assert glidepath("runs", "prune", "--days", "-1", "--store", "runs.db", folder=tmp_path).code == 0
    assert glidepath("runs", "list", "--store", "runs.db", folder=tmp_path).out == ""


def test_a_run_is_replayed_repaired_and_asked_to_stop(tmp_path):
    session = fly(tmp_path)
    replayed = glidepath("runs", "replay", session, *HELLO, folder=tmp_path)
    assert (replayed.code, "every hash the same" in replayed.err) == (0, True), replayed
    assert "is intact" in glidepath("runs", "repair", session, "--store", "runs.db", folder=tmp_path).err
    stopped = glidepath("runs", "stop", session, "--reason", "late", "--store", "runs.db", folder=tmp_path)
    assert (stopped.code, "has already ended" in stopped.err) == (1, True), stopped


def test_a_replay_with_other_settings_names_them_and_one_without_a_model_says_why_it_asks(tmp_path):
    session = fly(tmp_path)
    other = glidepath(
        "runs", "replay", session, *HELLO, "--max-turns", "7", "--system-prompt", "Be brief.", folder=tmp_path
    )
    assert other.code == 1, other
    assert "the run had other settings: system_prompt " in other.err, other
    assert "limit max_iterations changed: 50 -> 7" in other.err
    assert "{" not in other.err
    nameless = glidepath("runs", "replay", session, "--store", "runs.db", folder=tmp_path)
    assert (nameless.code, "a replay calls no model, but needs its name" in nameless.err) == (2, True), nameless


def test_a_flag_that_wants_a_number_says_so_in_plain_words(tmp_path):
    for words, said in (
        (("runs", "list", "-n", "x"), "-n/--limit: expected a whole number, got 'x'"),
        (("sim", "--seeds", "1,2"), "--seeds: expected a whole number, got '1,2'"),
        (("runs", "prune", "--days", "old"), "--days: expected a number, got 'old'"),
        (("completion",), "missing: shell, one of bash, zsh, tcsh, fish"),
    ):
        ran = glidepath(*words, folder=tmp_path)
        assert (ran.code, said in ran.err) == (2, True), ran


def test_a_folder_without_a_session_says_that_runs_in_a_pipe_are_not_kept(tmp_path):
    assert glidepath("run", "go", "--model", "python:flights:hello", folder=tmp_path).code == 0
    ran = glidepath("run", "-c", "more", "--model", "python:flights:hello", folder=tmp_path)
    assert (ran.code, "runs in a pipe or a script are kept only with --store" in ran.err) == (2, True), ran


def test_a_run_with_a_name_shows_it(tmp_path):
    assert glidepath("run", "go", *HELLO, "--name", "six of them", folder=tmp_path).code == 0
    shown = glidepath("runs", "show", "--last", "--store", "runs.db", folder=tmp_path)
    assert "title     six of them\n" in shown.out, shown


def test_a_report_that_cannot_be_written_is_refused_before_the_flights(tmp_path):
    for flag in ("--html", "--json"):
        ran = glidepath("sim", "--only", "well_behaved", flag, "no/such/x", folder=tmp_path)
        assert (ran.code, ran.out) == (2, ""), ran
        assert f"{flag}: no/such/x cannot be written: no/such is not a folder that you may write to" in ran.err


def test_what_is_missing_is_a_usage_error(tmp_path):
    fly(tmp_path)
    for action in ("show", "export", "repair", "stop"):
        ran = glidepath("runs", action, "nobody", "--store", "runs.db", folder=tmp_path)
        assert ran.code == 2
        assert "no session 'nobody'" in ran.err
    assert "--store" in glidepath("runs", "list", folder=tmp_path).err
    assert glidepath("runs", "import", "nothing.jsonl", "--store", "runs.db", folder=tmp_path).code == 2


def test_nothing_in_a_list_or_a_run_steers_the_terminal(tmp_path):
    import asyncio

    from glidepath import Agent, Limits
    from glidepath.sessions import SqliteStore
    from glidepath.testing import ScriptedModel, say

    evil = "evil\x1b]0;TITLE\x07\x1b[2J\u202e"
    store = SqliteStore(tmp_path / "s.db")

    async def fill():
        agent = Agent(model=ScriptedModel([say(f"hi {evil}")]), store=store, limits=Limits(max_iterations=2))
        await agent.run(f"task {evil}", session=evil)
        await store.close()

    asyncio.run(fill())
    for words in (("list",), ("show", evil)):
        ran = glidepath("runs", *words, "--store", "s.db", folder=tmp_path)
        assert ran.code == 0, ran
        assert not {"\x1b", "\x07", "\u202e"} & set(ran.out)
        assert "evil<U+001B>" in ran.out


def test_a_paused_run_is_stopped_by_whoever_takes_it_up(tmp_path):
    argv = ("--model", "python:flights:shell", "--tools", "shell", "--store", "runs.db")
    ran = glidepath("run", "go", *argv, folder=tmp_path)
    session = re.search(r"session_[0-9a-f]{8,}", ran.err).group()
    stopped = glidepath("runs", "stop", session, "--reason", "never mind", "--store", "runs.db", folder=tmp_path)
    assert (stopped.code, stopped.err) == (0, f"asked {session} to stop\n")
    again = glidepath("resume", session, *argv, "--approve", "all", folder=tmp_path)
    assert "never mind" in again.err, again
    assert not (tmp_path / "made.txt").exists()


# --- turns, plots ---------------------------------------------------------------------------------------------------


def test_list_show_plot_and_result_agree_about_turns_and_a_landing_is_not_one(tmp_path):
    argv = ("--model", "python:flights:endless", "--tools", "list", "--store", "runs.db", "--max-turns", "3")
    ran = glidepath(
        "run", "go", *argv, "--set", "limits.grace_iterations=0", "--output-format", "json", folder=tmp_path
    )
    assert json.loads(ran.out)["iterations"] == 3, ran
    row = glidepath("runs", "list", "--json", "--store", "runs.db", folder=tmp_path)
    assert json.loads(row.out)["turns"] == 3
    shown = glidepath("runs", "show", "--last", "--store", "runs.db", folder=tmp_path).out
    assert "turns     3 and 1 landing call, tool calls 3" in shown
    plot = glidepath("runs", "show", "--last", "--plot", "--store", "runs.db", folder=tmp_path).out
    assert "turns: 3 of 3 (100%)" in plot
    rows = [line.split("|")[0].strip() for line in plot.splitlines() if "|" in line]
    assert rows == ["turn    1", "turn    2", "turn    3", "landing"]


def test_a_plot_says_that_a_price_is_unknown_and_leaves_out_rows_that_say_nothing(tmp_path):
    fly(tmp_path)
    plot = glidepath("runs", "show", "--last", "--plot", "--store", "runs.db", folder=tmp_path).out
    assert "dollars: unknown, because the model has no price" in plot
    assert "no limit\n\ndollars" not in plot.replace("tool calls", "")
    seconds = [line for line in plot.splitlines() if line.startswith("seconds: ")]
    assert seconds[0].endswith(" of 1,800 (<1%)")
    assert " left" not in plot.partition("seconds")[2]


def test_a_session_of_several_messages_is_one_plot_with_a_row_for_each(tmp_path):
    argv = ("--model", "python:flights:hello", "--store", "runs.db", "--max-tokens", "100000")
    for task in ("first words", "second words", "third words"):
        glidepath("run", task, *argv, *(() if task.startswith("first") else ("--last",)), folder=tmp_path)
    shown = glidepath("runs", "show", "--last", "--store", "runs.db", folder=tmp_path).out
    assert "turns     3 in 3 messages" in shown
    row = json.loads(glidepath("runs", "list", "--json", "--store", "runs.db", folder=tmp_path).out)
    assert (row["turns"], row["runs"]) == (3, 3)
    plot = glidepath("runs", "show", "--last", "--plot", "--store", "runs.db", folder=tmp_path).out
    assert plot.count("turns: ") == 1
    assert "turns: 1 of 50 (2%) in the last message; each may use as much" in plot
    assert "  message 2 second words |" in plot
    assert "run 1 of" not in plot


def test_a_plot_as_json_has_the_burn_down_in_it(tmp_path):
    session = fly(tmp_path)
    shown = glidepath("runs", "show", "--json", session, "--plot", "-n", "1", "--store", "runs.db", folder=tmp_path)
    known = json.loads(shown.out)
    assert [message["role"] for message in known["messages"]] == ["assistant"]
    (run,) = known["burn_down"]
    assert run["limits"] == {"turns": 50.0, "seconds": 1800.0}
    assert [(reply["turn"], reply["turns"], reply["dollars"]) for reply in run["replies"]] == [(1, 1, None)]


def test_an_action_takes_an_id_or_last_and_not_both(tmp_path):
    session = fly(tmp_path)
    neither = glidepath("runs", "show", "--store", "runs.db", folder=tmp_path)
    assert (neither.code, "name a session, or add --last" in neither.err) == (2, True), neither
    both = glidepath("runs", "show", session, "--last", "--store", "runs.db", folder=tmp_path)
    assert (both.code, "take out --last or the id" in both.err) == (2, True), both


def test_the_turns_of_a_session_count_every_message_once_also_when_one_was_resumed(tmp_path):
    store = ("--store", "runs.db")
    glidepath("run", "one", "--model", "python:flights:looks", *store, folder=tmp_path)
    endless = ("--model", "python:flights:endless", "--tools", "list", *store, "--set", "limits.grace_iterations=0")
    glidepath("run", "two", "--last", *endless, "--max-turns", "3", folder=tmp_path)
    glidepath("resume", "--last", *endless, "--max-turns", "5", folder=tmp_path)
    row = json.loads(glidepath("runs", "list", "--json", *store, folder=tmp_path).out)
    assert (row["turns"], row["runs"]) == (7, 2)
    shown = glidepath("runs", "show", "--last", *store, folder=tmp_path).out
    assert "turns     7 in 2 messages" in shown, shown
    told = re.search(r"tokens (\d+)", shown).group(1)
    assert row["tokens"] == int(told)
    plot = glidepath("runs", "show", "--last", "--plot", *store, folder=tmp_path).out
    assert "turns: 5 of 5 (100%) in the last message; each may use as much" in plot, plot


def test_a_plot_says_that_the_turns_of_child_agents_are_included(tmp_path):
    import asyncio

    from glidepath import Agent, Limits
    from glidepath.sessions import SqliteStore
    from glidepath.testing import ScriptedModel, call, say

    inner = Agent(model=ScriptedModel().forever(say("Inside.")), limits=Limits(max_iterations=2), agent_name="inner")
    script = [call("inner", task="a"), call("inner", task="b"), say("Outside.")]
    tools = [inner.as_tool("inner", "Ask it.")]

    async def fly_both():
        store = SqliteStore(tmp_path / "s.db")
        outer = Agent(model=ScriptedModel(script), tools=tools, limits=Limits(max_iterations=9), store=store)
        result = await outer.run("go", session="talk")
        await store.close()
        return result

    assert asyncio.run(fly_both()).iterations == 3
    plot = glidepath("runs", "show", "talk", "--plot", "--store", "s.db", folder=tmp_path).out
    assert "turns: 5 of 9 (56%), child agents included" in plot, plot
    assert [line.split("|")[0].strip() for line in plot.splitlines() if "|" in line] == [
        "turn    1",
        "turn    2",
        "turn    3",
    ]


def test_the_table_of_the_simulator_fits_80_columns(tmp_path):
    ran = glidepath("sim", "--no-real-time", "--only", "honest", "--only", "busy_work", folder=tmp_path)
    table = ran.out.partition("\n\n")[0].splitlines()
    assert any("BUDGET_EXCEEDED/WRAPPED_UP" in row for row in table)
    assert max(map(len, table)) <= 79
