"""The first scene of `glidepath demo`: an agent that nobody wrote for glidepath, bare and behind the gate."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from glidepath.apps.cli.demo_scenarios import wrap_text
from glidepath.values import ConfigurationError, pluralize

if TYPE_CHECKING:
    from glidepath.apps.cli.cli_context import CliContext
    from glidepath.testing import ScriptedUpstream

AGENT = Path(__file__).with_name("demo_agent.py")
ENOUGH = 60
"""Calls after which the demo ends the bare agent: it would not end by itself."""
LIMIT = "20k"
_PATIENCE = 60.0  # seconds for each half; on a quiet machine both together take three
_KEPT = frozenset({"HOME", "LANG", "PATH", "PYTHONPATH", "SYSTEMROOT", "TMPDIR"})
_TITLE = "\n1. An agent you did not write, landed by the gate\n"


async def play_gate(world: CliContext) -> bool:
    """Run the agent without the gate, then with it; False where the gate cannot be started."""
    from glidepath.apps.cli.extras import require_extra
    from glidepath.testing import ScriptedUpstream

    world.write(_TITLE)
    try:
        for package in ("aiohttp", "uvicorn"):
            require_extra(package, "gate")
    except ConfigurationError as error:
        world.write(wrap_text(f"Left out: {error}", world, "   "))
        return True
    for line in (
        "The agent is a loop over HTTP in 50 lines: nothing but the standard library, and no limit.",
        "Its model is a scripted server that asks for one more step in every call, and never stops.",
    ):
        world.write(wrap_text(line, world, "   "))
    async with ScriptedUpstream("loop") as upstream:
        await _run_bare(upstream, world)
        return await _run_behind_gate(upstream, world)


async def _run_bare(upstream: ScriptedUpstream, world: CliContext) -> None:
    world.write("   $ python agent.py\n")
    environ = {"OPENAI_BASE_URL": f"{upstream.url}/v1", "OPENAI_API_KEY": "none"}
    process = await _start([sys.executable, str(AGENT)], environ, world)
    try:
        async with asyncio.timeout(_PATIENCE):
            while process.returncode is None and upstream.usage.calls < ENOUGH:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.01)
    except TimeoutError:
        pass
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.communicate()
    used = upstream.usage
    spent = f"{pluralize(used.calls, 'call')}, {pluralize(used.tokens, 'token', f'{used.tokens:,}')}"
    text = f"{spent} and no answer. The demo ended it."
    world.write(wrap_text(text, world, "   "))


async def _run_behind_gate(upstream: ScriptedUpstream, world: CliContext) -> bool:
    world.write(f"   $ glidepath gate run --max-tokens {LIMIT} -- python agent.py\n")
    flags = ["--max-tokens", LIMIT, "--store", "none", "--upstream", upstream.url]
    command = [sys.executable, "-m", "glidepath", "gate", "run", *flags, "--", sys.executable, str(AGENT)]
    process = await _start(command, {}, world)
    try:
        out, err = await asyncio.wait_for(process.communicate(), _PATIENCE)
    except TimeoutError:
        process.kill()
        await process.communicate()
        out, err = b"", b"the gate did not end"
    for line in [*out.decode(errors="replace").splitlines(), *err.decode(errors="replace").splitlines()]:
        world.write(wrap_text(line, world, "   "))
    if process.returncode == 0:
        text = "Exit code 0. The agent is the same file; only its base URL was another."
        world.write(wrap_text(text, world, "   "))
    return process.returncode == 0


async def _start(command: Sequence[str], environ: Mapping[str, str], world: CliContext) -> asyncio.subprocess.Process:
    """A program of the demo: it sees no key and no setting of the person who watches."""
    kept = {name: text for name, text in world.environ.items() if name in _KEPT}
    return await asyncio.create_subprocess_exec(
        *command,
        env={**kept, **environ},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
