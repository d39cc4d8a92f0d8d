"""The door for editors: an agent on stdin and stdout, in the Agent Client Protocol.

A session of the editor is a session of the agent. A call that needs a decision becomes a permission request; tokens are
reported after every prompt, and where the model's window is known, how full it is and what the session has cost. How a
run ended is in the answer's `_meta.glidepath`.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import acp
from acp import schema

from glidepath._version import VERSION
from glidepath.agent import Agent
from glidepath.agent.route import window_of
from glidepath.apps.server.acp_servers import make_servers
from glidepath.apps.server.inline_image import inline_image
from glidepath.apps.server.result_json import ending_of
from glidepath.guards.approvals import AlwaysAllowed, scope_of
from glidepath.run import CancelToken, Decision, approve, deny, escape_invisible, question_rows
from glidepath.sessions import Session, check_session_id, find_sessions
from glidepath.spi import SessionQuery
from glidepath.tools import QuoteFrame
from glidepath.values import (
    PROTOCOL_STOPS,
    AssistantMessage,
    BudgetSettled,
    ConfigurationError,
    Event,
    ImageBlock,
    LoopOutcome,
    Message,
    PendingCall,
    RunResult,
    StoreError,
    StreamChunk,
    TextBlock,
    ToolEnded,
    ToolResultMessage,
    ToolsChanged,
    ToolStarted,
    UserMessage,
)

_FAILED = -32000


class EditorAgent:
    """Answers an editor. Without a store, sessions last as long as the process."""

    def __init__(self, agent: Agent[Any]) -> None:
        self._agent = agent
        self._store: Any = agent.config.store
        self._editor: Any = None
        self._sessions: dict[str, Session | str] = {}
        self._folders: dict[str, str] = {}
        self._flying: dict[str, CancelToken] = {}
        self._always: dict[str, AlwaysAllowed] = {}
        self._in_context: dict[str, int] = {}  # tokens of a session's last model call
        self._costs: dict[str, Decimal | None] = {}
        self._agents: dict[str, Agent[Any]] = {}  # of the sessions whose editor brings servers, kept open

    def on_connect(self, conn: Any) -> None:
        """Remember the client."""
        self._editor = conn

    # --- sessions ---------------------------------------------------------------------------------------------

    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: Any = None,  # noqa: ARG002 - the protocol passes them by name
        client_info: Any = None,  # noqa: ARG002
        **_: Any,
    ) -> schema.InitializeResponse:
        """What this agent can do."""
        kept = self._store is not None
        sessions = schema.SessionCapabilities(
            list=schema.SessionListCapabilities() if kept else None,
            resume=schema.SessionResumeCapabilities() if kept else None,
            close=schema.SessionCloseCapabilities(),
        )
        return schema.InitializeResponse(
            protocol_version=min(protocol_version, acp.PROTOCOL_VERSION),
            agent_capabilities=schema.AgentCapabilities(
                load_session=kept,
                prompt_capabilities=schema.PromptCapabilities(image=True, audio=False, embedded_context=True),
                mcp_capabilities=schema.McpCapabilities(http=True, sse=False),
                session_capabilities=sessions,
            ),
            agent_info=schema.Implementation(name="glidepath", title=self._agent.config.agent_name, version=VERSION),
        )

    async def new_session(
        self,
        cwd: str,
        additional_directories: Any = None,  # noqa: ARG002 - the protocol passes them by name
        mcp_servers: Any = None,
        **_: Any,
    ) -> schema.NewSessionResponse:
        """Begin a session. The tools of the editor's servers come to those of the agent."""
        session = Session()
        await self._take_servers(session.id, mcp_servers, cwd)
        self._sessions[session.id] = session if self._store is None else session.id
        self._folders[session.id] = cwd
        return schema.NewSessionResponse(session_id=session.id)

    async def load_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: Any = None,
        additional_directories: Any = None,  # noqa: ARG002 - the protocol passes them by name
        **_: Any,
    ) -> schema.LoadSessionResponse:
        """Load a stored session, and show what was said in it."""
        for message in (await self._open_session(cwd, session_id, mcp_servers)).folded.messages:
            await self._show_again(session_id, message)
        return schema.LoadSessionResponse()

    async def resume_session(
        self, cwd: str, session_id: str, mcp_servers: Any = None, **_: Any
    ) -> schema.ResumeSessionResponse:
        """Continue a stored session, of which the editor has kept what was said."""
        await self._open_session(cwd, session_id, mcp_servers)
        return schema.ResumeSessionResponse()

    async def _open_session(self, cwd: str, session_id: str, mcp_servers: Any) -> Any:
        """The journal of a stored session, which is open from now on; raises an error of the protocol."""
        if self._store is None:
            raise acp.RequestError.invalid_params({"sessionId": "this agent keeps no sessions: start it with --store"})
        from glidepath.sessions import read_journal

        try:
            check_session_id(session_id)
            journal = await read_journal(self._store, session_id)
        except (ConfigurationError, StoreError) as error:
            raise acp.RequestError.resource_not_found(str(error)) from None
        if session_id in self._flying:
            raise acp.RequestError.invalid_request({"sessionId": "a prompt of this session is being answered"})
        await self._take_servers(session_id, mcp_servers, cwd)
        self._sessions[session_id] = session_id
        self._folders[session_id] = cwd
        self._costs[session_id] = journal.folded.session.totals.cost
        return journal

    async def _take_servers(self, session_id: str, given: Any, cwd: str) -> None:
        """Have the tools of these servers in a session, instead of those that it had."""
        servers = make_servers(given or (), cwd)
        await self._let_go_of_servers(session_id)
        if not servers:
            return
        try:
            agent = self._agent.replace(tools=(*self._agent.config.tools, *servers))
        except ConfigurationError as error:
            raise acp.RequestError.invalid_params({"mcpServers": str(error)}) from None
        self._agents[session_id] = await agent.__aenter__()

    async def _let_go_of_servers(self, session_id: str) -> None:
        agent = self._agents.pop(session_id, None)
        if agent is not None:
            await agent.__aexit__(None, None, None)

    async def close(self) -> None:
        """The editor has gone: end what its sessions have open."""
        for session_id in list(self._agents):
            await self._let_go_of_servers(session_id)

    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **_: Any
    ) -> schema.ListSessionsResponse:
        """The sessions that a store keeps, newest first."""
        if self._store is None:
            return schema.ListSessionsResponse(sessions=[])
        page = await find_sessions(self._store, SessionQuery(limit=50, cursor=cursor))
        found = [
            schema.SessionInfo(
                session_id=entry.session_id,
                cwd=self._folders.get(entry.session_id, cwd or ""),
                title=(entry.title or str(entry.summary.get("task") or ""))[:80] or None,
                updated_at=datetime.fromtimestamp(entry.updated, UTC).isoformat(),
            )
            for entry in page.sessions
        ]
        return schema.ListSessionsResponse(sessions=found, next_cursor=page.cursor)

    async def close_session(self, session_id: str, **_: Any) -> schema.CloseSessionResponse:
        """Stop what is running in it, and forget it; a store keeps it."""
        if session_id not in self._sessions:
            raise acp.RequestError.resource_not_found(f"there is no session {session_id!r:.80}")
        await self.cancel(session_id)
        del self._sessions[session_id]
        for kept in (self._always, self._in_context, self._costs):
            kept.pop(session_id, None)
        await self._let_go_of_servers(session_id)
        return schema.CloseSessionResponse()

    # --- prompts ----------------------------------------------------------------------------------------------

    async def prompt(self, session_id: str, prompt: Sequence[Any], **_: Any) -> schema.PromptResponse:
        """Execute one run to its end, asking for permission where it pauses."""
        session = self._sessions.get(session_id)
        if session is None:
            raise acp.RequestError.resource_not_found(f"there is no session {session_id!r:.80}: begin one first")
        if session_id in self._flying:
            raise acp.RequestError.invalid_request({"sessionId": "a prompt of this session is being answered"})
        token = self._flying[session_id] = CancelToken()
        try:
            result = await self._run_agent(session_id, token, prompt=UserMessage(_blocks(prompt)), session=session)
            while result.outcome is LoopOutcome.PAUSED and not token.cancelled:
                decisions = {one.call.id: await self._ask_editor(session_id, one) for one in result.pending}
                target: Any = result if self._store is None else session_id
                result = await self._run_agent(session_id, token, resume=target, decisions=decisions)
        except (ConfigurationError, StoreError) as error:
            raise acp.RequestError(_FAILED, str(error)) from None
        finally:
            del self._flying[session_id]
        return await self._send_result(session_id, result)

    async def cancel(self, session_id: str, **_: Any) -> None:
        """Stop the run in flight."""
        token = self._flying.get(session_id)
        if token is not None:
            token.cancel("cancelled in the editor")

    async def _run_agent(self, session_id: str, token: CancelToken, **given: Any) -> RunResult[Any]:
        agent = self._agents.get(session_id, self._agent)
        async with agent.stream(cancel=token, **given) as stream:
            async for event in stream:
                await self._show(session_id, event)
        return stream.result

    async def _ask_editor(self, session_id: str, pending: PendingCall) -> Decision:
        """What the person says in their editor. The request has the whole call as text, and each option a nonce."""
        always = self._always.setdefault(session_id, AlwaysAllowed())
        tools = self._agent.config.tools
        if always.is_covered(pending, tools):
            return approve(digest=pending.digest)
        scope = scope_of(pending, tools)
        rows = question_rows(pending, who=self._agent.config.agent_name)
        options = {"allow_once": "Allow this call", "reject_once": "Deny"}
        if scope is not None:
            options["allow_always"] = "Always allow this (you are shown what it covers)"
        chosen = await self._request_permission(session_id, pending, rows, options)
        if chosen == "allow_always" and scope is not None:
            rows = [f"From now on, without asking: {escape_invisible(scope.told)}"]
            options = {"allow_always": "Yes, always", "allow_once": "Only this call", "reject_once": "Deny"}
            chosen = await self._request_permission(session_id, pending, rows, options)
            if chosen == "allow_always":
                always.add(scope)
        return approve(digest=pending.digest) if chosen else deny("denied in the editor")

    async def _request_permission(
        self, session_id: str, pending: PendingCall, rows: Sequence[str], options: Mapping[str, str]
    ) -> str | None:
        """The kind of the option that was chosen, if it allows the call and answers this very request."""
        nonce = f"{secrets.token_hex(8)}.{pending.digest}"
        update = schema.ToolCallUpdate(
            tool_call_id=pending.call.id,
            title=escape_invisible(pending.call.name),
            status="pending",
            content=[acp.tool_content(acp.text_block("\n".join(rows)))],
            field_meta={"glidepath": {"digest": pending.digest}},
        )
        given: Any = [
            schema.PermissionOption(option_id=f"{kind}.{nonce}", name=name, kind=kind)  # type: ignore[arg-type]
            for kind, name in options.items()
        ]
        asked = await self._editor.request_permission(session_id=session_id, tool_call=update, options=given)
        if asked.outcome.outcome != "selected":
            return None
        kind, _, rest = asked.outcome.option_id.partition(".")
        return kind if rest == nonce and kind in ("allow_once", "allow_always") and kind in options else None

    async def _send_result(self, session_id: str, result: RunResult[Any]) -> schema.PromptResponse:
        usage = result.usage
        if result.cost is not None:
            self._costs[session_id] = result.cost + (self._costs.get(session_id) or 0)
        await self._send_usage(session_id)
        reason = PROTOCOL_STOPS[result.state, result.outcome]["acp"]
        if result.stop_reason is not None and result.stop_reason.value == "refusal":
            reason = "refusal"
        if reason == "error":
            said = "the run failed" if result.cause is None else result.cause.reason
            raise acp.RequestError(_FAILED, said, {"glidepath": ending_of(result)})
        stop: Any = reason
        return schema.PromptResponse(
            stop_reason=stop,
            usage=schema.Usage(
                total_tokens=usage.total, input_tokens=usage.input, output_tokens=usage.output,
                thought_tokens=usage.reasoning or None, cached_read_tokens=usage.cache_read or None,
            ),
            field_meta={"glidepath": ending_of(result)},
        )  # fmt: skip

    async def _send_usage(self, session_id: str) -> None:
        """How full the window is, and what the session has cost. The protocol has no word for an unknown window."""
        config, used = self._agent.config, self._in_context.get(session_id)
        size, cost = window_of(config, config.model), self._costs.get(session_id)
        if size is None or used is None:
            return
        money = None if cost is None else schema.Cost(amount=float(cost), currency="USD")
        update = schema.UsageUpdate(session_update="usage_update", used=used, size=size, cost=money)
        await self._send_update(session_id, update)

    # --- what the editor sees ---------------------------------------------------------------------------------

    async def _show(self, session_id: str, event: Event) -> None:
        if event.parent_id is not None:
            return
        if isinstance(event, StreamChunk) and event.text:
            make = acp.update_agent_thought_text if event.thinking else acp.update_agent_message_text
            await self._send_update(session_id, make(event.text))
        elif isinstance(event, BudgetSettled):
            self._in_context[session_id] = event.usage.total
        elif isinstance(event, ToolStarted):
            begun = acp.start_tool_call(
                event.call_id, event.tool_name, kind="other", status="in_progress", raw_input=dict(event.arguments)
            )
            await self._send_update(session_id, begun)
        elif isinstance(event, ToolEnded):
            await self._send_update(session_id, _result(event.result))
        elif isinstance(event, ToolsChanged) and event.effect in ("unavailable", "blocked"):
            told = escape_invisible(f"MCP server {event.server}: {event.effect}: {event.reason}")
            await self._send_update(session_id, acp.update_agent_thought_text(f"{told}\n"))

    async def _show_again(self, session_id: str, message: Message) -> None:
        if isinstance(message, UserMessage) and not message.internal:
            await self._send_update(session_id, acp.update_user_message_text(message.text))
        elif isinstance(message, AssistantMessage):
            if message.text:
                await self._send_update(session_id, acp.update_agent_message_text(message.text))
            for call in message.tool_calls:
                begun = acp.start_tool_call(
                    call.id, call.name, kind="other", status="in_progress", raw_input=dict(call.arguments)
                )
                await self._send_update(session_id, begun)
        elif isinstance(message, ToolResultMessage):
            await self._send_update(session_id, _result(message))

    async def _send_update(self, session_id: str, update: Any) -> None:
        await self._editor.session_update(session_id=session_id, update=update)


def _result(result: ToolResultMessage) -> Any:
    status: Any = "failed" if result.is_error else "completed"
    content = [acp.tool_content(acp.text_block(result.text))]
    return acp.update_tool_call(result.call_id, status=status, content=content)


def _blocks(prompt: Sequence[Any]) -> tuple[TextBlock | ImageBlock, ...]:
    """What the person said; raises an error of the protocol for what an agent cannot read."""
    blocks: list[TextBlock | ImageBlock] = []
    for part in prompt:
        if part.type == "text":
            blocks.append(TextBlock(part.text))
        elif part.type == "image":
            try:
                blocks.append(inline_image(part.mime_type, part.data))
            except ValueError as error:
                raise acp.RequestError.invalid_params({"prompt": str(error)}) from None
        elif part.type == "resource_link":
            blocks.append(TextBlock(f"[{part.name}]({part.uri})"))
        elif part.type == "resource" and isinstance(getattr(part.resource, "text", None), str):
            uri = str(part.resource.uri)
            blocks.append(TextBlock(QuoteFrame().file(uri, part.resource.text), (uri,)))
        else:
            raise acp.RequestError.invalid_params({"prompt": f"a part of type {part.type!r:.40} is not taken"})
    if not any(not isinstance(one, TextBlock) or one.text.strip() for one in blocks):
        raise acp.RequestError.invalid_params({"prompt": "the prompt is empty"})
    return tuple(blocks)
