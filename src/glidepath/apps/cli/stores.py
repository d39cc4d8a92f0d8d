"""Finds the store for a name on the command line, and the default place for sessions."""

from __future__ import annotations

import asyncio
import os
from argparse import Namespace
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, TypeVar

from glidepath.apps.cli.cli_context import CliContext
from glidepath.apps.cli.layers import Known, LoadedSettings, gather
from glidepath.values import ConfigurationError, StoreError

if TYPE_CHECKING:
    from glidepath.agent import Agent, Budget
    from glidepath.spi import SessionStore

T = TypeVar("T")
DEFAULT_STORE = "default"
"""The name of the store in the user's data folder."""
SERVE_STORE = "serve"
"""The name of the server's own store, beside the default one: what strangers ask is not among your own chats."""
NO_STORE = "none"
"""The name that means: save nothing."""
_OURS = (DEFAULT_STORE, SERVE_STORE)  # in the user's data folder, made when they are first written to
_SQLITE, _SEGMENTS = "sqlite", "segments"


def make_store(name: str, world: CliContext) -> Any:
    """The store a name stands for: the path of a file (also as `sqlite:PATH`), a PostgreSQL address, or `default`."""
    from glidepath.sessions import PostgresStore, SqliteStore

    if name == DEFAULT_STORE:
        _note_old_segments(world)
        return SqliteStore()
    if name == SERVE_STORE:
        from glidepath.sessions import default_file

        return SqliteStore(default_file().with_name("serve.db"))
    if name.startswith(("postgresql://", "postgres://")):
        return PostgresStore(name)
    if "://" in name:
        raise ConfigurationError("store: expected the path of a file, or an address such as postgresql://host/db")
    return SqliteStore(_place(name, world.folder))


def on_store(store: SessionStore, act: Callable[[Any], Awaitable[T]]) -> T:
    """Do something with a store in its own event loop, and close the store."""

    async def whole() -> T:
        try:
            return await act(store)
        finally:
            await store.close()

    return asyncio.run(whole())


def check_store(name: str, world: CliContext, *, new: bool) -> None:
    """Raise `ConfigurationError` or `StoreError` for a store on this machine that cannot be used.

    With `new` it may not be there yet, if it can be made. A database elsewhere may come up later.
    """
    path = None if name in _OURS else store_path(name, world)
    if name not in _OURS and path is None:
        return
    from glidepath.sessions import find_sessions

    try:
        on_store(make_store(name, world), lambda store: find_sessions(store, limit=1))
    except StoreError as error:
        if error.kind != "missing" or not (new or path is None):
            raise
        if path is not None:
            _must_be_makeable(path)


def _must_be_makeable(path: Path) -> None:
    folder = next(above for above in path.parents if above.exists())
    try:
        with TemporaryFile(dir=folder):
            return
    except OSError as error:
        raise ConfigurationError(f"--store: {path} cannot be created: {error.strerror}") from None


def store_path(name: str, world: CliContext) -> Path | None:
    """The file of a store that is named by its path; None for any other."""
    if "://" in name or name in (NO_STORE, *_OURS):
        return None
    return _place(name, world.folder)


def _place(name: str, folder: Path) -> Path:
    """The file that is meant; raises `ConfigurationError` for a folder of segments."""
    kind, colon, rest = name.partition(":")
    if colon and kind in (_SQLITE, _SEGMENTS):
        if not rest.strip():
            raise ConfigurationError(f"store: {name!r:.80} names no path; write sqlite:PATH")
        if kind == _SEGMENTS:
            raise ConfigurationError(
                f"store: {name!r:.80}: there are no folders of segments any more; sessions are kept in one file, such "
                f"as {rest}.db"
            )
        return folder / Path(rest).expanduser()
    return folder / Path(name).expanduser()


def _default_has_sessions() -> bool:
    """True when the default file is there, with something in it."""
    from glidepath.sessions import default_file

    try:
        return default_file().stat().st_size > 0
    except OSError:
        return False


def _note_old_segments(world: CliContext) -> None:
    """Name an old folder of segments in the place of the default store: it is neither read nor touched."""
    from glidepath.sessions import default_file
    from glidepath.sessions.sqlite_file import is_segment_folder

    old = default_file().with_suffix("")
    if is_segment_folder(old) and not _default_has_sessions():
        world.note_once(f"{old} has sessions in a format that this version does not read; new ones are in {old}.db")


def keep_sessions(settings: LoadedSettings, world: CliContext) -> None:
    """Keep what a person runs by hand in the default store, unless another store is named or it cannot be written."""
    if settings.is_set_by_person("store"):
        if settings.get("store") == NO_STORE:
            del settings.known["store"]
        return
    why = why_not_kept()
    if why is None:
        settings.known["store"] = Known(DEFAULT_STORE, "default")
    else:
        world.note(f"this run cannot be resumed, because its session cannot be saved: {why}")


def why_not_kept() -> str | None:
    """Why the default store cannot be written; None when it can."""
    from glidepath.sessions import default_file

    try:
        file = default_file()
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if file.exists():
            with file.open("ab"):
                pass
        else:
            _must_be_writable(file.parent)
    except (ConfigurationError, OSError) as error:
        return str(error)
    return None


def _must_be_writable(folder: Path) -> None:
    import errno

    if not os.access(folder, os.W_OK | os.X_OK):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES), str(folder))


def assume_store(settings: LoadedSettings, what: str) -> str:
    """The store that is named, else the default one if there is any; raises `ConfigurationError`."""
    if settings.get("store"):
        return str(settings["store"])
    from glidepath.sessions import default_file
    from glidepath.sessions.sqlite_file import is_segment_folder

    if not _default_has_sessions():
        old = default_file().with_suffix("")
        also = f" ({old} is in a format that this version does not read)" if is_segment_folder(old) else ""
        raise ConfigurationError(
            f"{what}: nothing is saved in {default_file()} yet{also}; to look elsewhere, pass --store PATH"
        )
    settings.known["store"] = Known(DEFAULT_STORE, "default")
    return DEFAULT_STORE


async def wallet_of(settings: LoadedSettings, agent: Agent[Any]) -> Budget | None:
    """The wallet that the settings name, in the store of the agent; raises `ConfigurationError`."""
    from glidepath.agent import Budget

    name = settings.get("wallet")
    if not name:
        return None
    if agent.config.store is None:
        raise ConfigurationError(f"wallet {name!r:.80} needs a store: pass --store PATH")
    return await Budget.find(name, agent.config.store)


def open_redacted_store(named: str, hook: str | None, world: CliContext) -> Any:
    """The named store with this redaction hook, or that of the settings: for a command that has no other settings."""
    settings = gather(Namespace(redact=hook), world, only=("redact",))
    return add_redaction(make_store(named, world), settings, world)


def load_redaction_hook(hook: str | None, world: CliContext) -> Any:
    """This redaction hook, or that of the settings; None if there is none. For commands that have no other settings."""
    return _hook_of(gather(Namespace(redact=hook), world, only=("redact",)), world)


def add_redaction(store: SessionStore, settings: LoadedSettings, world: CliContext, *, reads: bool = False) -> Any:
    """The store with the redaction hook that the settings name, if any.

    Raises `ConfigurationError` when a file that is not trusted names one, unless the store is only read.
    """
    hook = _hook_of(settings, world, reads=reads)
    if hook is None:
        return store
    from glidepath.sessions import RedactingStore

    return RedactingStore(store, hook)


def _hook_of(settings: LoadedSettings, world: CliContext, *, reads: bool = False) -> Any:
    name = settings.get("redact")
    if not name and "redact" in settings.ignored and not reads:
        raise ConfigurationError(
            f"redact: {settings.ignored['redact'].origin} names a function that hides what is stored, and is not "
            "trusted, so nothing is stored: trust it with `glidepath trust`, or name the function with --redact"
        )
    if not name:
        return None
    from glidepath.apps.cli.agent_maker import find_object

    if not name.startswith("python:"):
        raise ConfigurationError(f"redact: expected python:module:function, got {name!r:.80}")
    return find_object(name, world)
