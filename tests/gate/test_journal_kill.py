"""A gate that is killed in the middle of a reply forgets nothing that was spent."""

import asyncio
import signal
import sys
from pathlib import Path

import httpx
import pytest

from glidepath.outcome import LoopOutcome
from glidepath.sessions import SqliteStore
from glidepath.testing.upstream import ScriptedUpstream

from .foreign import fly_anthropic, in_real_time
from .kept import GATE_KEY, folded_of, keep_at, until

ROOT = Path(__file__).parents[2]
HEADERS = {"x-api-key": GATE_KEY, "anthropic-version": "2023-06-01"}
BODY = {
    "model": "claude-opus-5-5",
    "max_tokens": 64_000,
    "stream": True,
    "messages": [{"role": "user", "content": "Write a long text."}],
}


async def start_gate(folder, url, tokens):
    command = [sys.executable, "-m", "tests.gate.gate_process", str(folder), url, str(tokens)]
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    return process, (await process.stdout.readline()).decode().strip()


async def read_until(url, size):
    """Read a streamed reply until so many bytes have come, then never again."""
    got = 0
    async with httpx.AsyncClient(timeout=30) as client:
        try:
            async with client.stream("POST", f"{url}/v1/messages", json=BODY, headers=HEADERS) as reply:
                assert reply.status_code == 200
                async for chunk in reply.aiter_bytes():
                    got += len(chunk)
                    if got >= size:
                        yield got
        except httpx.TransportError:
            return


@pytest.mark.parametrize("size", [2_000, 150_000])
@in_real_time
async def test_a_killed_gate_counts_the_call_in_flight_at_its_worst_case(size, tmp_path):
    async with ScriptedUpstream("endless", rate=20_000.0) as up:
        process, url = await start_gate(tmp_path / "store", up.url, 400_000)
        try:
            reading = read_until(url, size)
            await anext(reading)
            process.send_signal(signal.SIGKILL)
            await process.wait()
            await reading.aclose()
        finally:
            if process.returncode is None:
                process.kill()
        await until(lambda: up.usage.calls)
        served = up.usage.input + up.usage.output
        store = SqliteStore(tmp_path / "store")
        left = await folded_of(store)
        assert left.result is None
        assert left.reserved is not None
        up.behavior = "loop"
        async with keep_at(up.url, store, limits={"max_tokens": 400_000}) as gate:
            await fly_anthropic(gate.url, gate.key, most=1)
            (session,) = next(iter(gate.governor._lines.values())).sessions.values()
            second = up.usage.input + up.usage.output - served
            assert session.meter.tokens >= served + second
            assert session.meter.tokens == left.reserved.tokens + second
            # Not more than twice what came, and a few slices.
            assert left.reserved.tokens <= 2 * served + 12_000
    result = (await folded_of(store)).result
    assert result.usage.total == left.reserved.tokens + second
    assert result.usage.estimated


@in_real_time
async def test_limits_are_not_reset_by_a_kill(tmp_path):
    limit = 30_000
    async with ScriptedUpstream("loop") as up:
        for _ in range(3):
            process, url = await start_gate(tmp_path / "store", up.url, limit)
            try:
                await fly_anthropic(url, GATE_KEY, most=8)
            finally:
                process.kill()
                await process.wait()
        store = SqliteStore(tmp_path / "store")
        async with keep_at(up.url, store, limits={"max_tokens": limit}) as gate:
            flight = await fly_anthropic(gate.url, gate.key)
        assert up.usage.input + up.usage.output <= limit
        assert "SCRIPTED-ANSWER" in flight.text
    folded = await folded_of(store)
    assert folded.result.outcome is LoopOutcome.WRAPPED_UP
    assert folded.result.usage.total == up.usage.input + up.usage.output
