"""What a request changes about an agent, for the run that it starts or continues."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from glidepath._wire import Value, replace
from glidepath.agent import Agent, share_sources
from glidepath.apps.server.refusals import HttpError
from glidepath.mcp import make_schema_type
from glidepath.spi import ResourceContext
from glidepath.tools import Tool
from glidepath.values import AssistantMessage, ConfigurationError, ResourceValidation, pluralize

__all__ = ["NO_CHANGES", "RequestChanges", "add_instructions", "model_names"]


class RequestChanges(Value, frozen=True, kw_only=True):
    """Tools of the client, the JSON Schema of the answer, and how much the model may write."""

    tools: tuple[Tool, ...] = ()
    schema: Mapping[str, Any] | None = None
    max_output_tokens: int | None = None

    def apply(self, agent: Agent[Any]) -> Agent[Any]:
        """The agent with these changes; raises `HttpError` for those it does not take."""
        config = agent.config
        changes: dict[str, Any] = {}
        if self.tools:
            changes["tools"] = (*config.tools, *self.tools)
        if self.schema is not None:
            if config.output_type is not None:
                raise HttpError(400, "response_format", _OWN_TYPE, param="response_format")
            changes["output_type"] = make_schema_type(self.schema)
        if self.max_output_tokens is not None:
            most = min(self.max_output_tokens, config.max_output_tokens or self.max_output_tokens)
            whole = replace(config.guardrails, max_tokens_recoveries=0)  # an answer that is cut there stays cut
            changes |= {"max_output_tokens": most, "max_output_tokens_recovery": None, "guardrails": whole}
            changes["constraints"] = (*config.constraints, _limit_output(most))
        if not changes:
            return agent
        try:
            changed: Agent[Any] = Agent(replace(config, **changes))
            share_sources(changed, agent)
            return changed
        except ConfigurationError as error:
            raise HttpError(400, "refused", f"this agent does not take the request: {error}") from None


NO_CHANGES = RequestChanges()
_OWN_TYPE = "this agent has its own output type: leave the format of the answer out"


def _limit_output(most: int) -> Callable[[ResourceContext], ResourceValidation | None]:
    """A constraint: once the model has written this many tokens in the run, it lands."""

    def max_output_tokens(context: ResourceContext) -> ResourceValidation | None:
        own = [one for one in context.messages[context.first_new :] if isinstance(one, AssistantMessage)]
        written = sum([0 if one.usage is None else one.usage.output for one in own])
        if written < most:
            return None
        return ResourceValidation.violation(f"the request's limit of {pluralize(most, 'output token')} is reached")

    return max_output_tokens


def model_names(agent: Agent[Any]) -> tuple[str, ...]:
    """The names of the models that an agent may call."""
    every: list[Any] = [agent.config.model, *agent.config.fallback_models]
    return tuple(one if isinstance(one, str) else str(getattr(one, "name", type(one).__name__)) for one in every)


def add_instructions(prompt: Any, instructions: str) -> Any:
    """The system prompt of an agent with what a client adds to it; also where a function writes it."""
    if isinstance(prompt, str):
        return "\n\n".join(part for part in (prompt, instructions) if part)

    async def write(context: Any) -> str:
        text = prompt(context)
        return f"{await text if hasattr(text, '__await__') else text}\n\n{instructions}"

    return write
