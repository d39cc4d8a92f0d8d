"""The model port: what the runtime asks of a model, and what counts its tokens."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from glidepath._wire import Value
from glidepath.values import UNPROVEN, Delta, Message, experimental

if TYPE_CHECKING:
    from glidepath.spi.hosted import HostedTool


REASONING = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""How hard a model may be asked to think, from not at all to as hard as it can."""


class ToolSpec(Value, frozen=True, gc=False, omit_defaults=True):
    """A tool as the model sees it: `parameters` is a JSON Schema of an object.

    `strict` says whether to hold the model to that schema; None leaves it to `ModelRequest.strict_tools`.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    strict: bool | None = None


class ModelRequest(Value, frozen=True, gc=False, kw_only=True):
    """One call of a model. `messages` is the live transcript or a view of it: read it, do not keep or change it.

    `tools` may be called now: gates, guards and the landing narrow it. `defined_tools` are the definitions that every
    request of a run repeats, in one order, so that the provider's prompt cache stays valid; an adapter sends
    those and takes `tools` where there are none.
    """

    system_prompt: str = ""
    messages: Sequence[Message] = ()
    tools: tuple[ToolSpec, ...] = ()
    defined_tools: tuple[ToolSpec, ...] = ()
    tool_choice: str = "auto"
    max_output_tokens: int | None = None
    temperature: float | None = None
    reasoning: str | None = None
    strict_tools: bool = False
    stop_sequences: tuple[str, ...] = ()
    seed: int | None = None
    logprobs: int | None = None
    """How many alternatives to name beside each token of the reply; None asks for no probabilities."""
    extras: Mapping[str, Any] | None = None
    output_schema: Mapping[str, Any] | None = None
    connect_timeout: float | None = None
    """Seconds that opening a new connection may take; after that, a `TransientError`."""
    user: str | None = None
    """Who the run is for; sent where the provider has a field for it."""
    metadata: Mapping[str, str] | None = None
    """What the application says about the run; sent where the provider has a field for it."""
    hosted_tools: tuple[HostedTool, ...] = ()
    """Tools of the provider that may be used now."""
    defined_hosted_tools: tuple[HostedTool, ...] = ()
    """All of them, which every request of a run repeats."""
    reasoning_tokens: int | None = None
    """How many tokens the model may think, where it takes a number."""
    task_budget: tuple[int, int | None] | None = None
    """Tokens the model is told that it has for the whole run, and how many of them are left where the beginning of
    the run is no longer sent; None tells it nothing."""


@experimental(reason=UNPROVEN)
@runtime_checkable
class Model(Protocol):
    """A model that streams its reply.

    Contract: `stream` yields deltas and, last, one `StreamEnd`; it raises only `ModelError` kinds; it holds no
    state between calls that a second call could see; closing the iterator stops the request. A stream that ends
    without `StreamEnd` counts as a dropped connection and is tried again. Anything else it raises is treated as a
    `TransientError`.

    Optional attributes, looked up by name: `price` as (input, output) in dollars per million tokens,
    `max_output_tokens`, `context_window`, and `count_tokens(request) -> int`, which may be async.
    `explain_no_hosted(tool, tools)` says why it cannot offer a hosted tool beside these tools, or None; without it a
    model offers none. `takes_task_budget` is True when it shows its model `ModelRequest.task_budget`;
    `least_reasoning_tokens` is the least of `ModelRequest.reasoning_tokens`, None where it takes none.
    `usage_is_billed`
    is True when the usage it reports is what is paid for: then the share it says came from a cache is believed, too. Of
    any other model only what was sent before can have been cached: see `glidepath.kernel.model_call.settlement`.
    """

    name: str

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Answer one request."""


def provider_of(model: object) -> str | None:
    """The provider that this model names, if it names one."""
    provider = getattr(model, "provider", None)
    return provider if isinstance(provider, str) and provider else None


@experimental(reason=UNPROVEN)
@runtime_checkable
class TokenEstimator(Protocol):
    """Counts tokens before a call.

    Contract: never less than what the model will count, for the content it is made for; pure; fast. If it crashes, the
    built-in estimator is used for that text.
    """

    def estimate(self, text: str) -> int:
        """Tokens of a text, erring on the high side."""
