"""Names that people coming from other frameworks look for, and what they are called here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from glidepath.values.errors import close_to

__all__ = ["OF_AGENTS", "OF_RESULTS", "OF_STORES", "list_for_people", "make_attribute_error"]

OF_AGENTS = {
    **dict.fromkeys(
        ("invoke", "chat", "ask", "kickoff", "execute", "call"), "agent.run_sync(prompt), or await agent.run(prompt)"
    ),
    **dict.fromkeys(("ainvoke", "arun", "run_async", "akickoff"), "await agent.run(prompt)"),
    **dict.fromkeys(("run_stream", "run_streamed", "astream", "iter"), "async with agent.stream(prompt) as stream"),
}
OF_STORES = ("annotate", "close", "entries", "find", "fork", "load", "remove", "remove_many", "rewind", "wallets")
"""What people use of a store; the rest is for the runtime, and for those who write a store."""
OF_RESULTS = {
    **dict.fromkeys(("answer", "content", "output_text"), "text"),
    **dict.fromkeys(("all_messages", "history"), "messages"),
    **dict.fromkeys(("error", "exception"), "cause"),
    "data": "output",
    "final_output": "text, or output with an output_type",
    "status": "outcome",
    "success": "ok",
    "tokens": "usage.total",
    "turns": "iterations",
}


def list_for_people(owner: object, names: Iterable[str]) -> list[str]:
    """What `dir` and completion show of an object: these of its names, and Python's own."""
    return sorted({*names, *[name for name in object.__dir__(owner) if name.startswith("__")]})


def make_attribute_error(owner: type, name: str, elsewhere: Mapping[str, str], known: Iterable[str]) -> AttributeError:
    """The error for an attribute that is not there, with the one that was probably meant."""
    meant = elsewhere.get(name) or (None if name.startswith("_") else close_to(name, known))
    hint = f"; use {meant}" if meant else ""
    return AttributeError(f"{owner.__name__!r} object has no attribute {name!r}{hint}")
