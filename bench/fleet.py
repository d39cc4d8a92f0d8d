"""Runs a second for 1, 2 and 4 workers on one PostgreSQL, and what a run costs the database.

    python bench/fleet.py [--runs 200] [--workers 1,2,4] [--pause 0.25] [--dsn postgresql://...] [--page]

With --page every crew flies twice, with a model that answers at once and with one that pauses. What is printed last are
the tables of docs/scale.md: all their figures from one run of this program.

Without --dsn a server is started from the installed binaries, with fsync on. A run has 5 tool and 6 model calls; a
budget, a tenant and a rate are in use. Without --pause the model answers at once, and the figures are those of the
machinery alone. CPU time is that of the workers, and of the server's processes for this database: on a machine that has
other things to do, it says more than runs a second.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import asyncpg

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "engines")]

from tests.crash import postgres  # noqa: E402

from glidepath.apps.fleet.fleet_ledger import FleetLedger  # noqa: E402
from glidepath.engines.dbos import Fleet, Quota  # noqa: E402
from glidepath.run import Amount  # noqa: E402

DURABLE = ("fsync=on", "max_connections=200", "listen_addresses=", "shared_buffers=128MB")
COUNTS = """SELECT xact_commit AS commits, tup_inserted AS inserted, tup_updated AS updated, tup_deleted AS deleted,
  pg_current_wal_lsn() - '0/0' AS wal, pg_database_size(current_database()) AS size,
  (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()) AS connections
  FROM pg_stat_database WHERE datname = current_database()"""


async def database(dsn):
    """A fresh database on that server."""
    name = f"bench{os.urandom(4).hex()}"
    connection = await asyncpg.connect(dsn)
    await connection.execute(f"CREATE DATABASE {name}")
    await connection.close()
    return dsn.replace("/postgres?", f"/{name}?") if "/postgres?" in dsn else dsn.rpartition("/")[0] + f"/{name}"


def start(address, count, pause):
    command = [sys.executable, "-m", "glidepath.cli", "worker", "--agent", "stepper=crew:stepper"]
    command += ["--poll", "0.1", "--concurrency", "16", "--lease", "10"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests" / "engines"), "GLIDEPATH_STORE": address}
    environment["CREW_PAUSE"] = str(pause)
    with tempfile.TemporaryFile() as log:
        return [subprocess.Popen(command, env=environment, stderr=log, stdout=log) for _ in range(count)]


def stop(workers):
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.wait(60)


def cpu_of(crew, address):
    """CPU seconds of the workers, and of the server's processes for this database."""
    name = address.rpartition("/")[2] if "?" not in address else address.partition("?")[0].rpartition("/")[2]
    pids = {worker.pid for worker in crew}
    spent = [0.0, 0.0]
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            used = sum(map(int, stat.read_text().rpartition(")")[2].split()[11:13])) / os.sysconf("SC_CLK_TCK")
            if int(stat.parent.name) in pids:
                spent[0] += used
            elif f" {name} " in (stat.parent / "cmdline").read_text():
                spent[1] += used
    return spent


async def crew_of(fleet, count):
    while len(await fleet.workers()) != count:  # noqa: ASYNC110
        await asyncio.sleep(0.1)


async def counts(address):
    connection = await asyncpg.connect(address)
    row = dict(await connection.fetchrow(COUNTS))
    await connection.close()
    return {name: int(value) for name, value in row.items()}


async def measure(dsn, workers, runs, pause):
    """One fleet, from an empty database to the last run."""
    address = await database(dsn)
    async with Fleet(address) as fleet:
        await fleet.set_budget(tokens=10**12)
        await fleet.set_tenant("acme", day=Quota(tokens=10**12), month=Quota(tokens=10**12))
        await fleet.set_rate("pilot", requests=10**6, per=1)
        first = start(address, 1, pause)  # the queue is known from here on
        await crew_of(fleet, 1)
        await asyncio.sleep(1)
        stop(first)
        began = time.monotonic()
        for number in range(runs):
            await fleet.submit("stepper", f"go {number}", tenant="acme")
        submitting = time.monotonic() - began
        before = await counts(address)
        crew = start(address, workers, pause)
        connections = seen = 0
        cpu = cpu_of(crew, address)
        connection = await asyncpg.connect(address)
        while True:
            (done,) = await connection.fetchrow("SELECT count(*) FROM glidepath_fleet_runs WHERE ended IS NOT NULL")
            activity = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            connections = max(connections, await connection.fetchval(activity))
            if done == runs:
                break
            if not seen and done >= runs // 10:
                seen, cpu = done, cpu_of(crew, address)
            await asyncio.sleep(0.2)
        cpu = [(now - then) / (runs - seen) for now, then in zip(cpu_of(crew, address), cpu, strict=True)]
        ended = [row[0] for row in await connection.fetch("SELECT ended FROM glidepath_fleet_runs ORDER BY ended")]
        await asyncio.sleep(1.5)  # the server's own counters lag
        after = await counts(address)
        rows = {
            table: await connection.fetchval(f"SELECT count(*) FROM {table}")  # noqa: S608
            for table in ("glidepath_sessions", "glidepath_commits", "glidepath_fleet_runs", "dbos.workflow_status")
        }
        await connection.close()
        stop(crew)
    low, high = ended[runs // 10], ended[runs - 1 - runs // 10]
    gaps = statistics.quantiles([b - a for a, b in itertools.pairwise(ended)], n=10)
    return {
        "workers": workers,
        "runs": runs,
        "runs_per_second": round(0.8 * runs / (high - low), 1),
        "submits_per_second": round(runs / submitting, 1),
        "worker_cpu_ms_per_run": round(1000 * cpu[0], 1),
        "server_cpu_ms_per_run": round(1000 * cpu[1], 1),
        "gap_p90_ms": round(1000 * gaps[8], 1),
        "connections": connections - 3,
        "per_run": {name: round((after[name] - before[name]) / runs, 1) for name in after if name != "connections"},
        "rows_per_run": {table: round(count / runs, 1) for table, count in rows.items()},
    }


PAUSE = 0.25  # seconds of a model call on the page


async def hot(dsn, seconds=3.0, clients=8):
    """How many slots of one model, and how many draws from one budget, are given out in a second."""
    address = await database(dsn)
    ledgers = [FleetLedger(address, connections=1) for _ in range(clients)]
    await ledgers[0].set_rate("pilot", requests=10**6, tokens=None, per=1)
    await ledgers[0].set_budget(Quota(tokens=10**15))
    await ledgers[0]._execute(  # noqa: SLF001
        "INSERT INTO glidepath_fleet_runs(session, agent, digest, submitted) "
        "SELECT 'run ' || n, 'stepper', '', 0 FROM generate_series(0, $1 - 1) n",
        clients,
    )
    counted = {"slots": 0, "draws": 0}

    async def ask(number, ledger, until):
        spent = 0
        while time.monotonic() < until["slots"]:
            await ledger.take_slot("pilot", 100)
            counted["slots"] += 1
        while time.monotonic() < until["draws"]:
            spent += 100
            await ledger.draw(
                f"run {number}",
                0,
                spent=Amount(spent),
                landing=Amount(),
                flight=Amount(),
                asked=Amount(200),
                least=Amount(1),
                spare=Amount(),
            )
            counted["draws"] += 1

    now = time.monotonic()
    until = {"slots": now + seconds, "draws": now + 2 * seconds}
    await asyncio.gather(*[ask(number, ledger, until) for number, ledger in enumerate(ledgers)])
    for ledger in ledgers:
        await ledger.close()
    return {f"{what}_per_second_on_one_row": round(count / seconds) for what, count in counted.items()}


def page(at_once, paused, hot_rows):
    """The tables of docs/scale.md."""
    heads = (
        "workers",
        "runs a second, model answers at once",
        "runs a second, model calls of 0.25 s and tool calls of 0.5 s",
        "CPU ms of a worker, a run",
        "CPU ms of the server, a run",
        "connections",
    )
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for quick, slow in zip(at_once, paused, strict=True):
        workers, server = (f"{quick[name]:.0f}" for name in ("worker_cpu_ms_per_run", "server_cpu_ms_per_run"))
        speeds = f"{quick['runs_per_second']} | {slow['runs_per_second']}"
        lines.append(f"| {quick['workers']} | {speeds} | {workers} | {server} | {quick['connections']} |")
    lines += ["", "| what one run costs the database | figure |", "|---|---|"]
    cost = {**at_once[0]["rows_per_run"], **at_once[0]["per_run"]}
    lines += [f"| {name} | {figure:g} |" for name, figure in cost.items()]
    lines += [f"| {name} | {figure:,} |" for name, figure in hot_rows.items()]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--workers", default="1,2,4")
    parser.add_argument("--dsn")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds of a model call, and half of a tool call")
    parser.add_argument("--page", action="store_true", help="print the tables of docs/scale.md")
    options = parser.parse_args()
    postgres.SETTINGS = DURABLE
    dsn = options.dsn or postgres.dsn()
    hot_rows = asyncio.run(hot(dsn))
    print(json.dumps(hot_rows), flush=True)
    pauses = (0.0, PAUSE) if options.page else (options.pause,)
    found = {pause: [] for pause in pauses}
    for count in map(int, filter(None, options.workers.split(","))):
        for pause, rows in found.items():
            rows.append(asyncio.run(measure(dsn, count, options.runs, pause)))
            print(json.dumps(rows[-1]), flush=True)
    if options.page:
        print(page(found[0.0], found[PAUSE], hot_rows))


if __name__ == "__main__":
    main()
