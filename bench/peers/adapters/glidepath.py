"""glidepath with limits on every dimension and its default guards, all events consumed."""

from pathlib import Path

from script import ABOUT, CHECKS, PROMPT, TOOL, Script, current

from glidepath import Agent, Limits, Plugin, ResourceAction, ResourceConstraint, ResourceValidation, Usage, tool
from glidepath.events import StreamChunk
from glidepath.models import StreamEnd, TextDelta, ToolCallDelta
from glidepath.sessions import SqliteStore
from glidepath.spi import HOOKS

NAME = "glidepath"
PACKAGES = ("glidepath",)
STATEMENT = "from glidepath import Agent"
STORE = "SqliteStore, the embedded default, durability sync"
EXTRAS = {"checks": "ten custom ResourceConstraints", "plugins": "ten plugins on every hook, with nothing to say"}


class FakeModel:
    name = "fake"
    max_output_tokens = 100_000

    async def stream(self, request):
        script = current()
        arguments = await script.next_call()
        for text in script.pieces():
            yield TextDelta(text=text)
        if arguments is not None:
            yield ToolCallDelta(index=0, id=script.call_id, name=TOOL, arguments=arguments)
        reason = "end_turn" if arguments is None else "tool_use"
        usage = Usage(input=60 + 52 * len(request.messages), output=35 + script.deltas)  # as a provider would count
        yield StreamEnd(stop_reason=reason, usage=usage)


@tool(name=TOOL, description=ABOUT)
async def lookup(query: str, limit: int, tags: list[str]) -> str:
    return await current().lookup(query, limit, tags)


class Quiet(ResourceConstraint):
    async def validate(self, context):
        current().checked += 1
        return ResourceValidation.ok()

    def on_violation(self, validation):
        return ResourceAction.GRACEFUL_EXIT


def silent(self, context):
    current().checked += 1


Idle = type("Idle", (Plugin,), dict.fromkeys(HOOKS, silent))


def ten(kind: type) -> tuple:
    """Names are taken from the class and must differ."""
    return tuple(type(f"{kind.__name__}{number}", (kind,), {})() for number in range(CHECKS))


def make_agent(**more) -> Agent:
    limits = Limits(max_iterations=10**6, max_tokens=10**10, max_cost="1000000", timeout=3_600, max_tool_calls=10**6)
    return Agent(model=FakeModel(), tools=[lookup], limits=limits, prices={"fake": (1.0, 1.0)}, **more)


AGENTS = {None: make_agent(), "checks": make_agent(constraints=ten(Quiet)), "plugins": make_agent(plugins=ten(Idle))}


async def play(script: Script) -> None:
    agent = AGENTS[script.extras]
    if script.folder is not None:
        Path(script.folder).mkdir(parents=True)
        agent = make_agent(store=SqliteStore(f"{script.folder}/runs.db"))
    async with agent.stream(PROMPT, session=script.label if script.folder else None) as events:
        async for event in events:
            if type(event) is StreamChunk:
                script.saw(event.text)
