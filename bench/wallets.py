"""Draws a second from one wallet, by several processes at once, in each store that keeps wallets.

    python bench/wallets.py --processes 8 --agents 8 --seconds 5
    python bench/wallets.py --postgres postgresql://localhost/bench

A draw is one transaction: it counts what the last call has used, gives the surplus back and holds the next call. Every
agent draws, settles after eight draws, and begins anew, as runs do. CPU is that of the processes, the server's apart.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from glidepath.sessions import PostgresStore, SqliteStore, this_owner
from glidepath.spi import Hold, WalletDraw, WalletTerms

DRAWS = 8
LIMIT = 10**12


def make_store(address: str) -> Any:
    """The store at this address."""
    if address.startswith("postgresql:"):
        return PostgresStore(address, max_connections=8)
    return SqliteStore(address, busy=30.0)


async def fly(store: Any, owner: str, name: str, until: float, session: str | None) -> tuple[int, float]:
    """Draw until the time is up; how many draws, and the longest one."""
    line = (WalletTerms(name="company"), WalletTerms(name="bench", parent="company", max_tokens=LIMIT))
    done, longest, number = 0, 0.0, 0
    while time.monotonic() < until:
        number += 1
        hold = Hold(key=f"{name}-{number}", leg=1, owner=owner, line=line, session_id=session)
        for turn in range(DRAWS):
            before = time.monotonic()
            grant = await store.draw(hold, WalletDraw(spent_tokens=50 * turn, asked_tokens=500, least_tokens=300))
            longest = max(longest, time.monotonic() - before)
            assert grant.verdict == "granted", grant
            done += 1
        await store.settle(hold, 50 * DRAWS, 0)
    return done, longest


async def main(address: str, agents: int, seconds: float, session: str | None) -> None:
    """One process of the measurement."""
    store = make_store(address)
    owner = this_owner()
    until, begun = time.monotonic() + seconds, _cpu()
    flown = await asyncio.gather(
        *[fly(store, owner, f"{os.getpid()}-{number}", until, session) for number in range(agents)]
    )
    await store.close()
    print(sum(done for done, _ in flown), max(longest for _, longest in flown), _cpu() - begun)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure(address: str, processes: int, agents: int, seconds: float, session: str) -> str:
    """One row of the table."""
    command = [sys.executable, __file__, "--child", address, "--agents", str(agents), "--seconds", str(seconds)]
    command += ["--session", session]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    rows = [child.communicate()[0].split() for child in started]
    draws = sum(int(row[0]) for row in rows)
    cpu = sum(float(row[2]) for row in rows)
    longest = max(float(row[1]) for row in rows)
    return (
        f"{draws / seconds:>8.0f} draws/s   {cpu / draws * 1e6:>6.0f} us CPU a draw   longest {longest * 1e3:>5.0f} ms"
    )


def arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--agents", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--postgres", metavar="DSN")
    parser.add_argument("--child", metavar="ADDRESS", help=argparse.SUPPRESS)
    parser.add_argument("--session", default="", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    options = arguments()
    if options.child:
        asyncio.run(main(options.child, options.agents, options.seconds, options.session or None))
        raise SystemExit
    with tempfile.TemporaryDirectory() as folder:
        places = {"SQLite": str(Path(folder) / "wallets.db")}
        if options.postgres:
            places |= {"PostgreSQL": options.postgres, "PostgreSQL, journal beside": options.postgres}
        for label, place in places.items():
            for number in sorted({1, options.processes}):
                session = "s" if "journal" in label else ""
                row = measure(place, number, options.agents, options.seconds, session)
                print(f"{label:<26} {number} x {options.agents}: {row}", flush=True)
