"""What a newcomer gets wrong in the first hour. Each mistake gets the value that was meant, or one sentence that names
the field and the fix: no traceback of our own, no page of usage, and the right exit code."""

import asyncio
import contextvars
import dataclasses
import enum
import functools
import inspect
import re
import threading
import time
from datetime import timedelta
from decimal import Decimal
from typing import Literal

import pydantic
import pytest

from glidepath import _ELSEWHERE, Agent, Budget, ConfigurationError, Limits, LoopOutcome, tool
from glidepath.sessions import SqliteStore
from glidepath.testing import ScriptedModel, call

from .cli.shell_user import glidepath

LIMITS = Limits(max_iterations=5)
PRICES = {"scripted": ("3", "15")}


@tool
def echo(text: str) -> str:
    """Repeat a text."""
    return text


def plain(x: int) -> int:
    """Give x back."""
    return x


def agent(*turns, **settings):
    model = ScriptedModel(turns) if turns else ScriptedModel().forever("hi")
    return Agent(**({"model": model, "limits": LIMITS} | settings))


# --- what is refused, with the fix ----------------------------------------------------------------------------------

AGENT = {
    "no model": ({"model": None}, "model"),
    "no colon in a model's name": ({"model": "gpt-5"}, "did you mean 'openai:gpt-5'"),
    "a slash in a model's name": ({"model": "anthropic/claude-x"}, "did you mean 'anthropic:claude-x'"),
    "a misspelled provider": ({"model": "antropic:claude-x"}, "did you mean 'anthropic'"),
    "a provider alone": ({"model": "anthropic:"}, "such as 'openai:gpt-5'"),
    "no price": ({"limits": Limits(max_cost=1)}, r"pass prices=\{'scripted'"),
    "too few tokens": ({"limits": Limits(max_tokens=100)}, "it needs .* for a reply .*raise max_tokens"),
    "a dict for limits": ({"limits": {"max_iterations": 3}}, r"such as Limits\(max_iterations=10\)"),
    "one tool instead of a list": ({"tools": echo}, r"such as tools=\[\.\.\.\]"),
    "a tool that was called": ({"tools": [plain(3)]}, "functions.*not 3"),
    "a class as a tool": ({"tools": [int]}, "not <class 'int'>"),
    "a lambda as a tool": ({"tools": [lambda x: x]}, "pass name='...'"),
    "two tools of one name": ({"tools": [echo, echo]}, "two tools are named 'echo'"),
    "a number as a store": ({"store": 7}, r"SqliteStore\(path\), or the path of its file; not 7"),
    "a time in words": ({"tool_timeout": "soon"}, "tool_timeout must be a number of seconds.*'90s'.*; got 'soon'"),
    "an amount in words": ({"max_output_tokens": "many"}, "max_output_tokens must be a whole number.*; got 'many'"),
    "a hot temperature": ({"temperature": "hot"}, "temperature must be a finite number"),
}


@pytest.mark.parametrize("mistake", AGENT)
def test_a_wrong_agent_is_refused_with_the_fix(mistake):
    settings, answer = AGENT[mistake]
    with pytest.raises(ConfigurationError, match=answer) as refused:
        agent(**settings)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("instructions", "did you mean 'system_prompt'"),
        ("name", "did you mean 'agent_name'"),
        ("tool", "did you mean 'tools'"),
        ("temprature", "did you mean 'temperature'"),
        ("llm", "did you mean 'model'"),
        ("hooks", "did you mean 'plugins'"),
        ("callbacks", "did you mean 'plugins'"),
        ("memory", "did you mean 'store'"),
        ("checkpointer", "did you mean 'store'"),
        ("mcp_servers", "did you mean 'tools'"),
        ("result_type", "did you mean 'output_type'"),
        ("response_format", "did you mean 'output_type'"),
        ("max_turns", r"limits=Limits\(max_iterations=...\)"),
        ("timeout", r"limits=Limits\(timeout=...\)"),
        ("budget", r"limits=Limits\(max_cost=...\)"),
        ("api_key", r"it belongs to the model: .*api_key="),
        ("deps", r"agent\.run\(prompt, deps=...\)"),
        ("messages", r"agent\.run\(prompt, session=...\)"),
        ("stream", r"agent\.stream\(prompt\)"),
        ("verbose", "LogObserver"),
    ],
)
def test_a_keyword_of_another_framework_leads_to_ours(name, fix):
    with pytest.raises(ConfigurationError, match=f"there is no setting '{name}'; .*{fix}"):
        agent(**{name: 3})


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("max_turns", "max_iterations"),
        ("max_steps", "max_iterations"),
        ("recursion_limit", "max_iterations"),
        ("request_limit", "max_iterations"),
        ("turns", "max_iterations"),
        ("max_budget_usd", "max_cost"),
        ("max_usd", "max_cost"),
        ("cost", "max_cost"),
        ("budget", "max_cost"),
        ("max_time", "timeout"),
        ("max_seconds", "timeout"),
        ("deadline", "timeout"),
        ("tokens", "max_tokens"),
        ("max_depht", "max_depth"),
    ],
)
def test_a_limit_by_another_name_leads_to_ours(name, right):
    with pytest.raises(ConfigurationError, match=f"there is no limit '{name}'; did you mean '{right}'"):
        Limits(**{name: 3})


@pytest.mark.parametrize("method", ["run_sync", "stream_sync", "stream"])
@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("max_turns", r"it is a limit: .*limits=Limits\(max_iterations=...\)"),
        ("timeout", r"limits=Limits\(timeout=...\)"),
        ("history", "did you mean 'session'"),
        ("context", "did you mean 'deps'"),
        ("sesion", "did you mean 'session'"),
        ("tools", r"agent.replace\(tools=...\)"),
        ("temperature", r"agent.replace\(temperature=...\)"),
        ("zzz", "takes no keyword 'zzz'$"),
    ],
)
def test_a_keyword_that_a_run_does_not_take_leads_to_where_it_belongs(method, name, fix):
    with pytest.raises(ConfigurationError, match=f"takes no keyword '{name}'.*{fix}|{fix}"):
        list(getattr(agent(), method)("hi", **{name: 3}))  # stream_sync begins when somebody looks


@pytest.mark.parametrize(
    ("method", "name", "fix"),
    [
        ("run_sync", "decisions", r"it is for a run that continues: agent.resume\(..., decisions=...\)"),
        ("run_sync", "accept_repair", r"it is for a run that continues: agent.resume\(..., accept_repair=...\)"),
        ("resume_sync", "session", r"it is for a new run: agent.run\(..., session=...\)"),
        ("resume_sync", "prompt", r"for another message use agent.run\(message, session=...\)"),
        ("resume_sync", "max_turns", r"limits=Limits\(max_iterations=...\)"),
    ],
)
@pytest.mark.parametrize("value", [None, 3])
def test_an_option_of_another_method_leads_to_that_one(method, name, fix, value):
    with pytest.raises(ConfigurationError, match=f"takes no keyword '{name}'; .*{fix}"):
        getattr(agent(), method)("hi", **{name: value})


def test_a_method_that_checks_its_keywords_is_still_one_to_await():
    assert inspect.iscoroutinefunction(Agent.run)
    assert inspect.iscoroutinefunction(Agent.resume)


LIMIT = {
    "positional": (lambda: Limits(5), TypeError, r"takes keywords, such as Limits\(max_iterations=...\), not 5"),
    "zero": (lambda: Limits(max_iterations=0), ConfigurationError, "at least 1, or None for no limit; got 0"),
    "half a token": (lambda: Limits(max_tokens="1.5"), ConfigurationError, "max_tokens must be a whole number"),
    "2.5 tokens": (lambda: Limits(max_tokens=2.5), ConfigurationError, "max_tokens must be a whole number"),
    "minutes in words": (lambda: Limits(timeout="5 minutes"), ConfigurationError, "such as 30, a time such as '90s'"),
    "a comma": (lambda: Limits(max_cost="1,50"), ConfigurationError, "dollars such as '0.50', not '1,50'"),
    "a currency": (lambda: Limits(max_cost="5 USD"), ConfigurationError, "dollars such as '0.50'"),
    "a budget of nothing": (lambda: Budget(5), ConfigurationError, "Limits"),
}


@pytest.mark.parametrize("mistake", LIMIT)
def test_a_wrong_limit_is_refused_with_an_example(mistake):
    make, kind, answer = LIMIT[mistake]
    with pytest.raises(kind, match=answer):
        make()


@pytest.mark.parametrize(
    ("limits", "field", "value"),
    [
        (Limits(max_cost=0.1), "max_cost", Decimal("0.1")),
        (Limits(max_cost="$5"), "max_cost", "5"),
        (Limits(timeout="30s"), "timeout", 30),
        (Limits(timeout="30"), "timeout", 30),
        (Limits(timeout=timedelta(minutes=2)), "timeout", 120),
        (Limits(max_tokens="10k"), "max_tokens", 10_000),
        (Limits(max_tokens="1.5M"), "max_tokens", 1_500_000),
        (Limits(max_tool_calls="1,000"), "max_tool_calls", 1_000),
        (agent(max_output_tokens="4k").config, "max_output_tokens", 4_000),
        (agent(tool_timeout="1m30s").config, "tool_timeout", 90),
        (agent(tool_timeout=timedelta(minutes=1)).config, "tool_timeout", 60),
    ],
    ids=["0.1", "$5", "30s", "30", "delta", "10k", "1.5M", "comma", "agent 4k", "agent time", "agent delta"],
)
def test_a_limit_as_people_write_it_is_taken(limits, field, value):
    assert getattr(limits, field) == value


# --- running --------------------------------------------------------------------------------------------------------


async def iterate(stream):
    async for _ in stream:
        pass


async def wait_for(stream):
    await stream


def enter(stream):
    with stream:
        pass


async def enter_async(stream):
    async with stream:
        pass


RUNNING = {
    "no limit": (lambda: Agent(model=ScriptedModel()).run_sync("x"), r"pass limits=Limits\(max_iterations=...\)"),
    "a model without its keyword": (
        lambda: Agent(ScriptedModel(), limits=LIMITS),
        "takes a model's name, a LoopConfig, or keywords such as model=..., not <",
    ),
    "an empty prompt": (lambda: agent().run_sync(""), "prompt is empty: say what"),
    "no prompt": (lambda: agent().run_sync(None), "prompt must be a str or a non-empty sequence of messages"),
    "a dict as a prompt": (lambda: agent().run_sync({"role": "user"}), "prompt must be a str"),
    "dicts as messages": (lambda: agent().run_sync([{"role": "user"}]), r"UserMessage\('...'\), not dict"),
    "numbers as messages": (lambda: agent().run_sync([7]), r"UserMessage\('...'\), not int"),
    "a dict of limits for a run": (lambda: agent().run_sync("x", limits={}), r"such as Limits\(max_iterations=10\)"),
    "for over a stream": (lambda: list(agent().stream("x")), "async with agent.stream"),
    "with for a stream": (lambda: enter(agent().stream("x")), r"with agent.stream_sync"),
    "await of a stream": (lambda: asyncio.run(wait_for(agent().stream("x"))), "async with agent.stream"),
    "async for over stream_sync": (lambda: asyncio.run(iterate(agent().stream_sync("x"))), "async with agent.stream"),
    "async with for stream_sync": (lambda: asyncio.run(enter_async(agent().stream_sync("x"))), "agent.stream_sync"),
    "resume without a store": (lambda: asyncio.run(agent().resume("nope")), "needs a store"),
    "invoke": (lambda: agent().invoke("x"), r"use agent.run_sync\(prompt\), or await agent.run\(prompt\)"),
    "arun": (lambda: agent().arun("x"), r"use await agent.run\(prompt\)"),
    "run_stream": (lambda: agent().run_stream("x"), r"use async with agent.stream\(prompt\)"),
    "run_synk": (lambda: agent().run_synk("x"), "use run_sync"),
    "a setting that run does not take": (lambda: agent().run_sync("x", max_turns=3), "'max_turns'"),
}


@pytest.mark.parametrize("mistake", RUNNING)
def test_a_wrong_call_is_refused_with_the_right_one(mistake):
    make, answer = RUNNING[mistake]
    with pytest.raises((ConfigurationError, TypeError, AttributeError), match=answer) as refused:
        make()
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("final_output", "use text, or output"),
        ("content", "use text"),
        ("data", "use output"),
        ("status", "use outcome"),
        ("error", "use cause"),
        ("history", "use messages"),
        ("tokens", "use usage.total"),
        ("turns", "use iterations"),
        ("mesages", "use messages"),
    ],
)
def test_a_part_of_a_result_by_another_name_leads_to_ours(name, right):
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'; {right}"):
        getattr(agent().run_sync("x"), name)


@pytest.mark.parametrize(("home", "name"), [(home, one) for home, names in _ELSEWHERE.items() for one in names])
def test_a_name_of_another_module_is_refused_with_the_line_that_imports_it(home, name):
    with pytest.raises(ImportError, match=f"^glidepath has no {name}: from {home} import {name}$"):
        exec(f"from glidepath import {name}", {})
    exec(f"from {home} import {name}", {})


def test_forgetting_await_is_pythons_own_error_and_its_warning_names_run():
    with pytest.warns(RuntimeWarning, match="Agent.run' was never awaited"), pytest.raises(AttributeError):
        _ = agent().run("x").text


def test_a_used_up_script_fails_at_once_and_counts_right():
    began = time.process_time()
    result = agent(call("echo", text="x"), tools=[echo]).run_sync("x")
    assert result.outcome is LoopOutcome.FAILED
    assert "unexpected request 2, the script has 1 turn;" in result.cause.reason
    assert not result.ok
    assert time.process_time() - began < 2  # it is not tried again


def test_a_store_in_a_folder_that_does_not_exist_is_named(tmp_path):
    result = agent(store=SqliteStore(tmp_path / "no" / "runs.db")).run_sync("x")
    assert result.outcome is LoopOutcome.FAILED
    assert f"there is no folder {tmp_path / 'no'}" in result.cause.reason


def test_run_sync_works_in_a_running_loop_in_threads_and_in_one_loop_after_another():
    one = agent()
    texts = []
    threads = [threading.Thread(target=lambda: texts.append(one.run_sync("x").text)) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    async def notebook():
        return one.run_sync("x").text

    texts += [asyncio.run(notebook()), asyncio.run(one.run("x")).text]
    assert texts == ["hi"] * 7


# --- tools ----------------------------------------------------------------------------------------------------------


def any_number(*args: str):
    """x"""


def any_keyword(**options: str):
    """x"""


def positional_only(x: int, /):
    """x"""


class Own:
    def method(self, x: int) -> str:
        """x"""
        return f"m{x}"

    @tool
    def decorated(self, x: int) -> str:
        """x"""
        return f"d{x}"

    @classmethod
    def of_the_class(cls, x: int) -> str:
        """x"""
        return f"c{x}"

    def __call__(self, x: int) -> str:
        """x"""
        return f"k{x}"


def own_class(x: Own):
    """x"""


def unknown_type(x: "Nowhere"):  # noqa: F821 - what people write
    """x"""


TOOL = {
    "*args": (lambda: tool(any_number), "parameter 'args' .*use one parameter of type list"),
    "**kwargs": (lambda: tool(any_keyword), "parameter 'options' .*name the parameters"),
    "positional-only": (lambda: tool(positional_only), "parameter 'x' is positional-only.*remove the `/`"),
    "a lambda": (lambda: tool(lambda x: x), "pass name='...'"),
    "a class of one's own": (lambda: tool(own_class), r"Own'> cannot be shown to a model; use plain types"),
    "a type that is not there": (lambda: tool(unknown_type), "import its type at run time"),
    "a method of a class": (lambda: agent(tools=[Own.method]), "give the agent `instance.method`"),
    "a decorated method of a class": (lambda: agent(tools=[Own.decorated]), "give the agent `instance.decorated`"),
    "a misspelled option": (lambda: tool(plain, timout=3), "did you mean 'timeout'"),
    "a time as text": (lambda: tool(plain, timeout="30s"), "timeout must .*such as 30"),
}


@pytest.mark.parametrize("mistake", TOOL)
def test_a_function_that_cannot_be_a_tool_is_refused_with_the_fix(mistake):
    make, answer = TOOL[mistake]
    with pytest.raises(ConfigurationError, match=answer) as refused:
        make()
    assert "\n" not in str(refused.value)


class Paint(enum.Enum):
    RED = "red"


class Form(pydantic.BaseModel):
    size: int


@dataclasses.dataclass
class Box:
    size: int


def typed(
    form: Form, box: Box, paint: Paint, word: Literal["a"], either: int | str, pair: tuple[int, str], some: set[int]
):
    """x"""
    return f"{form.size} {box.size} {paint.name} {word} {either} {pair} {some}"


TYPED = {
    "form": {"size": 1},
    "box": {"size": 2},
    "paint": "red",
    "word": "a",
    "either": 3,
    "pair": [1, "x"],
    "some": [1, 1],
}
NOTED = contextvars.ContextVar("NOTED", default="unset")


def notes():
    """x"""
    return NOTED.get()


async def notes_async():
    """x"""
    return NOTED.get()


def optional(x: int = None):  # noqa: RUF013 - what people write
    """x"""
    return f"{x}"


def nothing():
    """x"""


def anything():
    """x"""
    return object()


def binary():
    """x"""
    return b"\xff\x00"


def huge():
    """x"""
    return "x" * 100_000


def pieces():
    """x"""
    yield 1
    yield 2


def leaves():
    """x"""
    raise SystemExit(3)


def fails(x: int):
    """x"""
    raise ValueError(f"no {x}")


async def fails_in_a_group():
    """x"""

    async def fail():
        raise ValueError("boom")

    async with asyncio.TaskGroup() as group:
        group.create_task(fail())


async def cancels_itself():
    """x"""
    asyncio.current_task().cancel()
    await asyncio.sleep(0)


RESULTS = {
    "a plain function": (plain, {"x": 3}, "3"),
    "a method": (Own().method, {"x": 1}, "m1"),
    "a decorated method": (Own().decorated, {"x": 1}, "d1"),
    "a class method": (Own.of_the_class, {"x": 1}, "c1"),
    "a partial": (functools.partial(plain, 7), {}, "7"),
    "a callable object": (Own(), {"x": 1}, "k1"),
    "types of every kind": (typed, TYPED, "1 2 RED a 3 (1, 'x') {1}"),
    "a context variable": (notes, {}, "set"),
    "a context variable, async": (notes_async, {}, "set"),
    "a default of None": (optional, {}, "None"),
    "no result": (nothing, {}, "(no output)"),
    "an object": (anything, {}, "shown as text: object"),
    "bytes": (binary, {}, "It returned binary data that cannot be shown here"),
    "too much": (huge, {}, "xxx"),
    "a generator": (pieces, {}, "2"),
    "exit()": (leaves, {}, "SystemExit: 3"),
    "an exception": (fails, {"x": 1}, "ValueError: no 1"),
    "a wrong argument": (fails, {"x": "one"}, 'Call fails again with one JSON object: {"x": integer}'),
    "a missing argument": (fails, {}, "missing required field 'x'"),
    "a task group that fails": (fails_in_a_group, {}, "ValueError: boom"),
    "a task that cancels itself": (cancels_itself, {}, "the tool cancelled itself"),
}


@pytest.mark.parametrize("what", RESULTS)
def test_a_tool_as_people_write_it_answers(what):
    function, arguments, answer = RESULTS[what]
    made = tool(function)
    token = NOTED.set("set")
    try:
        result = agent(call(made.name, **arguments), "done", tools=[made]).run_sync("go")
    finally:
        NOTED.reset(token)
    assert (result.outcome, result.text) == (LoopOutcome.DONE, "done")
    assert answer in result.messages[2].text
    assert len(result.messages[2].text) <= 32_000
    assert "Traceback" not in result.messages[2].text


def test_an_agent_run_inside_a_tool_stays_within_the_limits_of_the_run_around_it():
    inner = agent(model=ScriptedModel().forever(lambda asked: call("echo", text="x") if asked.tools else "in"))
    inner = inner.replace(tools=[echo], limits=Limits(max_iterations=50))

    @tool
    async def ask(q: str) -> str:
        """Ask the inner agent."""
        return (await inner.run(q)).text

    outer = agent(call("ask", q="x"), "out", tools=[ask], limits=Limits(max_iterations=3)).run_sync("go")
    assert len(outer.children) == 1
    assert outer.all_turns <= 3


# --- the command line -----------------------------------------------------------------------------------------------

RUN = ("run", "hi", "--model", "python:flights:steers", "--store", "none")
COMMAND = {
    "no such command": (("rnu",), "did you mean run?"),
    "the version": (("version",), "did you mean --version?"),
    "an action without its command": (("export", "x"), "did you mean sessions export?"),
    "an action that looks like a command": (("prune", "x"), "did you mean runs prune?"),
    "no action": (("runs",), "missing: ACTION, one of list, show"),
    "no verdict": (("decide", "s", "c"), "missing: verdict, one of approve, deny, answer$"),
    "a store after the action": (("fleet", "status", "--store", "mine.db"), "postgresql://"),
    "no such action": (("runs", "lst"), "'lst'.*did you mean list?"),
    "no model": (("run", "hi"), "pass --model NAME"),
    "no key": (("run", "hi", "--model", "anthropic:claude-x"), "set the environment variable ANTHROPIC_API_KEY$"),
    "a bare model": (("run", "hi", "--model", "gpt-5"), "did you mean 'openai:gpt-5'"),
    "a module that is not there": (("run", "hi", "--model", "python:nope:x"), "No module named 'nope'"),
    "a misspelled flag": ((*RUN, "--modle", "x"), "did you mean --model?"),
    "--json": ((*RUN, "--json"), "did you mean --output-format json?"),
    "--output json": ((*RUN, "--output", "json"), "--output-format"),
    "--max-cost": ((*RUN, "--max-cost", "5"), "did you mean --max-budget-usd?"),
    "--yolo": ((*RUN, "--yolo"), "did you mean --approve all?"),
    "--instructions": ((*RUN, "--instructions", "x"), "did you mean --system-prompt?"),
    "--session": ((*RUN, "--session", "x"), "did you mean --resume?"),
    "no value": ((*RUN, "--max-turns"), "--max-turns: expected one argument"),
    "a wrong choice": ((*RUN, "--output-format", "jsn"), "choose from text, json, stream-json.*did you mean json?"),
    "an empty session": ((*RUN, "-r", ""), "-r/--resume: it is empty"),
    "an endless name": ((*RUN, "--name", "a" * 300), "--name: has 300 characters; shorten it to 200"),
    "no such choice": ((*RUN, "--approve", "yes"), "choose from ask, all, deny"),
    "zero turns": ((*RUN, "--max-turns", "0"), "--max-turns: expected a whole number of at least 1, got '0'"),
    "a word for a number": ((*RUN, "--max-turns", "abc"), "got 'abc'"),
    "a strange unit": ((*RUN, "--timeout", "5x"), "seconds, or 90s, 30m, 1h30m, got '5x'"),
    "no price": ((*RUN, "--max-budget-usd", "5"), "pass --set 'prices="),
    "too few tokens": ((*RUN, "--max-tokens", "1"), "raise max_tokens"),
    "bash": ((*RUN, "--tools", "bash"), "did you mean 'shell'.*read, list, grep, write, edit, shell"),
    "a setting without a value": ((*RUN, "--set", "x"), "expected KEY=VALUE"),
    "no such setting": ((*RUN, "--set", "temprature=1"), "did you mean --set temperature=1"),
    "no such file": ((*RUN, "--config", "nope.toml"), "nope.toml: cannot be read: No such file"),
    "no such image": ((*RUN, "-i", "nope.png"), "nope.png cannot be read: No such file"),
    "a folder that is not there": ((*RUN, "-o", "no/out.txt"), "cannot be written: No such file"),
    "a store nobody knows": (
        ("run", "hi", "--model", "python:flights:steers", "--store", "mysql://x"),
        "postgresql://",
    ),
    "chat in a pipe": (("chat", "--model", "python:flights:steers"), "in a pipe use `glidepath run`"),
    "no such session": (("runs", "show", "nope", "--store", "none.db"), "no session"),
    "no such model to pull": (("models", "pull", "nope"), "use one of smollm2"),
    "no agent to serve": (("serve",), "nothing to serve: name an agent with --agent MODULE:ATTR, or a gate"),
    "a wrong port": (
        ("serve", "--agent", "flights:steers", "--port", "abc"),
        "--port: expected a whole number, got 'abc'",
    ),
    "no such shell": (("completion", "powershell"), "choose from bash, zsh, tcsh, fish"),
    "half a prompt": ((*RUN, "there"), "unexpected argument 'there' .*in quotes"),
    "an extra word": (("sim", "nope"), "unexpected argument 'nope'"),
}


@pytest.mark.parametrize("mistake", COMMAND)
def test_a_wrong_command_gets_one_line_and_the_fix(mistake, tmp_path, monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    argv, answer = COMMAND[mistake]
    ran = glidepath(*argv, folder=tmp_path, environ={"HOME": str(tmp_path)})
    assert (ran.code, ran.out) == (2, ""), ran
    first, *more = ran.err.splitlines()
    assert re.search(answer, first), ran
    assert len(more) <= 1
    assert all(line.startswith("`glidepath") for line in more), ran


@pytest.mark.parametrize(
    "more", [("--max-tokens", "20k"), ("--timeout", "30s"), ("-p",), ("--max-turns=3",)], ids=" ".join
)
def test_a_command_as_people_write_it_runs(more, tmp_path):
    ran = glidepath(*RUN, *more, folder=tmp_path, environ={"HOME": str(tmp_path)})
    assert ran.code == 0, ran
