"""The server's process: one per model, started late, restarted after a crash, and gone when it should be."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from glidepath import Agent, ConfigurationError, Limits, LoopOutcome
from glidepath.errors import RejectedError, TransientError
from glidepath.models import LocalModel, resolve

from .talk import ENDLESS, begun, collect, deltas, gone, kill, request, running, soon

pytestmark = pytest.mark.process


@pytest.fixture
def small(weights):
    """A model of its own for tests that do it harm."""
    with LocalModel(weights, threads=1, context_window=512, parallel=1) as model:
        yield model


def brief(model):
    return deltas(model, max_output_tokens=2)


def test_it_starts_at_the_first_call_and_ends_when_closed(small):
    assert small.pid is None
    brief(small)
    pid = small.pid
    assert running(pid)
    asyncio.run(small.aclose())
    assert not running(pid)
    assert small.pid is None
    small.close()


def test_many_first_calls_start_one_server(small):
    pids = set()

    async def one():
        async for _ in small.stream(request(max_output_tokens=2)):
            pids.add(small.pid)

    async def four():
        await asyncio.gather(*[one() for _ in range(4)])

    asyncio.run(four())
    assert len(pids) == 1


def test_it_serves_one_event_loop_after_another_and_outlives_the_thread_that_started_it(small):
    thread = threading.Thread(target=brief, args=(small,))
    thread.start()
    thread.join()
    pid = small.pid
    assert pid is not None
    assert not soon(lambda: small.pid != pid, 1.2), "it died with the thread"
    brief(small)
    assert small.pid == pid


def test_it_ends_with_the_model_object(weights):
    model = LocalModel(weights, threads=1, context_window=512)
    brief(model)
    pid = model.pid
    del model
    gc.collect()
    assert gone(pid, 2.0)


def test_only_who_has_the_key_is_served(small):
    brief(small)
    address = asyncio.run(small._server.address())
    for path in ("/v1/chat/completions", "/slots", "/v1/models"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"http://127.0.0.1:{address.port}{path}", timeout=10)
        assert refused.value.code == 401
        refused.value.close()
    assert address.key.encode() not in Path(f"/proc/{small.pid}/cmdline").read_bytes()
    assert address.key not in repr(small)


def test_a_crash_in_mid_stream_is_transient_and_the_next_call_starts_another(small):
    async def crash():
        stream = small.stream(request("Tell me a story.", max_output_tokens=400, extras=ENDLESS))
        await anext(stream)
        kill(small.pid)
        async for _ in stream:
            pass

    with pytest.raises(TransientError):
        asyncio.run(crash())
    assert brief(small)[-1].usage.output == 2


def test_a_run_survives_a_crash_of_the_server(small):
    brief(small)
    first = small.pid
    kill(first)
    agent = Agent(model=small, temperature=0.0, max_output_tokens=300, limits=Limits(max_iterations=1))
    result = agent.run_sync("Say hello.")
    assert result.outcome is LoopOutcome.DONE
    assert small.pid not in (None, first)


def test_a_server_that_does_not_load_in_time_is_transient(weights):
    with (
        LocalModel(weights, threads=1, start_timeout=0.001) as slow,
        pytest.raises(TransientError, match="start_timeout"),
    ):
        brief(slow)
    assert slow.pid is None


def test_a_server_killed_while_it_loads_is_transient(small):
    async def scenario():
        task = asyncio.create_task(collect(small, request()))
        kill(await begun(small))
        await task

    with pytest.raises(TransientError, match="died"):
        asyncio.run(scenario())


PARENT = """
import asyncio, sys
from glidepath.models import LocalModel, ModelRequest
from glidepath.messages import UserMessage

async def main():
    model = LocalModel(sys.argv[1], threads=1, context_window=512)
    request = ModelRequest(messages=(UserMessage("Tell me a story."),), max_output_tokens=400,
                           extras={"ignore_eos": True})
    if sys.argv[2] == "loading":
        task = asyncio.create_task(anext(model.stream(request)))
        while model.pid is None:
            await asyncio.sleep(0)
        print(model.pid, flush=True)
    async for _ in model.stream(request):
        if sys.argv[2] == "exit":
            print(model.pid, flush=True)
            return
        if sys.argv[2] == "writing":
            print(model.pid, flush=True)
            sys.argv[2] = ""

asyncio.run(main())
"""


def parent(weights, when, **options):
    command = [sys.executable, "-W", "error", "-c", PARENT, str(weights), when]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


@pytest.mark.parametrize("when", ["loading", "writing"])
def test_g17_a_killed_parent_leaves_no_server(weights, when):
    with parent(weights, when) as process:
        pid = int(process.stdout.readline())
        assert running(pid)
        process.kill()
        process.communicate()
    assert gone(pid)


def test_a_process_that_just_ends_leaves_no_server_and_no_warning(weights):
    with parent(weights, "exit") as process:
        said, complained = process.communicate(timeout=60)
    assert process.returncode == 0
    assert complained == ""
    assert gone(int(said), 2.0)


def test_ctrl_c_in_the_terminal_does_not_reach_the_server(weights):
    with parent(weights, "writing", start_new_session=True) as process:
        pid = int(process.stdout.readline())
        assert os.getpgid(pid) != process.pid
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=60)
    assert gone(pid, 2.0)


def test_a_forked_child_does_not_end_the_server_of_its_parent(small):
    brief(small)
    pid = small.pid
    child = os.fork()
    if not child:
        try:
            small.close()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert running(pid)
    brief(small)
    assert small.pid == pid


def test_a_broken_file_is_rejected_and_says_which(tmp_path):
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(5000))
    with LocalModel(broken) as model, pytest.raises(RejectedError, match=r"broken\.gguf"):
        brief(model)


def test_half_a_file_is_rejected(tmp_path, weights):
    half = tmp_path / "half.gguf"
    with weights.open("rb") as file:
        half.write_bytes(file.read(20_000_000))
    with LocalModel(half) as model, pytest.raises(RejectedError, match=r"half\.gguf"):
        brief(model)


@pytest.mark.parametrize(
    ("arguments", "settings", "says"),
    [
        (("no-such-model",), {}, "smollm2"),
        (("/no/such/file.gguf",), {}, "file.gguf"),
        ((7,), {}, "name or a path"),
        ((), {"threads": 0}, "threads"),
        ((), {"threads": True}, "threads"),
        ((), {"context_window": "big"}, "context_window"),
        ((), {"context_window": 10_000}, "8192"),
        ((), {"parallel": 0}, "parallel"),
        ((), {"max_output_tokens": -1}, "max_output_tokens"),
        ((), {"start_timeout": 0}, "start_timeout"),
        ((), {"start_timeout": float("nan")}, "start_timeout"),
        ((), {"cache_dir": 5}, "cache_dir"),
        ((), {"cache_dir": "/no/such/folder"}, "models pull smollm2"),
    ],
)
def test_bad_input_is_refused_before_anything_starts(arguments, settings, says):
    with pytest.raises(ConfigurationError, match=says):
        LocalModel(*arguments, **settings)


def test_a_file_that_is_no_gguf_is_refused(tmp_path):
    other = tmp_path / "other.gguf"
    other.write_text("hello")
    with pytest.raises(ConfigurationError, match="not a GGUF"):
        LocalModel(other)
    with pytest.raises(ConfigurationError, match="read"):
        LocalModel(tmp_path)


def test_the_empty_name_is_the_default_model(weights):
    assert LocalModel("").name == LocalModel("smollm2").name == LocalModel().name == "local:smollm2"


@pytest.mark.parametrize("string", ["local:", "local:smollm2"])
def test_model_strings_name_it(weights, string):
    assert resolve(string).name == "local:smollm2"
    assert resolve(f"local:{weights}").name == "local:SmolLM2-135M-Instruct.Q4_1"
    with pytest.raises(ConfigurationError, match="openai:"):
        resolve("openai:")
