"""Shared by the commands that leave a note for a run."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from glidepath.cli.arguments import add_config_flags, add_setting_flags
from glidepath.cli.settings import SETTINGS

if TYPE_CHECKING:
    from glidepath.cli.world import World
    from glidepath.run import Decision


def add_note_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags for the store."""
    add_setting_flags(parser, leave_out=frozenset(setting.key for setting in SETTINGS) - {"store"})
    add_config_flags(parser)


def add_decision(parser: argparse.ArgumentParser, *, required: bool) -> None:
    """Add the arguments of a decision: the call, the verdict and a text."""
    how = None if required else "?"
    parser.add_argument("call", nargs=how, help="the id of the pending call")
    parser.add_argument("verdict", nargs=how, choices=("approve", "deny", "answer"), help="what to do with it")
    parser.add_argument("text", nargs="*", help="the reason, for deny; the result, for answer")


def decided(options: argparse.Namespace) -> dict[str, Decision]:
    """The decision in the options; empty without one."""
    from glidepath.errors import ConfigurationError
    from glidepath.run import answer, approve, deny

    if options.call is None:
        return {}
    text = " ".join(options.text)
    if options.verdict == "approve" and not text:
        return {options.call: approve()}
    if options.verdict == "deny":
        return {options.call: deny(text)}
    if options.verdict == "answer" and text:
        return {options.call: answer(text)}
    raise ConfigurationError("expected CALL approve, CALL deny [REASON], or CALL answer TEXT")


def with_store(options: argparse.Namespace, world: World, what: str, act: Callable[[Any], Awaitable[Any]]) -> None:
    """Do something with the named store, then close it."""
    from glidepath.cli.layers import gather
    from glidepath.cli.session_names import session_named
    from glidepath.cli.stores import assume_store, make_store, on_store

    store = make_store(assume_store(gather(options, world, only=("store",)), what), world)

    async def found(kept: Any) -> None:
        options.session = await session_named(kept, options.session)
        await act(kept)

    on_store(store, found)
