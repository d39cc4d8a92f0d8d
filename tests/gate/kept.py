"""Gates that keep their runs, and what their stores say."""

import asyncio
from contextlib import asynccontextmanager

from glidepath import Limits
from glidepath.apps.gate import SessionKeeper, make_governor
from glidepath.gate import Gate, Upstream
from glidepath.sessions import list_runs, read_journal
from glidepath.testing.upstream import ScriptedUpstream

from .foreign import KEY, VENDORS, Flown

GATE_KEY = "gate-key-of-a-test-0123456789"


@asynccontextmanager
async def keep_at(url, store, *, line="run-1", limits=None, observe=(), idle=30.0, prices=None, **options):
    """A gate before the upstream at `url` that keeps its runs."""
    upstreams = [Upstream(name, name, url, "swap", "env:UPSTREAM_KEY") for name in VENDORS]
    keeper = SessionKeeper(store, idle=idle, observe=observe)
    governor = make_governor(
        limits=Limits(**(limits or {"max_tokens": 12_000})), upstreams=upstreams, witness=keeper, prices=prices
    )
    settings = {"line": line, "environ": {"UPSTREAM_KEY": KEY}, "governor": governor, "key": GATE_KEY}
    async with Gate(None, upstreams, **settings, **options) as gate:
        gate.keeper = keeper
        yield gate


@asynccontextmanager
async def keep_behind(behavior, store, *, scripted=None, **options):
    """A gate that keeps its runs, before an upstream that behaves like this."""
    async with (
        ScriptedUpstream(behavior, bodies=True, **(scripted or {})) as up,
        keep_at(up.url, store, **options) as one,
    ):
        flown = Flown(one, up)
        flown.keeper = one.keeper
        yield flown


async def folded_of(store, session="gate:run-1"):
    return (await read_journal(store, session)).folded


async def kinds_of(store, session="gate:run-1"):
    """The kinds of records in a journal, commit by commit."""
    from glidepath.sessions import read

    return [[record.kind for record in read(commit)] for commit in (await read_journal(store, session)).commits]


async def names_in(store):
    return sorted(entry.session_id for entry in await list_runs(store, children=True))


async def until(holds, seconds=20.0):
    """Wait until this is true."""

    async def wait():
        while not holds():  # noqa: ASYNC110 - what is looked at belongs to other people
            await asyncio.sleep(0.005)

    await asyncio.wait_for(wait(), seconds)
