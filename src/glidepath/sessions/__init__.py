"""Sessions: a conversation that outlives its runs, and the stores that keep it."""

from typing import TYPE_CHECKING, Any

from glidepath.sessions.session import Session

if TYPE_CHECKING:
    from glidepath.sessions.memory import MemoryStore
    from glidepath.sessions.postgres import PostgresStore
    from glidepath.sessions.redaction import RedactingStore
    from glidepath.sessions.sqlite import SqliteStore

__all__ = ["MemoryStore", "PostgresStore", "RedactingStore", "Session", "SqliteStore"]

_HOMES = {
    "MemoryStore": "memory",
    "PostgresStore": "postgres",
    "RedactingStore": "redaction",
    "SqliteStore": "sqlite",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _HOMES:
        return getattr(import_module(f"glidepath.sessions.{_HOMES[name]}"), name)
    if name == "SegmentStore":
        raise _make_removed_error("there is no SegmentStore any more: use SqliteStore(path), with the path of a file")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _make_removed_error(advice: str) -> Exception:
    """What a name that is gone raises. `hasattr` needs an AttributeError, whose words an import would swallow."""
    import sys
    from opcode import opmap

    caller = sys._getframe(2)  # noqa: SLF001 - documented
    importing = caller.f_code.co_code[caller.f_lasti] == opmap["IMPORT_FROM"]
    return ImportError(advice, name=__name__) if importing else AttributeError(advice)
