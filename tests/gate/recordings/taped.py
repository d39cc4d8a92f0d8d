"""Gates that record, and gates that answer from what was recorded."""

import asyncio
import socket
from contextlib import asynccontextmanager

from tests.gate.foreign import KEY, VENDORS, Flown

from glidepath import Limits
from glidepath.apps.gate import GateListener, listen_config
from glidepath.apps.gate.recordings import Place, Player, RecordedScript, read_tape
from glidepath.gate import Gate, Upstream
from glidepath.testing.upstream import ScriptedUpstream

SESSION = "gate:run-1"
NOWHERE = "http://127.0.0.1:9"


@asynccontextmanager
async def record_behind(behavior, store, *, line="run-1", record=True, scripted=None, key=None, **limits):
    """A gate that records, before an upstream that behaves like this."""
    async with ScriptedUpstream(behavior, bodies=True, **(scripted or {})) as up:
        upstreams = [Upstream(name, name, up.url, "swap", "env:UPSTREAM_KEY") for name in VENDORS]
        settings = {"line": line, "environ": {"UPSTREAM_KEY": KEY, "HOME": "/home/ann"}, "store": store}
        async with Gate(Limits(**limits), upstreams, record=record, key=key, **settings) as gate:
            yield Flown(gate, up)


@asynccontextmanager
async def play(tape, *, place=None, turns=None, upstreams=(), timing=False, patience=0.3, **limits):
    """A gate that answers from a recording; where the upstream is nowhere, nothing else can have answered."""
    script = RecordedScript(tape, live=place or Place(folder=tape.head.folder, home=tape.head.home), turns=turns)
    player = Player(script, timing=timing, patience=patience)
    given = upstreams or [Upstream(name, name, NOWHERE) for name in VENDORS]
    async with Gate(Limits(**limits), given, line="replay", environ={"UPSTREAM_KEY": KEY}, tap=player) as gate:
        gate.player = player
        yield gate


async def replay(store, fly, *, session=SESSION, **options):
    """Fly once more against what was recorded: what the client got, and what the player says."""
    async with play(await read_tape(store, session), **options) as gate:
        flight = await fly(gate)
    return flight, gate.player.report()


@asynccontextmanager
async def serving(application):
    """An application on a port of this machine."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        bound.listen()
        listener = GateListener(listen_config(application))
        task = asyncio.ensure_future(listener.serve([bound]))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"
        listener.should_exit = True
        await task
