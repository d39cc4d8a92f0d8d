"""The agent's side of a server: its tools, and what the server asks during a call."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from glidepath.mcp.artifacts import Artifacts
from glidepath.mcp.elicitation import Question, combine_questions, question_of
from glidepath.mcp.found_tool import Found, make_tools, require_approval
from glidepath.mcp.mcp_server import OfferedTools, ServerLink
from glidepath.mcp.pins import Verdicts, judge_pins, lock_path
from glidepath.mcp.resource_tools import resource_tools
from glidepath.mcp.server_calls import ServerCall, call_tool
from glidepath.mcp.server_owner import Listing, ServerAsked, ServerOwner
from glidepath.tools import NeedsInput, SourceError, Tool, ToolContext, ToolResult, ToolSupply
from glidepath.tools.sources import SuppliedRun
from glidepath.values import ToolsChanged

if TYPE_CHECKING:
    from mcp.types import CreateMessageRequestParams, ElicitRequestParams

__all__ = ["McpToolSource"]

_log = logging.getLogger("glidepath")


class McpToolSource(ToolSupply, ServerAsked):
    """One server in one loop. Its tools are ordinary tools; calls go through its owner."""

    def __init__(self, link: ServerLink) -> None:
        self.link = link
        self.artifacts = Artifacts(link.artifacts, link.name)
        self.calls: dict[str, ServerCall] = {}
        self.held: dict[str, ServerCall] = {}
        self._owner: ServerOwner | None = None
        self._runs: list[SuppliedRun] = []
        self._found: dict[str, Found] = {}
        self._known: dict[tuple[str, str], Found] = {}
        self._tools = OfferedTools()
        self._resource_tools: tuple[Tool, ...] = ()
        self._told: list[tuple[Any, ...]] = []  # what a run that begins has to be told
        self._one_at_a_time = asyncio.Lock()
        self.sampled: dict[str, Any] = {}

    @property
    def owner(self) -> ServerOwner:
        """The task that holds the connection."""
        if self._owner is None:
            self._owner = ServerOwner(self.link, self, self._take_listing)
        return self._owner

    # --- as a supply of tools ---------------------------------------------------------------------------------

    async def tools(self) -> Sequence[Tool]:
        """The server's tools, once it is connected; raises `SourceError`."""
        await self.owner.await_listing()
        return self._tools

    def attach(self, run: SuppliedRun) -> None:
        """A run begins: it is told what is different from what was pinned."""
        self._runs.append(run)
        for fields in self._told:
            run.emit(ToolsChanged, *fields)

    def detach(self, run: SuppliedRun) -> None:
        """It has ended."""
        self._runs = [other for other in self._runs if other is not run]
        self.sampled.pop(getattr(run, "run_id", ""), None)

    async def close(self) -> None:
        """End the server and whatever it holds."""
        self.held.clear()
        if self._owner is not None:
            await self._owner.close()

    def _take_listing(self, listing: Listing) -> None:
        """The server has said which tools it has, for the first time or once more."""
        found, problems = make_tools(self, listing)
        for problem in problems:
            _log.warning("%s", problem)
        verdicts = judge_pins(self.link, {one.wire_name: one.definition for one in found.values()})
        before, self._found = self._found, {}
        for name, one in found.items():
            kept = self._known.setdefault((name, one.digest), one)  # the same object, when it is as it was
            kept.withdrawn = None
            reason = verdicts.reasons.get(kept.wire_name)
            if reason is not None and verdicts.effect == "blocked":
                kept.withdrawn = f"{reason}; approve it with `glidepath mcp approve {self.link.name}`"
            elif reason is not None and verdicts.effect == "ask":
                kept.tool = require_approval(kept.tool, f"MCP server {self.link.name!r}: {kept.wire_name}: {reason}")
            self._found[name] = kept
        if listing.resources and self.link.resources and not self._resource_tools:
            self._resource_tools = resource_tools(self)
        named = {one.tool.name for one in self._found.values()}
        more = [tool for tool in self._resource_tools if tool.name not in named] if listing.resources else []
        self._tools = OfferedTools([*[one.tool for one in self._found.values() if one.withdrawn is None], *more])
        self._tools.withheld = frozenset(verdicts.removed) | {
            name for name, one in self._found.items() if one.withdrawn is not None
        }
        self._report_pin_changes(verdicts)
        if before:
            self._withdraw(before)

    def _report_pin_changes(self, verdicts: Verdicts) -> None:
        """Every run that begins is told what changed."""
        self._told = []
        if verdicts.differs:
            effect, parts = verdicts.effect, (verdicts.added, verdicts.changed, verdicts.removed)
            why = f"not what was pinned in {lock_path(self.link)}"
            self._told.append((self.link.name, *parts, effect, why))
            _log.warning(
                "MCP server %r: %s: new %s, changed %s, gone %s (%s)",
                self.link.name,
                why,
                *map(_join_names, parts),
                effect,
            )

    def _withdraw(self, before: Mapping[str, Found]) -> None:
        """The list is here again: runs may no longer call tools that changed or are gone."""
        changed: list[str] = []
        removed: list[str] = []
        for name, old in before.items():
            new = self._found.get(name)
            if new is old:
                continue
            (changed if new is not None else removed).append(name)
            old.withdrawn = (
                "the server does not offer it any more"
                if new is None
                else "the server changed its definition during the run; a new run sees the new one"
            )
        added = [name for name in self._found if name not in before]
        if changed or removed or added:
            fields = (
                self.link.name,
                tuple(added),
                tuple(changed),
                tuple(removed),
                "withdrawn",
                "the server's list changed",
            )
            for run in self._runs:
                _report_outside_task(run, *fields)
        if added and self.on_growth is not None:
            self.on_growth()

    def distrust(self, why: str) -> None:
        """Its tools have changed, and cannot be read: none may be called until they can."""
        for one in self._found.values():
            one.withdrawn = f"the server changed its tools, and the new list cannot be trusted: {why}"
        fields = (self.link.name, (), (), tuple(self._found), "withdrawn", why)
        for run in self._runs:
            _report_outside_task(run, *fields)

    def definitions(self) -> dict[str, Any]:
        """What the server says about each of its tools, by the server's names."""
        return {one.wire_name: one.definition for one in self._found.values()}

    def pins(self) -> Mapping[str, str]:
        """The digest of every tool it has offered, by name."""
        return {name: one.digest for name, one in self._found.items() if one.withdrawn is None}

    # --- calls ------------------------------------------------------------------------------------------------

    async def call(self, found: Found, values: Mapping[str, Any], context: ToolContext | None) -> ToolResult:
        """One call of one of its tools."""
        if found.withdrawn is not None:
            why = f"{found.tool.name} of MCP server {self.link.name!r} is withdrawn: {found.withdrawn}"
            return ToolResult(why, is_error=True, kind="withdrawn")
        return await call_tool(self, found.wire_name, values, context, idempotent=found.tool.idempotent)

    @asynccontextmanager
    async def take_turn(self, call: ServerCall) -> AsyncIterator[None]:
        """While a server of the older protocol may ask back, one call at a time: a question names no call."""
        listing = await self.owner.await_listing()
        if listing.modern or (self.link.sampling is None and not self.link.elicitation):
            yield
            return
        self.held = {key: one for key, one in self.held.items() if one.request is not None and not one.request.done()}
        if self.held:
            raise SourceError(f"MCP server {self.link.name!r} is waiting for a person's answer to an earlier call")
        async with self._one_at_a_time:
            self.calls[call.key] = call
            try:
                yield
            finally:
                self.calls.pop(call.key, None)
                call.end()

    # --- what a server of the older protocol asks -------------------------------------------------------------

    def _find_asking_call(self) -> ServerCall | None:
        return next(iter(self.calls.values()), None)

    async def sample(self, params: CreateMessageRequestParams, call: ServerCall | None = None) -> Any:
        """A model's reply for the server, charged to the run whose call is in flight."""
        from mcp.types import ErrorData

        from glidepath.mcp.sampling import answer_sampling

        call = call or self._find_asking_call()
        if call is None or call.run is None or self.link.sampling is None:
            return ErrorData(code=-32603, message="this server has no running call that could be charged")
        if call.idle is not None:
            call.idle.renew()
        return await answer_sampling(self, call, params)

    async def elicit(self, params: ElicitRequestParams) -> Any:
        """A person's answer for the server: the run pauses, and the call is held open until then."""
        from mcp.types import ElicitResult

        call = self._find_asking_call()
        question = question_of(params)
        if call is None:
            return ElicitResult(action="cancel")
        if not isinstance(question, Question):
            self.report_refused_question(call, question)
            return ElicitResult(action="decline")
        if not self.kept or not call.key:
            self.report_refused_question(
                call, "nobody can answer after the run has ended; run inside `async with agent:`"
            )
            return ElicitResult(action="cancel")
        reason, form = combine_questions(self.link.name, call.name, {"": question})
        call.answer = asyncio.get_running_loop().create_future()
        call.kind, call.form = "url" if question.url else "form", question.form
        self.held[call.key] = call
        call.interrupt(NeedsInput(reason, form=form, state='{"held":true}'))
        return await call.answer

    def report_refused_question(self, call: ServerCall, why: str) -> None:
        """A question was not asked: the run's events say so."""
        _log.warning("MCP server %r: the question of %s was declined: %s", self.link.name, call.name, why)
        if call.context is not None:
            call.context.report({"declined": why})


def _join_names(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


def _report_outside_task(run: SuppliedRun, *fields: object) -> None:
    """Report it outside the run's own task, and wake the listeners."""
    run.emit(ToolsChanged, *fields)
    consumer = getattr(getattr(run, "watch", None), "consumer", None)
    if consumer is not None:
        consumer.wake_consumer()
