"""A gate in a process of its own, to be killed: `python -m tests.gate.gate_process STORE UPSTREAM TOKENS`."""

import asyncio
import sys

from glidepath.sessions import SqliteStore

from .kept import keep_at


async def main(folder, url, tokens):
    async with keep_at(url, SqliteStore(folder), limits={"max_tokens": int(tokens)}) as gate:
        sys.stdout.write(f"{gate.url}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
