"""Strands Agents: one Agent per conversation, as its documentation asks. The history is kept whole."""

from pathlib import Path

from script import ABOUT, CHECKS, PROMPT, TOOL, Script, current
from strands import Agent, tool
from strands.agent.conversation_manager import NullConversationManager
from strands.hooks import (
    AfterModelCallEvent,
    AfterToolCallEvent,
    BeforeModelCallEvent,
    BeforeToolCallEvent,
    HookProvider,
)
from strands.models.model import Model
from strands.session.file_session_manager import FileSessionManager

NAME = "Strands Agents"
PACKAGES = ("strands-agents",)
STATEMENT = "from strands import Agent"
STORE = "FileSessionManager (a JSON file per message)"
EXTRAS = {
    "checks": "ten hook providers on BeforeModelCallEvent",
    "plugins": "ten hook providers on the before and after events of model and tool calls",
}
EVENTS = (BeforeModelCallEvent, AfterModelCallEvent, BeforeToolCallEvent, AfterToolCallEvent)


class FakeModel(Model):
    def update_config(self, **more):
        raise NotImplementedError

    def get_config(self):
        return {"context_window_limit": 10**9}

    async def structured_output(self, *args, **more):
        raise NotImplementedError
        yield

    async def stream(self, messages, tool_specs=None, system_prompt=None, **more):
        script = current()
        arguments = await script.next_call()
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": {}}}
        for text in script.pieces():
            yield {"contentBlockDelta": {"delta": {"text": text}}}
        yield {"contentBlockStop": {}}
        if arguments is not None:
            yield {"contentBlockStart": {"start": {"toolUse": {"name": TOOL, "toolUseId": script.call_id}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": arguments}}}}
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn" if arguments is None else "tool_use"}}
        usage = {"inputTokens": 100, "outputTokens": 20, "totalTokens": 120}
        yield {"metadata": {"usage": usage, "metrics": {"latencyMs": 0}}}


@tool(name=TOOL, description=ABOUT)
async def lookup(query: str, limit: int, tags: list[str]) -> str:
    return await current().lookup(query, limit, tags)


class Quiet(HookProvider):
    def __init__(self, events) -> None:
        self.events = events

    def register_hooks(self, registry, **more):
        for event in self.events:
            registry.add_callback(event, self.look)

    async def look(self, event):
        current().checked += 1


async def play(script: Script) -> None:
    more = {}
    if script.folder is not None:
        Path(script.folder).mkdir(parents=True)
        more["session_manager"] = FileSessionManager(session_id=script.label, storage_dir=script.folder)
    if script.extras:
        events = EVENTS if script.extras == "plugins" else EVENTS[:1]
        more["hooks"] = [Quiet(events) for _ in range(CHECKS)]
    agent = Agent(
        model=FakeModel(),
        tools=[lookup],
        callback_handler=None,
        conversation_manager=NullConversationManager(),
        **more,
    )
    async for event in agent.stream_async(PROMPT):
        if "data" in event:
            script.saw(event["data"])
