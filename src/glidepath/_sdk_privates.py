"""The private parts of other people's SDKs that glidepath needs, each with its reason. No other module looks at any.

None of these SDKs has a public way to do it. Another version may rename a part: each function says what happens then,
and `tests/test_sdk_privates.py` fails on the version that does. SDKs are imported when they are in use, never before.
"""
# ruff: noqa: SLF001 - that is what this module is for

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from importlib import import_module
from operator import attrgetter
from time import sleep
from typing import Any, NamedTuple, TypeVar

C = TypeVar("C")

# --- model providers ------------------------------------------------------------------------------------------


def set_platform_header(client: C, sdk: str) -> C:
    """A client of OpenAI's or Anthropic's SDK with its platform header set.

    The SDK would start a thread to find the platform, and leave that running. Without these parts it does so.
    """
    get_platform = getattr(import_module(f"{sdk}._base_client"), "get_platform", None)
    if get_platform is not None and getattr(client, "_platform", False) is None:
        client._platform = get_platform()  # type: ignore[attr-defined]
    return client


class GoogleConnection(NamedTuple):
    """What a Google client has found out about its connection."""

    key: str | None = None
    address: str = ""
    vertex: bool = False


def google_connection(client: object) -> GoogleConnection:
    """The key that a `google.genai.Client` took from the environment, its address, and whether that is Vertex AI's.

    The key must not appear in an error, and the address decides whose prices hold. Without these parts we know neither:
    no price list applies, and a key from the environment is not struck out of errors.
    """
    inside = getattr(client, "_api_client", None)
    address = getattr(getattr(inside, "_http_options", None), "base_url", None)
    return GoogleConnection(
        getattr(inside, "api_key", None), str(address or ""), bool(getattr(inside, "vertexai", False))
    )


# --- DBOS -----------------------------------------------------------------------------------------------------


def dbos_instance() -> Any:
    """The one DBOS of this process. None if there is none, or if DBOS keeps it elsewhere: it has no way to ask."""
    return getattr(import_module("dbos._dbos"), "_dbos_global_instance", None)


def is_launched(instance: object) -> bool:
    """Whether DBOS runs: one that does not has no runs to put back. Without this part, one that exists does."""
    return instance is not None and bool(getattr(instance, "_launched", True))


def stop_events(instance: object) -> list[threading.Event]:
    """What stops the threads of DBOS, and what they wait for between two polls. None found, and DBOS keeps its pace."""
    events = [*getattr(instance, "background_thread_stop_events", ())]
    return [event for event in (*events, getattr(instance, "_workflow_timeout_stop_event", None)) if event is not None]


# --- OpenTelemetry --------------------------------------------------------------------------------------------

SPAN_PARTS = frozenset(
    {
        "_attributes", "_context", "_end_time", "_events", "_instrumentation_info", "_instrumentation_scope", "_kind",
        "_limits", "_links", "_lock", "_name", "_parent", "_record_end_metrics", "_record_exception", "_resource",
        "_sampler", "_set_status_on_exception", "_span_processor", "_start_time", "_status", "_trace_config",
    }
)  # fmt: skip
"""What a span of the SDK has. `LightSpan` has the same without the SDK's constructor, which costs as much as a turn; a
span that has more, or less, is of another version, and then the SDK makes the spans."""
SHARED_PARTS = ("_resource", "_instrumentation_scope", "_instrumentation_info", "_limits", "_span_processor")
"""Those of them that all spans of a provider share."""

span_limits: Callable[[object], Any] = attrgetter("_span_limits")
"""A provider's limits for spans: a light span must not need any of them."""
span_processor: Callable[[object], Any] = attrgetter("_active_span_processor")
"""The processor behind a provider: light spans are handed to it when they end."""
processors_of: Callable[[object], Any] = attrgetter("_span_processors")
"""The processors behind that one: only known kinds do nothing with a span before it ends."""
below_sampled: Callable[[object], Any] = attrgetter("_local_parent_sampled")
"""What a sampler asks about spans below a sampled one."""


def counts_spans(span: Any) -> bool:
    """Whether the SDK counts its spans: it would have to count a light one, too."""
    return getattr(span._record_end_metrics, "__name__", "") != "noop"


def queue_of(processor: Any) -> Callable[[Any], None]:
    """Hand spans to a batch processor as its `emit` does, and give way to its thread when a batch is full.

    Two threads that both want to run cost more than what they do: without giving way, the exporting thread takes the
    interpreter from the run in the middle of a turn, and both wait for each other for milliseconds.
    """
    batch = processor._batch_processor
    queue, emit = batch._queue, batch.emit
    put, nearly_full = queue.appendleft, batch._max_export_batch_size - 1
    if not isinstance(batch._worker_awaken, threading.Event):
        raise TypeError("the batch processor is of another version")

    def hand_over(span: Any) -> None:
        if len(queue) < nearly_full and not batch._shutdown:
            put(span)
            return
        asleep = not batch._worker_awaken.is_set()  # after a fork it is another one
        emit(span)
        if asleep:
            sleep(0)

    return hand_over


def context_variable() -> ContextVar[Any] | None:
    """The variable in which the API keeps the current context; None where it keeps it elsewhere.

    Setting it directly saves two calls for each span that becomes the current one, which is four times a turn.
    """
    runtime = getattr(import_module("opentelemetry.context"), "_RUNTIME_CONTEXT", None)
    variable = getattr(runtime, "_current_context", None)
    known = type(runtime).__name__ == "ContextVarsRuntimeContext" and isinstance(variable, ContextVar)
    return variable if known else None


# --- Textual --------------------------------------------------------------------------------------------------


def learn_alt_enter() -> None:
    """Have Alt-Enter come as Ctrl-J, which begins another line. Without these parts it comes as Enter."""
    with suppress(ImportError, AttributeError):
        known = import_module("textual._ansi_sequences").ANSI_SEQUENCES_KEYS
        known["\x1b\r"] = (import_module("textual.keys").Keys.ControlJ,)


# --- benchmarks -----------------------------------------------------------------------------------------------


def load_scenario(instance: object, scenario: dict[str, Any], *, long_context: bool) -> None:
    """Put an object of BFCL into the state in which a conversation begins.

    Without this part the object stays empty, and BFCL's checker, which uses it too, says that the states differ.
    """
    load = getattr(instance, "_load_scenario", None)
    if load is not None:
        load(scenario, long_context=long_context)
