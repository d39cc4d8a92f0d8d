"""A server in this process, and the agents that its tests fly."""

import asyncio
import functools
import json
from contextlib import asynccontextmanager

import httpx

from glidepath import Agent, Limits, tool
from glidepath.serve import app
from glidepath.testing import ScriptedModel, call, say

TOKEN = "control-token-0123456789"
VIEW = "view-token-0123456789012"
HEADERS = {"authorization": f"Bearer {TOKEN}"}
STREAM = {"accept": "text/event-stream"}


class Doors:
    """Tools that wait until a test lets them go."""

    def __init__(self):
        self.open = asyncio.Event()
        self.entered = asyncio.Event()

    def tools(self):
        @tool
        async def wait() -> str:
            """Wait until somebody opens the door."""
            self.entered.set()
            await self.open.wait()
            return "the door is open"

        return [wait]


@tool
async def search(query: str) -> str:
    """Search."""
    await asyncio.sleep(0)
    return f"found {query}"


@tool(requires_approval=True)
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def agent(*turns, name="helper", tools=(search, pay), delay=0.0, times=20, **fields):
    turns = turns or (call("search", query="a"), say("done"))
    model = ScriptedModel([*turns] * times, name="scripted", price=("1", "2"), delay=delay)
    limits = fields.pop("limits", Limits(max_iterations=20, max_tokens=100_000, max_cost="1"))
    return Agent(model=model, tools=list(tools), limits=limits, agent_name=name, **fields)


@asynccontextmanager
async def serving(*agents, store=None, token=None, **options):
    """A client of a server with these agents."""
    tokens = token or {TOKEN: "control:ada", VIEW: "view"}
    application = app(agents=list(agents), store=store, token=tokens, **options)
    async with application.router.lifespan_context(application):
        transport = httpx.ASGITransport(app=application)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=HEADERS) as client:
            client.hub = application.state.hub
            client.server = application.state.server
            client.codes = application.state.codes
            yield client


async def start(client, prompt="hi", name="helper", **more):
    answer = await client.post("/api/runs", json={"agent": name, "prompt": prompt, **more})
    assert answer.status_code == 201, answer.text
    return answer.json()["run_id"]


def messages(text):
    """The messages of an event stream: (id, event, data)."""
    found = []
    for part in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in part.splitlines() if not line.startswith(":"))
        if "event" in fields:
            number = int(fields["id"]) if "id" in fields else None
            found.append((number, fields["event"], json.loads(fields["data"])))
    return found


async def events(client, run_id, after=None):
    """All events of a run, to its end."""
    headers = {**STREAM, **({} if after is None else {"last-event-id": str(after)})}
    answer = await client.get(f"/api/runs/{run_id}/events", headers=headers)
    assert answer.status_code == 200, answer.text
    return messages(answer.text)


async def controls(client, run_id):
    """What the journal says that people did."""
    answer = await client.get(f"/api/runs/{run_id}/journal?limit=1000")
    return [one["payload"] for one in answer.json()["records"] if one["kind"] == "control"]


def code(answer):
    return answer.status_code, answer.json()["error"]["code"]


def flown(test):
    """Run a coroutine function as a test, on a loop of its own, for a minute at most."""

    @functools.wraps(test)
    def whole(*given, **named):
        asyncio.run(asyncio.wait_for(test(*given, **named), 60))

    return whole
