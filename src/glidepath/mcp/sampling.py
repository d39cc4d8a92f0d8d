"""Sampling: a server asks for a model's reply. It is a model call of the run, within the run's budget and its own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from glidepath.kernel.model_call.side_call import SideAccount, SideQuestion, SideRefused, SideReply, side_call
from glidepath.mcp.definitions import clean_text
from glidepath.values import AssistantMessage, ImageBlock, Message, StopReason, TextBlock, UserMessage

if TYPE_CHECKING:
    from mcp.types import CreateMessageRequestParams, SamplingMessage

    from glidepath.mcp.mcp_server import Sampling
    from glidepath.mcp.mcp_tool_source import McpToolSource
    from glidepath.mcp.server_calls import ServerCall
    from glidepath.run import Run

MOST_MESSAGES = 200
HOTTEST = 2.0
MOST_TEXT = 200_000  # characters
_STOPS = {StopReason.END_TURN: "endTurn", StopReason.MAX_TOKENS: "maxTokens"}


async def answer_sampling(supply: McpToolSource, call: ServerCall, params: CreateMessageRequestParams) -> Any:
    """The model's reply to a server's request, or an `ErrorData` that says why there is none."""
    from mcp import types

    run, sampling = call.run, supply.link.sampling
    if sampling is None:
        return types.ErrorData(code=-32603, message="sampling is not allowed")
    account = supply.sampled.get(run.run_id)
    if account is None:
        account = supply.sampled[run.run_id] = _account(run, supply.link.name, sampling)
    try:
        question = _question(params, sampling.max_output_tokens)
        reply = await _ask_in_own_task(run, question, account, call)
    except SideRefused as refused:
        return types.ErrorData(code=-32603, message=str(refused))
    return types.CreateMessageResult(
        role="assistant",
        content=types.TextContent(type="text", text=reply.text),
        model=reply.model,
        stop_reason=_STOPS.get(reply.stop_reason, reply.stop_reason.value),
    )


def _account(run: Run, server: str, sampling: Sampling) -> SideAccount:
    """What the server may spend in this run, less what it has spent before a pause."""
    name = f"mcp:{server}"
    spent = run.spend.other_accounts.get(name)
    return SideAccount(
        name=name,
        max_calls=sampling.max_calls,
        max_tokens=sampling.max_tokens,
        max_cost=sampling.max_cost,
        calls=0 if spent is None else spent.calls,
        tokens=0 if spent is None else spent.usage().total,
        money=0 if spent is None else spent.money,
    )


async def _ask_in_own_task(run: Run, question: SideQuestion, account: SideAccount, call: ServerCall) -> SideReply:
    """Ask in a plain task: the waiter may be moved, cancelled or let go, and the call ends with the server's."""
    task = asyncio.get_running_loop().create_task(side_call(run, question, account), name=f"glidepath-{account.name}")
    call.side_calls.add(task)
    task.add_done_callback(call.side_calls.discard)
    try:
        await asyncio.wait([task])
    except BaseException:
        task.cancel()
        raise
    if task.cancelled():
        raise SideRefused("the call it was for has ended")
    return task.result()


def _question(params: CreateMessageRequestParams, most: int) -> SideQuestion:
    """The request, with what we do not pass on left out: tools, context of other servers, model preferences."""
    if params.tools:
        raise SideRefused("tools in a sampling request are not supported")
    if len(params.messages) > MOST_MESSAGES:
        raise SideRefused(f"a sampling request has at most {MOST_MESSAGES} messages")
    messages = [_message(one) for one in params.messages]
    system_prompt = params.system_prompt or ""
    if sum(len(one.text) for one in messages) + len(system_prompt) > MOST_TEXT:
        raise SideRefused(f"a sampling request has at most {MOST_TEXT} characters")
    return SideQuestion(
        messages=messages,
        max_output_tokens=max(1, min(params.max_tokens, most)),
        system_prompt=clean_text(system_prompt, MOST_TEXT),
        temperature=None if params.temperature is None else min(max(0.0, params.temperature), HOTTEST),
        stop_sequences=tuple(word for word in params.stop_sequences or () if word)[:4],
    )


def _message(message: SamplingMessage) -> Message:
    import base64

    blocks: list[Any] = []
    for content in message.content_as_list:
        if content.type == "text":
            blocks.append(TextBlock(content.text))
        elif content.type == "image" and message.role == "user":
            try:
                blocks.append(ImageBlock(media_type=content.mime_type, data=base64.b64decode(content.data)))
            except ValueError:
                raise SideRefused("a sampling request has a picture that is not valid base64") from None
        else:
            raise SideRefused(f"a sampling request has content of kind {content.type!r}, which is not supported")
    if message.role == "assistant":
        return AssistantMessage(tuple(blocks))
    return UserMessage(tuple(blocks) if any(isinstance(one, ImageBlock) for one in blocks) else _join_texts(blocks))


def _join_texts(blocks: list[Any]) -> str:
    return "\n".join([block.text for block in blocks])
