"""A system prompt that is written for each run: by a function, plain or async, within its time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from datetime import date
from typing import TYPE_CHECKING, Any

from glidepath.spi import PromptContext
from glidepath.values import ConfigurationError, PerRun, check_text, describe_error

if TYPE_CHECKING:
    from glidepath.agent.config import LoopConfig


async def write_prompt(config: LoopConfig, kept: PerRun, deps: object, session_id: str) -> str:
    """The text of the function in `system_prompt`; raises `ConfigurationError` when there is none that can be sent."""
    context = PromptContext(
        agent_name=config.agent_name,
        session_id=session_id,
        conversation_id=config.conversation_id,
        user=kept.user,
        metadata=kept.metadata,
        date=date.today(),  # noqa: DTZ011 - the day where the people are
        deps=deps,
    )
    write: Any = config.system_prompt
    name = getattr(write, "__name__", type(write).__name__)
    try:
        text = write(context)
        if hasattr(text, "__await__"):
            text = await _await_text(text, config.hook_timeout, name)
    except ConfigurationError:
        raise
    except Exception as error:
        raise ConfigurationError(f"system_prompt: {name} failed: {describe_error(error)}") from error
    check_text(f"system_prompt: what {name} returned", text)
    return str.__str__(text)


async def _await_text(text: Awaitable[Any], seconds: float, name: str) -> Any:
    """What an async function returns within its time; one that does not stop then is left behind."""
    task = asyncio.ensure_future(text)
    try:
        done, _ = await asyncio.wait([task], timeout=seconds)
    except asyncio.CancelledError:
        task.cancel()
        raise
    if not done:
        task.cancel()
        task.add_done_callback(_forget_failure)
        raise ConfigurationError(f"system_prompt: {name} returned nothing within hook_timeout={seconds} s")
    return task.result()


def _forget_failure(task: asyncio.Future[Any]) -> None:
    if not task.cancelled():
        task.exception()  # else asyncio warns that nobody has looked at it
