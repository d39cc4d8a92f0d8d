"""Tools may use libraries that are built on anyio: such code asks what the task waits for."""

import anyio

from glidepath import Agent, Limits, tool
from glidepath.testing import ScriptedModel, call, virtual


@tool
async def relay(text: str) -> str:
    """Send a text through a memory stream to a task that waits for it."""
    send, receive = anyio.create_memory_object_stream[str](0)

    async def later() -> None:
        await anyio.sleep(1)
        send.send_nowait(text)

    async with anyio.create_task_group() as group, send, receive:
        group.start_soon(later)
        return await receive.receive()


@virtual
async def test_a_tool_may_wait_for_a_memory_stream():
    agent = Agent(model=ScriptedModel([call("relay", text="hi"), "ok"]), tools=[relay], limits=Limits(max_iterations=3))
    result = await agent.run("go")
    assert [message.text for message in result.messages if message.role == "tool_result"] == ["hi"]
