"""Code mode: a program's calls are ordinary calls, and a program is contained."""

import asyncio
import re
import subprocess
import sys

import pytest

from glidepath import Agent, CancelToken, ConfigurationError, Limits, LoopOutcome, Plugin, ResourceValidation, tool
from glidepath.code import CodeMode
from glidepath.spi import AfterDecision, Block, Gate, Replace, ResourceConstraint
from glidepath.testing import ScriptedModel, call, calls, say, virtual
from glidepath.values import install_line
from glidepath.workspace.code import interpreter

from .desk import Desk, outputs

pytest.importorskip("pydantic_monty", reason="code mode needs pydantic-monty: pip install 'glidepath[code]'")


@virtual
async def test_a_program_calls_tools_and_its_output_is_the_result():
    desk = Desk("total = 0\nfor n in range(4):\n    total += look(n)['square']\nprint('total', total)\ntotal * 2")
    result = await desk.run()
    assert outputs(result) == [(None, "total 14\n28")]
    assert desk.done == [("look", 0), ("look", 1), ("look", 2), ("look", 3)]
    assert result.tool_calls == 5
    assert result.iterations == 2


@virtual
async def test_every_inner_call_has_its_own_events():
    desk = Desk("look(1)\nlook(n=2, deep=True)")
    await desk.run()
    told = [(type(event).__name__, event.call_id) for event in desk.events("ToolStarted", "ToolEnded")]
    assert told == [
        ("ToolStarted", "call_1"),
        ("ToolStarted", "call_1.1"),
        ("ToolEnded", "call_1.1"),
        ("ToolStarted", "call_1.2"),
        ("ToolEnded", "call_1.2"),
        ("ToolEnded", "call_1"),
    ]
    assert desk.events("ToolStarted")[2].arguments == {"n": 2, "deep": True}


@virtual
async def test_calls_that_are_gathered_are_one_batch():
    desk = Desk(
        "import asyncio\nfound = await asyncio.gather(*[look(n) for n in range(3)])\n[x['square'] for x in found]"
    )
    assert outputs(await desk.run()) == [(None, "[0,1,4]")]
    kinds = [type(event).__name__ for event in desk.events("ToolStarted", "ToolEnded")]
    assert kinds == ["ToolStarted"] * 4 + ["ToolEnded"] * 4


@virtual
async def test_a_program_can_await_one_call_and_begin_others_for_later():
    code = "import asyncio\na = look(1)\nb = look(2)\nx = await look(3)\ny = await b\nz = await a\n"
    code += "[x['n'], y['n'], z['n']]"
    desk = Desk(code)
    assert outputs(await desk.run()) == [(None, "[3,2,1]")]


@virtual
async def test_g10_arguments_are_validated_and_the_program_can_catch_it():
    desk = Desk("try:\n    look('many')\nexcept TypeError as error:\n    print('caught', 'int' in str(error))")
    assert outputs(await desk.run()) == [(None, "caught True")]
    assert desk.done == []


@virtual
async def test_a_tool_that_fails_raises_in_the_program():
    desk = Desk("try:\n    fail(3)\nexcept RuntimeError as error:\n    print(error)", "fail(4)")
    first, second = outputs(await desk.run())
    assert first == (None, "fail: ValueError: no such thing as 3")
    assert second[0] == "program_error"
    assert "no such thing as 4" in second[1]


@virtual
async def test_a_tool_that_nobody_has_is_a_name_error():
    desk = Desk("try:\n    nothing(1)\nexcept NameError as error:\n    print('no', error)")
    assert outputs(await desk.run())[0][1].startswith("no name 'nothing' is not defined")


@virtual
async def test_a_program_cannot_call_itself_or_what_ends_the_run():
    @tool(terminal=True)
    async def finish() -> str:
        return "over"

    desk = Desk("try:\n    run_code(code='1')\nexcept NameError:\n    print('no')\nfinish()", tools=[finish])
    result = await desk.run()
    assert outputs(result)[0][0] == "program_error"
    assert result.iterations == 2


@virtual
async def test_g9_hooks_judge_every_inner_call():
    seen = []

    class Guard(Plugin):
        async def before_tool_call(self, context):
            seen.append((context.call.id, context.call.name, len(context.messages)))
            if context.call.name == "look" and context.arguments["n"] == 2:
                return Block("two is not allowed")
            return Replace({**context.arguments, "n": 7}) if context.arguments.get("n") == 3 else None

        async def after_tool_call(self, context):
            return AfterDecision(content="{}") if context.arguments.get("n") == 4 else None

    code = "try:\n    look(2)\nexcept PermissionError as error:\n    print(error)\nprint(look(3)['n'])\nprint(look(4))"
    desk = Desk(code, plugins=[Guard()])
    assert "two is not allowed" in outputs(await desk.run())[0][1]
    assert desk.done == [("look", 7), ("look", 4)]
    assert seen[1][:2] == ("call_1.1", "look")
    assert seen[0][:2] == ("call_1", "run_code")
    assert all(one[2] == 2 for one in seen)  # the run's own conversation: the task, and the reply with the program


@virtual
async def test_a_gate_hides_a_tool_from_programs_too():
    class NoLook(Plugin):
        async def tool_gate(self, context):
            return Gate(allowed=context.tools - {"look"})

    desk = Desk("look(1)", plugins=[NoLook()])
    kind, text = outputs(await desk.run())[0]
    assert kind == "program_error"
    assert "look" in text
    assert desk.done == []


@virtual
async def test_g4_inner_calls_count_against_the_limit_on_tool_calls():
    code = "done = 0\ntry:\n    for n in range(50):\n        look(n)\n        done += 1\n"
    code += "except Exception as error:\n    print(done, error)"
    desk = Desk(code, limits=Limits(max_iterations=9, max_tool_calls=6))
    result = await desk.run()
    assert len(desk.done) == 5  # and run_code itself
    assert result.tool_calls == 6
    assert result.outcome is LoopOutcome.WRAPPED_UP
    assert outputs(result)[0][1].startswith("5 ")


@virtual
async def test_g11_loops_inside_a_program_are_noticed():
    desk = Desk("for n in range(30):\n    look(1)")
    result = await desk.run()
    assert desk.events("GuardTripped")
    assert len(desk.done) < 10
    assert result.outcome is not LoopOutcome.DONE


@virtual
async def test_g11_a_program_that_calls_what_was_withdrawn_is_stopped():
    code = "for n in range(30):\n    try:\n        look(1)\n    except Exception as error:\n        print(type(error))"
    desk = Desk(code)
    result = await desk.run()
    assert len(desk.done) < 10
    assert outputs(result)[0][0] == "withdrawn"
    assert result.cause.source == "repetition"


@virtual
async def test_different_look_ups_in_a_program_are_no_loop():
    desk = Desk("for n in range(40):\n    look(n)\nprint('all')")
    result = await desk.run()
    assert outputs(result) == [(None, "all")]
    assert desk.events("GuardTripped") == []


@virtual
async def test_a_landing_is_an_error_that_the_program_can_catch_and_then_it_cannot_call():
    class After(ResourceConstraint):
        name = "after_three"

        async def validate(self, context):
            return (
                ResourceValidation.violation("three are enough") if context.tool_calls > 3 else ResourceValidation.ok()
            )

    code = (
        "found = []\nfor n in range(9):\n    try:\n        found.append(look(n)['n'])\n    except Exception as error:\n"
        "        print(error)\n        break\nprint(found)"
    )
    desk = Desk(code, constraints=[After()])
    result = await desk.run()
    assert "Landing: " in outputs(result)[0][1]
    assert "three are enough" in outputs(result)[0][1]
    assert outputs(result)[0][1].endswith("[0, 1, 2]")
    assert desk.done == [("look", 0), ("look", 1), ("look", 2)]
    assert result.cause.source == "after_three"


@virtual
async def test_a_program_that_ignores_the_landing_is_stopped_and_its_output_kept():
    class Never(ResourceConstraint):
        name = "never"

        async def validate(self, context):
            return ResourceValidation.violation("enough") if context.tool_calls > 1 else ResourceValidation.ok()

    code = "look(0)\nprint('first')\nn = 0\nwhile True:\n    n += 1\n"
    code += "    try:\n        look(n)\n    except Exception:\n        pass"
    desk = Desk(code, constraints=[Never()])
    result = await desk.run()
    kind, text = outputs(result)[0]
    assert kind == "landing"
    assert text.startswith("first")
    assert "kept calling" in text
    assert desk.done == [("look", 0)]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("while True:\n    pass", "program_timeout"),
        ("try:\n    while True:\n        pass\nexcept BaseException:\n    pass", "program_timeout"),
        ("def f():\n    return f()\nf()", "program_error"),
        ("x = [0] * 10**10", "program_memory"),
        ("x = 'a'\nwhile True:\n    x += x", "program_memory"),
        ("while True:\n    print('x' * 1000)", "program_output"),
        (
            "import time\nwhile True:\n    try:\n        time.sleep(1)\n    except Exception:\n        pass",
            "program_timeout",
        ),
        ("while True:\n    try:\n        nothing()\n    except BaseException:\n        pass", "program_timeout"),
        ("def (", "program_syntax"),
        ("1 / 0", "program_error"),
        ("raise SystemExit(1)", "program_error"),
        ("open('/etc/passwd').read()", "program_error"),
        ("import os\nos.environ['HOME']", "program_error"),
        ("import socket", "program_error"),
        ("import subprocess", "program_error"),
        ("__import__('os').system('true')", "program_error"),
        ("look(" * 300 + ")" * 300, "program_syntax"),
        ("(" * 5000 + ")" * 5000, "program_syntax"),
        ("look(b'x')", "program_error"),
        ("look(float('nan'))", "program_error"),
        ("look(1, 2, 3, 4)", "program_error"),
        ("class A:\n    pass\nlook(A())", "program_error"),
        ("a = []\na.append(a)\nlook(a)", "program_error"),
    ],
    ids=lambda value: value[:24].replace("\n", " ") if isinstance(value, str) else value,
)
@virtual
async def test_a_bad_program_is_contained_and_typed(code, kind):
    desk = Desk(code, mode=CodeMode(seconds=0.3, memory=16 << 20))
    result = await desk.run()
    assert outputs(result)[0][0] == kind
    assert len(outputs(result)[0][1]) < 25_000
    assert result.outcome is LoopOutcome.DONE
    assert desk.done == []


@virtual
async def test_a_program_may_make_only_so_many_calls():
    desk = Desk("print('go')\nn = 0\nwhile True:\n    n += 1\n    look(n)", mode=CodeMode(max_calls=5))
    kind, text = outputs(await desk.run())[0]
    assert kind == "program_calls"
    assert text.startswith("go")
    assert len(desk.done) == 5


@pytest.mark.parametrize("count", [6, 5000])
@virtual
async def test_a_program_may_begin_only_so_many_calls_at_once(count):
    code = f"import asyncio\nprint('go')\nawait asyncio.gather(*[look(n) for n in range({count})])"
    desk = Desk(code, mode=CodeMode(max_calls=5))
    kind, text = outputs(await desk.run())[0]
    assert (kind, text) == ("program_calls", "go\nthe program asked for more than 5 calls, the most it may make")
    assert desk.done == []


@virtual
async def test_clock_and_chance_come_from_the_run():
    code = "import random, time, datetime\n[random.random(), time.time(), str(datetime.datetime.now())]"
    found = []
    for _ in range(2):
        desk = Desk(code)
        found.append(outputs(await desk.run())[0][1])
    desk = Desk(code, code)
    one, two = outputs(await desk.run())
    assert one[1] != two[1]
    assert "2026-01-01" in one[1]


@virtual
async def test_tools_of_a_program_are_hidden_from_the_model():
    @tool
    async def secret_price(item: str, currency: str = "EUR") -> float:
        """The price of an item."""
        return 2.5

    model = ScriptedModel(
        [call("run_code", code="secret_price('tea') * 2"), call("secret_price", item="tea"), say("x")]
    )
    agent = Agent(model=model, tools=[CodeMode([secret_price])], limits=Limits(max_iterations=5))
    result = await agent.run("go")
    assert list(model.requests[0].tools) == ["run_code"]
    assert "def secret_price(item: str, currency: str = 'EUR')" in agent.config.tools[0].description
    (first, second) = outputs(result)
    assert first == (None, "5.0")
    assert second[0] == "unknown_tool"


@virtual
async def test_two_programs_in_one_reply_both_end():
    turns = [
        calls(call("run_code", code="look(1)['n']"), call("look", n=5), call("run_code", code="look(2)['n']")),
        say("x"),
    ]
    desk = Desk(turns=turns)
    assert [text for _, text in outputs(await desk.run())] == ["1", '{"n":5,"square":25,"deep":0}', "2"]


@virtual
async def test_a_fatal_tool_ends_the_run_and_the_program():
    from glidepath.errors import FatalToolError

    @tool
    async def break_all() -> str:
        raise FatalToolError("the disk is gone")

    desk = Desk("try:\n    break_all()\nexcept BaseException:\n    print('on')\nlook(1)", tools=[break_all])
    result = await desk.run()
    assert result.outcome is LoopOutcome.FAILED
    assert "the disk is gone" in result.cause.reason
    assert desk.done == []


@virtual
async def test_g7_a_cancelled_run_kills_the_interpreter():
    token = CancelToken()
    desk = Desk("while True:\n    pass", mode=CodeMode(seconds=30))

    async def stop():
        import time

        await asyncio.sleep(0)
        await asyncio.to_thread(time.sleep, 0.3)
        token.cancel("enough")

    stopping = asyncio.ensure_future(stop())
    result = await desk.run(cancel=token)
    await stopping
    assert result.outcome is LoopOutcome.CANCELLED
    assert result.abandoned == ()


@pytest.mark.parametrize(
    ("keywords", "field"),
    [
        ({"max_calls": 0}, "max_calls"),
        ({"seconds": 0}, "seconds"),
        ({"seconds": "long"}, "seconds"),
        ({"memory": 10}, "memory"),
        ({"max_output": True}, "max_output"),
        ({"tools": "look"}, "tools"),
        ({"tools": [3]}, "tools"),
        ({"name": "run code"}, "name"),
    ],
    ids=str,
)
def test_a_wrong_setting_is_named(keywords, field):
    with pytest.raises(ConfigurationError, match=field):
        CodeMode(**keywords)


def test_a_name_that_is_taken_is_refused():
    @tool
    async def look() -> str:
        return ""

    with pytest.raises(ConfigurationError, match="two tools are named 'look'"):
        Agent(model=ScriptedModel([say("x")]), tools=[look, CodeMode([look])], limits=Limits(max_iterations=2))


@virtual
async def test_g12_agents_that_a_program_calls_are_charged():
    helper = Agent(model=ScriptedModel().forever(say("a helpful answer")), agent_name="helper")
    ask = helper.as_tool("ask", "Ask a helper.")
    desk = Desk("[ask(task='one'), ask(task='two')]", tools=[ask], limits=Limits(max_iterations=9, max_tokens=90_000))
    result = await desk.run()
    assert outputs(result) == [(None, '["a helpful answer","a helpful answer"]')]
    assert len(result.children) == 2
    assert [spend.calls for spend in result.breakdown if spend.name == "helper"] == [2]
    assert result.usage.total > sum(child.usage.total for child in result.children) > 0


@virtual
async def test_a_deadline_in_the_middle_of_a_program_lands_the_run():
    @tool
    async def wait(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "waited"

    code = "print('began')\nfor n in range(9):\n    wait(seconds=4 + n)\n    print(n)"
    desk = Desk(code, tools=[wait], limits=Limits(max_iterations=9, timeout=30))
    result = await desk.run()
    assert result.outcome is LoopOutcome.WRAPPED_UP
    assert outputs(result)[0][1].startswith("began\n0")
    assert result.text == "done"


@virtual
async def test_somebody_asks_a_run_to_finish_while_a_program_is_at_work():
    token = CancelToken()

    @tool
    async def note(n: int) -> str:
        if n == 2:
            token.wind_down("lunch")
        return "noted"

    code = "for n in range(9):\n    try:\n        note(n)\n    except RuntimeError as error:\n"
    code += "        print(n, error)\n        break"
    desk = Desk(code, tools=[note])
    result = await desk.run(cancel=token)
    assert outputs(result)[0][1].startswith("3 Landing: ")
    assert "lunch" in outputs(result)[0][1]
    assert result.outcome is LoopOutcome.WRAPPED_UP


def test_without_the_interpreter_the_agent_is_not_made(monkeypatch):
    monkeypatch.setattr(interpreter, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=re.escape(install_line("code"))):
        CodeMode()


def test_nothing_of_the_interpreter_is_imported_before_a_program_runs():
    code = "import sys; from glidepath.code import CodeMode; CodeMode(); assert 'pydantic_monty' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
