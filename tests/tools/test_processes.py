"""Tools in processes of their own: real ones, which are really killed."""

import asyncio
import functools
import importlib.util
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from glidepath.errors import ConfigurationError, FatalToolError, ToolError
from glidepath.testing import work
from glidepath.tools import Reference, ToolContext, run_in_process, tool
from glidepath.values import ChildError

pytestmark = pytest.mark.process

HERE = Path(__file__).parent


def load():
    # Not importable by name, as a test module is not: the child finds it by its file.
    spec = importlib.util.spec_from_file_location("process_functions", HERE / "process_functions.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


functions = load()


def run(made, **arguments):
    async def scene():
        return await made.invoke(made.bind(arguments).values)

    return asyncio.run(scene())


def descriptors():
    return len(list(Path("/dev/fd").iterdir()))


def gone(pid):
    for _ in range(500):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        if is_zombie(pid):  # an orphan that nobody has reaped yet: dead all the same
            return True
        time.sleep(0.01)
    return False


def is_zombie(pid):
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return state.strip().startswith("Z")


async def appears(path):
    deadline = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} never appeared"
        await asyncio.sleep(0.005)
    return int(path.read_text())


def test_a_result_comes_back_typed_from_another_process():
    assert run(functions.describe, pair={"left": 2}, times=3) == functions.Pair(6, "True")


def test_an_async_function_and_a_stream_run_to_their_end():
    assert run(functions.describe_async, number=1) == 2
    assert run(functions.stream, count=3) == 2


def test_large_arguments_and_results_pass():
    text = "x" * 3_000_000
    assert run(functions.echo, text=text) == text


def test_no_descriptor_thread_or_process_is_left_behind():
    run(functions.echo, text="warm")
    before, others = descriptors(), work().processes  # a server that other tests share may be among them
    run(functions.echo, text="again")
    assert descriptors() == before
    assert [thread for thread in threading.enumerate() if thread.name.startswith("glidepath")] == []
    assert work().processes <= others


@pytest.mark.parametrize(
    ("how", "kind", "says"),
    [
        ("value", ChildError, "^ValueError: bad value$"),
        ("tool", ToolError, "^told so$"),
        ("fatal", FatalToolError, "^the end$"),
        ("exit", ChildError, "^SystemExit: 3$"),
        ("pickle", ChildError, "cannot leave the process"),
    ],
)
def test_what_it_raises_is_raised_here_with_its_traceback(how, kind, says):
    with pytest.raises(kind, match=says) as caught:
        run(functions.fail, how=how)
    assert "process_functions.py" in str(caught.value.__cause__) or how == "pickle"


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("code", "exited with code 7"),
        ("slowly", "code 8"),
        ("SIGSEGV", "killed by SIGSEGV"),
        ("SIGKILL", "SIGKILL"),
        ("SIGTERM", "SIGTERM"),
    ],
)
def test_a_death_is_a_tool_error_that_names_it(how, says):
    with pytest.raises(ToolError, match=says):
        run(functions.die, how=how)


def test_a_death_is_noticed_while_a_fork_of_it_lives_and_the_fork_dies_too(tmp_path):
    started = time.monotonic()
    with pytest.raises(ToolError, match="exited with code 9"):
        run(functions.die_but_leave_a_fork, pid_file=str(tmp_path / "pid"))
    assert time.monotonic() - started < 20
    assert gone(int((tmp_path / "pid").read_text()))


def test_what_it_left_running_is_ended_with_it(tmp_path):
    assert run(functions.leave_something_running, pid_file=str(tmp_path / "pid")) == "left"
    assert gone(int((tmp_path / "pid").read_text()))


async def cancelled(made, pid_file, *, times=1, grace=0.5, **arguments):
    context = ToolContext.for_testing()
    values = made.bind({"pid_file": str(pid_file), **arguments}).values
    task = asyncio.ensure_future(run_in_process(Reference(made.fn), values, context, grace))
    pid = await appears(pid_file)
    started = time.monotonic()
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0.05)
    await asyncio.wait([task])
    return task.cancelled(), pid, time.monotonic() - started, context.abandoned


def test_a_cancelled_one_is_terminated_and_may_tidy_up(tmp_path):
    tidy = tmp_path / "tidy"
    was_cancelled, pid, seconds, abandoned = asyncio.run(cancelled(functions.hang, tmp_path / "pid", tidy=str(tidy)))
    assert (was_cancelled, abandoned) == (True, None)
    assert tidy.read_text() == "tidied"
    assert seconds < 0.5
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_one_that_ignores_sigterm_is_killed_after_its_grace(tmp_path):
    was_cancelled, pid, seconds, abandoned = asyncio.run(cancelled(functions.hang, tmp_path / "pid", ignore=True))
    assert (was_cancelled, abandoned) == (True, None)
    assert 0.45 < seconds < 2
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_second_cancellation_ends_the_grace(tmp_path):
    scene = cancelled(functions.hang, tmp_path / "pid", times=2, grace=60, ignore=True)
    was_cancelled, pid, seconds, _ = asyncio.run(scene)
    assert was_cancelled
    assert seconds < 5
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_one_that_is_cancelled_before_it_started_leaves_nothing(tmp_path):
    async def scene():
        made = functions.hang
        task = asyncio.ensure_future(made.invoke(made.bind({"pid_file": str(tmp_path / "pid")}).values))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    others = work().processes
    assert asyncio.run(scene())
    assert work().processes <= others


def test_the_loop_is_free_while_a_process_runs():
    async def scene():
        ticks = 0
        task = asyncio.ensure_future(functions.echo.invoke({"text": "x"}))
        while not task.done():
            ticks += 1
            await asyncio.sleep(0.001)
        return ticks

    assert asyncio.run(scene()) > 5


def test_a_virtual_clock_stands_still_while_a_process_runs():
    class Clock(asyncio.SelectorEventLoop):
        def __init__(self):
            super().__init__()
            self.workers = set()

    async def scene():
        workers = asyncio.get_running_loop().workers
        task = asyncio.ensure_future(functions.echo.invoke({"text": "x"}))
        await asyncio.sleep(0.01)
        busy = len(workers)
        await task
        return busy, len(workers)

    with asyncio.Runner(loop_factory=Clock) as runner:
        assert runner.run(scene()) == (1, 0)


def test_a_child_dies_with_its_parent(tmp_path):
    code = f"""
        import asyncio, importlib.util, sys
        spec = importlib.util.spec_from_file_location("process_functions", {str(HERE / "process_functions.py")!r})
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        async def main():
            await module.hang.invoke({{"pid_file": {str(tmp_path / "pid")!r}}})
        asyncio.run(main())
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)]) as parent:
        pid = asyncio.run(appears(tmp_path / "pid"))
        parent.send_signal(signal.SIGKILL)
    assert gone(pid)


@pytest.mark.parametrize("guard", ["if __name__ == '__main__':\n    ", ""])
def test_a_tool_in_the_main_script_works_with_and_without_a_guard(tmp_path, guard):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
            import asyncio
            from dataclasses import dataclass
            from glidepath.tools import tool

            @dataclass
            class Box:
                value: int

            def helper(box):
                return Box(box.value + 1)

            @tool(isolation="process")
            def work(box: Box) -> Box:
                "Work on a box."
                return helper(box)

            async def main():
                print("result", await work.invoke(work.bind({"box": {"value": 1}}).values))
        """)
        + f"{guard}asyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("result Box(value=2)\n", "", 0)


def unpicklable_arguments(what): ...


def test_arguments_that_cannot_be_sent_are_a_tool_error():
    with pytest.raises(ToolError, match="cannot be sent"):
        asyncio.run(run_in_process(Reference(unpicklable_arguments), {"what": lambda: 1}, None))


def takes_context(context: ToolContext): ...


class Holder:
    def method(self): ...


def test_only_a_function_at_module_level_can_be_isolated():
    def nested(): ...

    for fn in (nested, lambda: 1, Holder().method, Holder.method, functools.partial(unpicklable_arguments)):
        with pytest.raises(ConfigurationError, match="process"):
            tool(fn, name="f", isolation="process")


def test_an_isolated_tool_gets_no_context():
    with pytest.raises(ConfigurationError, match=r"'context'.*cannot report or spawn"):
        tool(takes_context, isolation="process")


def test_a_function_typed_into_a_session_is_refused():
    code = "from glidepath.tools import tool\ndef f(): ...\ntool(f, isolation='process')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert "put it into a module" in done.stderr


def test_a_function_that_cannot_be_found_again_is_a_tool_error():
    reference = Reference(unpicklable_arguments)
    reference.name = "nowhere"
    with pytest.raises(ChildError, match="has no function 'nowhere'"):
        asyncio.run(run_in_process(reference, {}, None))
