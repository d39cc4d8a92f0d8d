"""Agno: an Agent per run, as its documentation builds them. Telemetry, which posts to a server by default, is off."""

from dataclasses import dataclass
from pathlib import Path

from agno.agent import Agent
from agno.db.sqlite import SqliteDb
from agno.models.base import Model
from agno.models.response import ModelResponse
from script import ABOUT, CHECKS, PROMPT, TOOL, Script, current

NAME = "Agno"
PACKAGES = ("agno",)
STATEMENT = "from agno.agent import Agent"
STORE = "SqliteDb (the session is written when the run ends)"
EXTRAS = {"checks": "ten tool_hooks (Agno has no hook per model call)"}


@dataclass
class FakeModel(Model):
    id: str = "fake"
    name: str = "fake"
    provider: str = "fake"

    def invoke(self, *args, **more):
        raise NotImplementedError

    async def ainvoke(self, *args, **more):
        raise NotImplementedError

    def invoke_stream(self, *args, **more):
        raise NotImplementedError

    def _parse_provider_response(self, response, **more):
        return response

    def _parse_provider_response_delta(self, response):
        return response

    async def ainvoke_stream(self, *args, **more):
        script = current()
        arguments = await script.next_call()
        for text in script.pieces():
            yield ModelResponse(role="assistant", content=text)
        if arguments is not None:
            function = {"name": TOOL, "arguments": arguments}
            call = {"id": script.call_id, "type": "function", "function": function}
            yield ModelResponse(role="assistant", tool_calls=[call])


async def lookup(query: str, limit: int, tags: list[str]) -> str:
    return await current().lookup(query, limit, tags)


lookup.__name__, lookup.__doc__ = TOOL, ABOUT


def quiet():
    async def hook(function_name, function_call, arguments):
        current().checked += 1
        return await function_call(**arguments)

    return hook


async def play(script: Script) -> None:
    more = {}
    if script.folder is not None:
        Path(script.folder).mkdir(parents=True)
        more["db"] = SqliteDb(db_file=f"{script.folder}/sessions.db")
    if script.extras:
        more["tool_hooks"] = [quiet() for _ in range(CHECKS)]
    agent = Agent(model=FakeModel(), tools=[lookup], telemetry=False, **more)
    async for event in agent.arun(PROMPT, stream=True, session_id=script.label):
        if event.event == "RunContent":
            script.saw(event.content)
