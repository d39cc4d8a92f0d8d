"""Microsoft Agent Framework: an Agent on a chat client of our own. Telemetry is off unless it is switched on."""

from pathlib import Path

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatMiddleware,
    ChatMiddlewareLayer,
    ChatResponseUpdate,
    Content,
    FileHistoryProvider,
    FunctionInvocationLayer,
    FunctionMiddleware,
    tool,
)
from script import ABOUT, CHECKS, PROMPT, TOOL, Script, current

NAME = "Microsoft Agent Framework"
PACKAGES = ("agent-framework-core",)
STATEMENT = "from agent_framework import Agent"
STORE = "FileHistoryProvider (JSON lines), history kept per model call"
EXTRAS = {"checks": "ten ChatMiddleware", "plugins": "ten ChatMiddleware and ten FunctionMiddleware"}


class FakeClient(BaseChatClient):
    def _inner_get_response(self, *, messages, stream, options, **more):
        return self._build_response_stream(self.updates())

    async def updates(self):
        script = current()
        arguments = await script.next_call()
        for text in script.pieces():
            yield ChatResponseUpdate(role="assistant", contents=[Content.from_text(text)])
        if arguments is not None:
            call = Content.from_function_call(call_id=script.call_id, name=TOOL, arguments=arguments)
            yield ChatResponseUpdate(role="assistant", contents=[call])


class Client(FunctionInvocationLayer, ChatMiddlewareLayer, FakeClient):
    """With the layers that the clients of the package have."""


class Quiet(ChatMiddleware):
    async def process(self, context, call_next):
        current().checked += 1
        await call_next()


class QuietFunction(FunctionMiddleware):
    async def process(self, context, call_next):
        current().checked += 1
        await call_next()


@tool(name=TOOL, description=ABOUT, approval_mode="never_require")
async def lookup(query: str, limit: int, tags: list[str]) -> str:
    return await current().lookup(query, limit, tags)


def make_agent(*middleware, **more) -> Agent:
    client = Client()
    client.function_invocation_configuration["max_iterations"] = 10**6
    return Agent(client, tools=[lookup], middleware=list(middleware), **more)


AGENTS = {
    None: make_agent(),
    "checks": make_agent(*(Quiet() for _ in range(CHECKS))),
    "plugins": make_agent(*(kind() for kind in (Quiet, QuietFunction) for _ in range(CHECKS))),
}


async def play(script: Script) -> None:
    agent, session = AGENTS[script.extras], None
    if script.folder is not None:
        Path(script.folder).mkdir(parents=True)
        keeper = FileHistoryProvider(script.folder)
        agent = make_agent(context_providers=[keeper], require_per_service_call_history_persistence=True)
        session = agent.create_session(session_id=script.label)
    async for update in agent.run(PROMPT, stream=True, session=session):
        script.saw(update.text)
