"""LangGraph through langchain's create_agent, streamed in the mode "messages". Tracing is off."""

from pathlib import Path

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.tools import tool
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from script import ABOUT, CHECKS, PROMPT, TOOL, Script, current

NAME = "LangGraph"
PACKAGES = ("langchain", "langgraph", "langgraph-checkpoint-sqlite")
STATEMENT = "from langchain.agents import create_agent"
STORE = "AsyncSqliteSaver checkpoints"
EXTRAS = {
    "checks": "ten middleware with abefore_model",
    "plugins": "ten middleware with abefore_model, aafter_model, awrap_model_call and awrap_tool_call",
}


class FakeModel(BaseChatModel):
    @property
    def _llm_type(self) -> str:
        return "fake"

    def bind_tools(self, tools, **more):
        return self

    def _generate(self, *args, **more):
        raise NotImplementedError

    async def _astream(self, messages, stop=None, run_manager=None, **more):
        script = current()
        arguments = await script.next_call()
        for text in script.pieces():
            yield ChatGenerationChunk(message=AIMessageChunk(content=text))
        if arguments is not None:
            call = {"index": 0, "id": script.call_id, "name": TOOL, "args": arguments, "type": "tool_call_chunk"}
            yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[call]))


@tool(TOOL, description=ABOUT)
async def lookup(query: str, limit: int, tags: list[str]) -> str:
    return await current().lookup(query, limit, tags)


class Quiet(AgentMiddleware):
    async def abefore_model(self, state, runtime):
        current().checked += 1


class Idle(Quiet):
    async def aafter_model(self, state, runtime):
        current().checked += 1

    async def awrap_model_call(self, request, handler):
        current().checked += 1
        return await handler(request)

    async def awrap_tool_call(self, request, handler):
        current().checked += 1
        return await handler(request)


def ten(kind: type) -> list:
    """Names are taken from the class and must differ."""
    return [type(f"{kind.__name__}{number}", (kind,), {})() for number in range(CHECKS)]


def make_agent(middleware=(), saver=None):
    return create_agent(FakeModel(), [lookup], middleware=middleware, checkpointer=saver)


AGENTS = {None: make_agent(), "checks": make_agent(ten(Quiet)), "plugins": make_agent(ten(Idle))}
NODES = {None: 2, "checks": 2 + CHECKS, "plugins": 2 + 2 * CHECKS}  # each node is a step towards the recursion limit


async def consume(agent, script: Script) -> None:
    steps = (script.turns + 2) * NODES[script.extras]
    config = {"recursion_limit": steps, "configurable": {"thread_id": script.label}}
    question = {"messages": [{"role": "user", "content": PROMPT}]}
    async for message, _ in agent.astream(question, config, stream_mode="messages"):
        if isinstance(message, AIMessageChunk):
            script.saw(message.content)


async def play(script: Script) -> None:
    if script.folder is None:
        await consume(AGENTS[script.extras], script)
        return
    Path(script.folder).mkdir(parents=True)
    async with AsyncSqliteSaver.from_conn_string(f"{script.folder}/checkpoints.db") as saver:
        await consume(make_agent(saver=saver), script)
