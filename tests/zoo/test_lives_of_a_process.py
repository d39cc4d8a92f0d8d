"""Programs that live unusual lives, each in its own process: other event loops, hosts, beginnings and ends.

A program holds when it ends with 0, prints "held" last and nothing on stderr that it did not ask for.
"""

import os
import subprocess
import sys

import pytest

BEGIN = '''
import asyncio, gc, os, signal, sys, threading, time
from glidepath import Agent, Limits, tool
from glidepath.testing import ScriptedModel, call, calls, hang, say, transcript_errors

@tool
async def group() -> str:
    """Two tasks, one of which fails."""
    async def bad():
        await asyncio.sleep(0.01)
        raise ValueError("bad")
    async with asyncio.TaskGroup() as both:
        both.create_task(bad())
        both.create_task(asyncio.sleep(5))
    return "no"

@tool
async def wait(seconds: float) -> str:
    """Wait."""
    await asyncio.sleep(seconds)
    return "waited"

@tool
def block(seconds: float) -> str:
    """Block a thread."""
    time.sleep(seconds)
    return "blocked"

def agent(*turns, **keywords):
    keywords = {"tools": [group, wait, block], "limits": Limits(max_iterations=6, timeout=20)} | keywords
    return Agent(model=ScriptedModel([*turns, say("ANSWER")]), **keywords)

def check(result, outcome="done"):
    assert result.outcome.value == outcome, result
    assert outcome != "done" or result.text == "ANSWER", result
    assert transcript_errors(result.messages) == []
    return result

BUSY = (call("wait", seconds=0.01), calls(call("group"), call("block", seconds=0.01)))
'''

UVLOOP = """
import uvloop
for turns in (BUSY, [call("group")]):
    check(uvloop.run(agent(*turns).run("go")))
check(uvloop.run(agent(hang(), limits=Limits(max_iterations=3, timeout=0.2)).run("go")), "wrapped_up")
"""

DEBUG_LOOP = """
check(asyncio.run(agent(*BUSY).run("go"), debug=True))
"""

THREADS = """
sys.setswitchinterval(1e-6)
shared, ended = agent(), []
def fly():
    mine = shared.replace(model=ScriptedModel([*BUSY, say("ANSWER")]))
    ended.append(check(mine.run_sync("go")))
flown = [threading.Thread(target=fly) for _ in range(12)]
[one.start() for one in flown]
[one.join() for one in flown]
assert len(ended) == 12
"""

ATEXIT = """
import atexit
atexit.register(lambda: (check(agent(call("wait", seconds=0.01)).run_sync("go")), print("held")))
"""

ATEXIT_THREAD_TOOL = """
import atexit
def last():
    result = agent(call("block", seconds=0.01)).run_sync("go")
    assert result.text == "ANSWER" and transcript_errors(result.messages) == [], result
    print("held")
atexit.register(last)
"""

DAEMON = """
began = threading.Event()
@tool
def stuck() -> str:
    "Block, past the end of the program."
    began.set()
    time.sleep(60)
one = agent(call("stuck"), tools=[stuck])
threading.Thread(target=lambda: one.run_sync("go"), daemon=True).start()
assert began.wait(10)
"""

FORK_BEFORE = """
mine = agent(*BUSY)
check(agent(*BUSY).run_sync("go"))
pid = os.fork()
check(mine.run_sync("go"))
if pid == 0:
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
"""

FORK_IN_THREAD_TOOL = """
@tool
def helper() -> str:
    "Fork in a thread, as multiprocessing does."
    pid = os.fork()
    if pid == 0:
        os._exit(3)
    return str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
result = check(agent(call("helper"), tools=[helper]).run_sync("go"))
assert [one.text for one in result.messages if one.role == "tool_result"] == ["3"]
"""

FORKED_HELPER = """
import tempfile
log = tempfile.mkdtemp() + "/log"
main = os.getpid()
def helper_of(ending):
    async def helper() -> str:
        "Fork a helper, as old libraries do."
        pid = os.fork()
        if pid == 0:
            ending()
        while not os.waitpid(pid, os.WNOHANG)[0]:
            await asyncio.sleep(0.02)
        return "helped"
    return tool(helper)
def fails():
    sys.stderr = open(os.devnull, "w")
    raise ValueError("the helper has failed")
@tool
async def mail() -> str:
    "Send a mail."
    print(os.getpid(), file=open(log, "a"))
    return "sent"
for ending in (lambda: sys.exit(0), fails):
    for turns in ([call("helper")], [calls(call("helper"), call("wait", seconds=0.01))]):
        one = agent(*turns, call("mail"), tools=[helper_of(ending), mail, wait])
        result = one.run_sync("go") if len(sys.argv) > 1 else asyncio.run(one.run("go"))
        if os.getpid() != main:
            os._exit(5)
        check(result)
assert open(log).read().split() == [str(main)] * 4, open(log).read()
"""

GC_ALWAYS = """
gc.set_threshold(1, 1, 1)
check(agent(*BUSY).run_sync("go"))
"""

GC_NEVER = """
gc.disable()
gc.freeze()
for _ in range(20):
    check(agent(*BUSY).run_sync("go"))
"""

GC_RAISES = """
said = []
sys.unraisablehook = said.append
gc.callbacks.append(lambda phase, info: 1 / 0)
gc.set_threshold(10)
check(agent(*BUSY).run_sync("go"))
"""

RECURSION = """
@tool
async def deep(n: int) -> str:
    "Recurse for ever."
    def down():
        return down()
    return down()
sys.setrecursionlimit(200)
result = check(agent(call("deep", n=1), *BUSY, tools=[deep, group, wait, block]).run_sync("go"))
assert "RecursionError" in next(one.text for one in result.messages if one.role == "tool_result")
"""

NO_STDIO = """
out = os.dup(1)
for fd in (0, 1, 2):
    os.close(fd)
sys.stdin = sys.stdout = sys.stderr = None
check(agent(*BUSY).run_sync("go"))
os.write(out, b"held\\n")
os._exit(0)
"""

CLOSED_PIPE = """
r, w = os.pipe()
os.dup2(w, 2)
os.close(r)
import logging
logging.basicConfig(level=logging.DEBUG, stream=os.fdopen(2, "w"))
logging.raiseExceptions = False
from glidepath.observe import LogObserver
check(agent(*BUSY, plugins=[LogObserver()]).run_sync("go"))
print("held", flush=True)
os._exit(0)
"""

LOCALE = """
import locale
for name in ("de_DE.UTF-8", "tr_TR.UTF-8", "C"):
    try:
        locale.setlocale(locale.LC_ALL, name)
    except locale.Error:
        continue
prices = {"scripted": ("3.17", "15.33")}
one = agent(*BUSY, limits=Limits(max_cost="0.50", max_iterations=6), prices=prices)
result = check(one.run_sync("g\\u00fc\\u0131"))
assert result.cost > 0
"""

CLOCK_BACK = """
real, jumps = time.time, iter(range(10**9))
time.time = lambda: real() - 3600 * next(jumps)
check(agent(*BUSY, limits=Limits(max_iterations=6, timeout=20)).run_sync("go"))
"""

CLOCK_STANDS = """
time.time = lambda: 978307200.0
check(agent(*BUSY).run_sync("go"))
"""

CONTEXTVARS = """
from contextvars import ContextVar, copy_context
who = ContextVar("who", default="nobody")
seen = []
@tool
async def ask() -> str:
    "Who is it?"
    seen.append(who.get())
    who.set("the tool")
    return who.get()
@tool
def ask_in_thread() -> str:
    "Who is it?"
    seen.append(who.get())
    who.set("the thread")
    return who.get()
async def main():
    who.set("me")
    turns = call("ask"), call("ask_in_thread"), calls(call("ask"), call("ask_in_thread"))
    check(await agent(*turns, tools=[ask, ask_in_thread]).run("go"))
    assert who.get() in ("me", "the tool"), who.get()
copy_context().run(asyncio.run, main())
assert seen[0] == "me" and "nobody" not in seen, seen
assert who.get() == "nobody"
"""

TASK_FACTORY = """
async def main():
    made = []
    def factory(loop, coro, **keywords):
        made.append(coro)
        return asyncio.Task(coro, loop=loop, **keywords)
    asyncio.get_running_loop().set_task_factory(factory)
    check(await agent(*BUSY).run("go"))
asyncio.run(main())
"""

PYTHON_TASKS = """
import asyncio.tasks, asyncio.futures
asyncio.Task = asyncio.tasks._CTask = asyncio.tasks.Task = asyncio.tasks._PyTask
asyncio.Future = asyncio.futures._CFuture = asyncio.futures.Future = asyncio.futures._PyFuture
check(asyncio.run(agent(*BUSY, call("group")).run("go")))
"""

NESTED_LOOP = """
import nest_asyncio2 as nest_asyncio
check(asyncio.run(agent(call("group")).run("go")))
nest_asyncio.apply()
async def cell():
    return check(agent(*BUSY, call("group")).run_sync("go"))
asyncio.run(cell())
check(asyncio.run(agent(call("group")).run("go")))
"""

ANYIO = """
import anyio
@tool
async def scoped() -> str:
    "Scopes of anyio."
    with anyio.move_on_after(0.01):
        await anyio.sleep(5)
    try:
        async with anyio.create_task_group() as both:
            both.start_soon(anyio.sleep, 5)
            raise ValueError("bad")
    except ExceptionGroup:
        return await anyio.to_thread.run_sync(lambda: "fine")
async def stopped():
    flight = asyncio.create_task(agent(call("wait", seconds=9)).run("go"))
    await asyncio.sleep(0.05)
    flight.cancel("tea time")
    await flight
async def main():
    result = check(await agent(call("scoped"), call("scoped"), tools=[scoped]).run("go"))
    assert [one.text for one in result.messages if one.role == "tool_result"] == ["fine", "fine"]
    with anyio.move_on_after(0.2) as scope:
        await agent(hang()).run("go")
    assert scope.cancelled_caught
    with anyio.move_on_after(0.2) as scope:
        async with agent(call("wait", seconds=9)).stream("go") as stream:
            async for _ in stream:
                pass
    assert scope.cancelled_caught and stream.result.state.value == "cancelled"
anyio.run(main)
try:
    asyncio.run(stopped())
except asyncio.CancelledError as stop:
    assert stop.args == ("tea time",), stop.args
"""

WARNINGS = """
import warnings
warnings.simplefilter("error")
check(agent(*BUSY).run_sync("go"))
gc.collect()
"""

TRACED = """
lines = []
def trace(frame, event, arg):
    return trace
sys.settrace(trace)
threading.settrace(trace)
sys.setprofile(lambda *_: None)
check(agent(*BUSY, call("group")).run_sync("go"))
"""

SIGCHLD = """
import operator
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
double = tool(os.path.basename, name="double", description="Basename.", isolation="process")
result = check(agent(call("double", p="a/b"), tools=[double]).run_sync("go"))
assert [one.text for one in result.messages if one.role == "tool_result"] == ["b"], result.messages
"""

ALARMS = """
rang = []
signal.signal(signal.SIGALRM, lambda *_: rang.append(1))
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
for _ in range(20):
    check(agent(*BUSY).run_sync("go"))
signal.setitimer(signal.ITIMER_REAL, 0)
assert rang
"""

NO_HOME = """
import tempfile
os.environ.clear()
gone = tempfile.mkdtemp()
os.chdir(gone)
os.rmdir(gone)
check(agent(*BUSY).run_sync("go"))
"""

NO_THREADS = """
def cannot(self):
    raise RuntimeError("can't start new thread")
threading.Thread.start = cannot
result = check(agent(call("block", seconds=0.01)).run_sync("go"))
assert "thread" in next(one.text for one in result.messages if one.role == "tool_result")
"""

FULL_EXECUTOR = """
from concurrent.futures import ThreadPoolExecutor
async def main():
    loop = asyncio.get_running_loop()
    pool = ThreadPoolExecutor(1)
    loop.set_default_executor(pool)
    stuck = pool.submit(time.sleep, 3)
    began = time.monotonic()
    check(await agent(*BUSY).run("go"))
    assert time.monotonic() - began < 2, "a run must not wait for other people's threads"
asyncio.run(main())
"""

VANDAL_OF_THE_LOOP = """
@tool
async def vandal() -> str:
    "Take the loop apart."
    loop = asyncio.get_running_loop()
    await loop.shutdown_default_executor()
    await loop.shutdown_asyncgens()
    asyncio.set_event_loop(None)
    loop.set_exception_handler(lambda *_: 1 / 0)
    try:
        loop.close()
    except RuntimeError as error:
        return str(error)
check(agent(call("vandal"), call("wait", seconds=0.01), tools=[vandal, wait]).run_sync("go"))
"""

INNER_SYNC = """
@tool
async def inner() -> str:
    "Run another agent where a loop is running."
    return agent().run_sync("go").text
@tool
def inner_in_thread() -> str:
    "Run another agent in a thread."
    return agent(*BUSY).run_sync("go").text
@tool
def own_loop() -> str:
    "Run a loop of its own."
    return asyncio.run(agent(*BUSY).run("go")).text
tools = [inner, inner_in_thread, own_loop]
one = agent(call("inner"), call("inner_in_thread"), call("own_loop"), tools=tools, limits=Limits(max_iterations=20))
result = check(one.run_sync("go"))
texts = [one.text for one in result.messages if one.role == "tool_result"]
assert texts == ["ANSWER"] * 3, texts
"""

RAISED_SIGNAL = """
from glidepath.errors import RunInterrupted
@tool
async def press() -> str:
    "Press Ctrl-C."
    signal.raise_signal(signal.SIGINT)
    await asyncio.sleep(5)
    return "no"
try:
    agent(call("press"), tools=[press]).run_sync("go")
    raise SystemExit("not interrupted")
except RunInterrupted as stop:
    assert stop.result.state.value == "cancelled", stop.result
"""

BROKEN_LOGGING = """
import logging
class Handler(logging.Handler):
    def emit(self, record):
        raise SystemExit("a handler must not end a run")
logging.getLogger("glidepath").addHandler(Handler())
from glidepath import Plugin
class Crashes(Plugin):
    def before_tool_call(self, context):
        raise RuntimeError("plugin bug")
    def event_observer(self, event):
        raise RuntimeError("observer bug")
result = agent(*BUSY, plugins=[Crashes()]).run_sync("go")
assert transcript_errors(result.messages) == [], result
"""

SPAWNED = """
import multiprocessing, tempfile, subprocess
path = tempfile.mkdtemp() + "/job.py"
open(path, "w").write('''
from concurrent.futures import ProcessPoolExecutor
import multiprocessing
from glidepath import Agent, Limits
from glidepath.testing import ScriptedModel, say
def job(n):
    return Agent(model=ScriptedModel([say(str(n))]), limits=Limits(max_iterations=2)).run_sync("go")
if __name__ == "__main__":
    for way in ("spawn", "forkserver"):
        with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(way)) as pool:
            assert [one.unwrap() for one in pool.map(job, range(4))] == ["0", "1", "2", "3"]
''')
subprocess.run([sys.executable, path], check=True, timeout=60)
"""

ABANDONED_STREAM = """
said = []
sys.unraisablehook = said.append
async def main():
    caught = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: caught.append(context))
    stream = agent(*BUSY).stream("go")
    async with stream:
        async for _ in stream:
            break
    del stream
    lost = agent(*BUSY).stream("go")
    await lost.__aenter__()
    del lost
    gc.collect()
    await asyncio.sleep(0.1)
    return caught
caught = asyncio.run(main())
gc.collect()
assert not said, said
"""

CLOSED_LOOP = """
import weakref
from glidepath import Budget
budget = Budget(Limits(max_tokens=6_000))
loop = asyncio.new_event_loop()
task = weakref.ref(loop.create_task(agent(hang(), limits=Limits(max_iterations=3)).run("go", parent=budget)))
loop.run_until_complete(asyncio.sleep(0.1))
assert budget.remaining().tokens < 6_000
loop.set_exception_handler(lambda *_: None)
loop.close()
gc.collect()
assert task() is None, "a run of a closed loop is never collected"
assert budget.remaining().tokens > 5_000, budget.remaining()
"""

EXEC = """
space = {"tool": tool}
exec('''
@tool
async def made(n: "int", words: "list[str] | None" = None) -> "dict[str, int]":
    "Made by exec: no file has its source."
    raise KeyError(n)
''', space)
result = check(agent(call("made", n=1), tools=[space["made"]]).run_sync("go"))
"""

NO_LOOP = """
from glidepath import ConfigurationError
def expect_advice(work):
    try:
        work.send(None)  # as trio would: no loop of asyncio runs here
    except ConfigurationError as error:
        assert "asyncio" in str(error) and "trio.to_thread.run_sync" in str(error), error
    else:
        raise AssertionError("it ran without a loop")
    finally:
        work.close()
async def follow(stream):
    async with stream:
        async for _ in stream:
            pass
one = agent(*BUSY)
expect_advice(one.run("go"))
expect_advice(one.resume("go"))
expect_advice(follow(one.stream("go")))
check(one.run_sync("go"))
"""

PATCHED_THREADS = """
from glidepath import ConfigurationError
class Greenlet(threading.Thread):
    "gevent's threads share the one that starts them."
    def start(self):
        self.run()
    def join(self, timeout=None):
        pass
async def main():
    real, threading.Thread = threading.Thread, Greenlet
    try:
        agent(*BUSY).run_sync("go")
    except ConfigurationError as error:
        assert "gevent" in str(error), error
    else:
        raise AssertionError("two loops ran in one thread")
    finally:
        threading.Thread = real
    check(await asyncio.to_thread(agent(*BUSY).run_sync, "go"))
asyncio.run(main())
"""

NO_FILES_LEFT = """
import resource, tempfile
from glidepath.sessions import SqliteStore
store = SqliteStore(os.path.join(tempfile.mkdtemp(), "a.db"))
check(agent(*BUSY, store=store).run_sync("go", session="before"))
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
held = []
try:
    while True:
        held.append(open(os.devnull))
except OSError:
    pass
async def main():
    result = await agent(*BUSY, store=store).run("go", session="without")
    assert result.outcome.value in ("done", "failed"), result
for _ in range(4):
    held.pop().close()  # what a loop needs, and no more
asyncio.run(main())
[one.close() for one in held]
check(agent(*BUSY, store=store).run_sync("go", session="after"))
"""

NO_RIGHTS_BY_DEFAULT = """
import stat, tempfile
from glidepath.sessions import SqliteStore
for mask in (0o777, 0):
    os.umask(0o077)
    folder = tempfile.mkdtemp()
    os.umask(mask)
    for _ in range(2):
        store = SqliteStore(os.path.join(folder, "a.db"))
        check(agent(*BUSY, store=store).run_sync("go", session="s"))
    modes = {one: stat.S_IMODE(os.stat(os.path.join(folder, one)).st_mode) for one in os.listdir(folder)}
    assert set(modes.values()) == {0o600}, modes
"""

CLOCK_LEAPS = """
import tempfile
from glidepath.sessions import SqliteStore
real, ahead = time.time, [0.0]
time.time = lambda: real() + ahead[0]
@tool
async def leap(seconds: float) -> str:
    "The clock of the machine is set while a tool runs."
    ahead[0] += seconds
    return "set"
store = SqliteStore(os.path.join(tempfile.mkdtemp(), "a.db"))
for seconds in (1e9, -2e9, -1e10, 3600.0, -3600.0, 1e11, 1e18):
    check(agent(call("leap", seconds=seconds), tools=[leap], store=store).run_sync("go", session="s"))
"""

HUGE_FIGURES = """
from glidepath import Usage
from glidepath.messages import StreamEnd, TextDelta
from glidepath.testing import raw
import logging
logging.disable(logging.CRITICAL)  # it says that it charges them
for figure in (10**5000, -(10**5000), 1 << 100_000):
    model = ScriptedModel([raw(TextDelta("ANSWER"), StreamEnd("end_turn", Usage(figure, figure)))], price=("1", "2"))
    result = check(Agent(model=model, limits=Limits(max_iterations=3, max_cost="1")).run_sync("go"))
    assert 0 < result.usage.total <= 2 << 62 and result.cost > 0, result
@tool
async def count() -> int:
    "A figure that Python does not write out."
    return 10**5000
check(agent(call("count"), tools=[count]).run_sync("go"))
"""

GONE_FOLDER = """
import shutil, tempfile
from glidepath import ConfigurationError
from glidepath.sessions import SqliteStore
kept, gone = tempfile.mkdtemp(), tempfile.mkdtemp()
os.chdir(gone)
shutil.rmtree(gone)
check(agent(*BUSY, store=SqliteStore(os.path.join(kept, "a.db"))).run_sync("go"))
try:
    SqliteStore("a.db")
except ConfigurationError as error:
    assert "a.db" in str(error) and "absolute path" in str(error), error
else:
    raise AssertionError("a store in a folder that is gone")
"""

STOPPED_AND_CONTINUED = """
import tempfile
from glidepath.sessions import SqliteStore
path = os.path.join(tempfile.mkdtemp(), "a.db")
begun, begin = os.pipe()
@tool
async def late() -> str:
    "Return when somebody else has had the time to take over."
    os.write(begin, b"!")
    await asyncio.sleep(0.8)
    return "late"
pid = os.fork()
if pid == 0:
    result = agent(call("late"), tools=[late], store=SqliteStore(path, lease=0.5)).run_sync("go", session="s")
    os._exit(0 if result.outcome.value == "failed" and "another owner" in result.cause.reason else 9)
os.read(begun, 1)  # from here on it only waits: stopped in the middle of a write, it would keep the file locked
os.kill(pid, signal.SIGSTOP)
time.sleep(1.0)
check(agent(*BUSY, store=SqliteStore(path, lease=0.5)).run_sync("go", session="s"))
os.kill(pid, signal.SIGCONT)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, "it went on in a session that was not its own any more"
"""

FORKED_CHILDREN_ON_ONE_WALLET = """
import tempfile
from glidepath import Budget
from glidepath.sessions import SqliteStore
path = os.path.join(tempfile.mkdtemp(), "a.db")
store = SqliteStore(path)
budget = Budget(Limits(max_tokens=100_000), name="w", store=store)
spent = check(agent(*BUSY, store=store).run_sync("go", parent=budget)).usage.total
pids = []
for n in range(3):
    pid = os.fork()
    if pid == 0:
        result = agent(*BUSY, store=store).run_sync("go", session=f"c{n}", parent=budget)
        os._exit(0 if result.usage.total == spent else 9)
    pids.append(pid)
assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids] == [0, 0, 0]
(wallet,) = asyncio.run(SqliteStore(path).wallets("w"))
assert wallet.tokens == 4 * spent, (wallet, spent)
"""

STORM_OF_CTRL_C = """
import random, tempfile
from glidepath.sessions import SqliteStore
for seed in range(3):
    store, chance, over = SqliteStore(os.path.join(tempfile.mkdtemp(), "a.db"), lease=0.5), random.Random(seed), False
    sent = []
    def storm():
        for _ in range(3):
            time.sleep(chance.uniform(0, 0.06))
            os.kill(os.getpid(), signal.SIGINT)
            sent.append(1)
    sender = threading.Thread(target=storm)
    while not over:
        try:
            if sender.ident is None:
                sender.start()
                agent(call("wait", seconds=0.1), store=store).run_sync("go", session="s")
            while len(sent) < 3:  # not join(): one that Ctrl-C has hit takes the sender for dead
                time.sleep(0.01)
            time.sleep(0.05)
            over = True
        except KeyboardInterrupt:
            pass
    until = time.monotonic() + 10
    while (result := agent(store=store).run_sync("go", session="s")).outcome.value != "done":
        assert time.monotonic() < until, result
        time.sleep(0.1)
# Not the senders: Ctrl-C in the middle of their start or join leaves them in Python's own list for ever.
left = [one for one in threading.enumerate() if not one.daemon and "storm" not in one.name]
assert left == [threading.main_thread()], left
"""

PROGRAMS = {name.lower(): text for name, text in vars().copy().items() if name.isupper() and name != "BEGIN"}
SAYS_IT_ITSELF = {"atexit", "atexit_thread_tool", "no_stdio", "closed_pipe"}
FLAGS = {"locale": ({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}, []), "exec": ({}, ["-OO"])}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_holds(name):
    environment, options = FLAGS.get(name, ({}, []))
    program = BEGIN + PROGRAMS[name] + ("" if name in SAYS_IT_ITSELF else "\nprint('held')\n")
    done = subprocess.run(
        [sys.executable, *options, "-c", program],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["held"]), done.stdout + done.stderr
