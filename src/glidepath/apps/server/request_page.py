"""The exact request of a model call, from what was kept of it; without that, put together from what is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from glidepath import _wire
from glidepath.agent import Agent, delegate_of
from glidepath.apps.server.locks import Visitor
from glidepath.apps.server.refusals import HttpError
from glidepath.apps.server.request_book import CallLine, HeadLine, ToolShape, book_name
from glidepath.apps.server.shapes import RequestShape, Span
from glidepath.apps.server.transcript_page import page_of_messages
from glidepath.sessions import message_of

if TYPE_CHECKING:
    from glidepath.apps.server.store_reader import FoundRun, StoreReader

__all__ = ["RequestReader"]

_PAGE = 2_000
_MADE = (
    "This request was not kept: it is put together from the transcript and from the agent as it is now. What a plugin "
    "or a shortened context changed is not in it."
)
_NO_AGENT = "Its system prompt and tools are not known here: this server does not have its agent."
_REWRITTEN = "The program has changed its history since: these are its messages as they are now."
_LEFT_OUT = "Some of its messages were made by a plugin and are too long to be kept: they are missing here."


class RequestReader:
    """Answers what a model was asked."""

    def __init__(self, reader: StoreReader) -> None:
        self._reader = reader

    async def read(self, name: str, who: Visitor, at: float) -> RequestShape:
        """The request of the call that began at this time; raises `HttpError`."""
        found = await self._reader.find(name, who)
        span = await self._reader.find_call(found, at)
        if span is None:
            raise HttpError(404, "unknown_call", f"no model call of this run began at {at}; see its timeline")
        messages = await self._reader.transcript(found)
        call, head = await self._find_lines(found.run_id, at)
        if call is None or head is None:
            return self._put_together(found, span, messages)
        sent: Sequence[Any] = messages[: call.count]
        note = _REWRITTEN if len(messages) < call.count else ""
        if call.view is not None:
            sent = [one for part in call.view if (one := _find_message(part, messages)) is not None]
            note = _LEFT_OUT if call.left_out else note
        parameters = dict(head.parameters)
        if call.max_output_tokens is not None:
            parameters["max_output_tokens"] = call.max_output_tokens
        return RequestShape(
            model=span.name,
            system=head.system,
            tools=tuple(_wire.asdict(tool) for tool in head.tools),
            allowed=call.allowed,
            parameters=parameters,
            messages=tuple(page_of_messages(sent, 0, len(sent))),
            note=note,
        )

    async def _find_lines(self, run_id: str, at: float) -> tuple[CallLine | None, HeadLine | None]:
        """The line of a call and of what it has in common with others."""
        heads: dict[str, bytes] = {}
        after = 0
        while lines := await self._reader.hub.log.read(book_name(run_id), after, _PAGE):
            after += len(lines)
            for line in lines:
                if line.startswith(b'{"head"'):
                    told = _wire.loads(line)
                    heads[told["head"]] = line
                    continue
                call = _wire.decode(line, CallLine)
                if call.call == at:
                    head = heads.get(call.of)
                    return call, None if head is None else _wire.decode(head, HeadLine)
        return None, None

    def _put_together(self, found: FoundRun, span: Span, messages: Sequence[Any]) -> RequestShape:
        """As far as one can tell from the transcript and the agent of this name."""
        name = found.feed.card.agent if found.feed is not None else ""
        agent = next((one for one in self._list_agents() if one.config.agent_name == name), None)
        shown = page_of_messages(messages, 0, len(messages))
        sent = [one for one in shown if one.turn < max(1, span.turn)]
        if agent is None:
            return RequestShape(model=span.name, messages=tuple(sent), note=f"{_MADE} {_NO_AGENT}")
        config = agent.config
        prompt = config.system_prompt
        parameters = {"temperature": config.temperature, "reasoning": config.reasoning, "seed": config.seed}
        tools = [
            ToolShape(name=tool.name, description=tool.description, parameters=tool.parameters) for tool in config.tools
        ]
        return RequestShape(
            model=span.name,
            system=prompt if isinstance(prompt, str) else "(a function writes it when a run begins)",
            tools=tuple(_wire.asdict(tool) for tool in tools),
            parameters={key: value for key, value in parameters.items() if value is not None},
            messages=tuple(sent),
            note=_MADE,
        )

    def _list_agents(self) -> Iterator[Agent[Any]]:
        """The agents of this server, and those behind their tools."""
        left, seen = list(self._reader.hub.agents.values()), set()
        while left:
            agent = left.pop(0)
            if id(agent) in seen:
                continue
            seen.add(id(agent))
            yield agent
            left += [one for tool in agent.config.tools if (one := delegate_of(tool)[0]) is not None]


def _find_message(part: Any, messages: Sequence[Any]) -> Any:
    if isinstance(part, int):
        return messages[part] if part < len(messages) else None
    return None if part is None else message_of(_wire.encode(part))
