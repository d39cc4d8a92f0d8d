"""The gate as the measured process: argv is the upstream's URL and the governor, `plain` or `real`.

Prints its URL and key, and a port that tells the CPU seconds of this process and its memory.
"""

import asyncio
import importlib.util
import resource
import sys
import time
from pathlib import Path

from glidepath import Limits
from glidepath.apps.gate.listening import freeze_heap
from glidepath.gate import Gate, Upstream


def make_plain(upstreams):
    """The governor of the tests, which has no rules: what the server alone costs."""
    where = Path(__file__).parents[2] / "tests" / "gate" / "plain.py"
    spec = importlib.util.spec_from_file_location("plain", where)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    governor = module.PlainGovernor()
    governor.upstreams = upstreams
    governor.requests = governor.passages = _Nothing()
    return governor


class _Nothing(list):
    def append(self, _):
        """Keeps nothing: the memory of 100,000 requests is measured."""


async def tell(reader, writer):
    await reader.readline()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    writer.write(f"{time.process_time()} {pages * resource.getpagesize()}\n".encode())
    writer.close()


async def main(url, kind):
    upstreams = [Upstream(name, name, url) for name in ("anthropic", "openai", "gemini")]
    governor = make_plain(upstreams) if kind == "plain" else None
    limits = Limits(max_tokens=10**12)
    async with Gate(limits=limits, upstream=upstreams, governor=governor, line="bench") as gate:
        freeze_heap()
        told = await asyncio.start_server(tell, "127.0.0.1", 0)
        print(gate.url, gate.key, told.sockets[0].getsockname()[1], flush=True)
        await asyncio.Event().wait()


if "uvloop" in sys.argv:
    import uvloop

    uvloop.run(main(*sys.argv[1:3]))
else:
    asyncio.run(main(*sys.argv[1:3]))
