"""SDK clients: one per event loop, made when first needed, closed when the loop shuts down."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from types import ModuleType
from typing import Any


def sdk_options(sdk: ModuleType, headers: Mapping[str, str] | None) -> dict[str, Any]:
    """What every client of OpenAI's and Anthropic's SDK is made with."""
    return {
        "default_headers": headers,
        "max_retries": 0,  # the runtime retries: it knows the budget and the deadline
        "timeout": None,
        "http_client": sdk.DefaultAsyncHttpxClient(timeout=None),  # the only time limit is the run's own
    }


class Clients:
    """The clients of one model object: a connection belongs to the event loop that opened it.

    A client is closed when its loop shuts its asynchronous generators down, as `asyncio.run` does. Until then its
    connections are kept for the next call. One that is not `ours` is left open: the application closes it.
    """

    __slots__ = ("_live", "_make", "_ours", "_spare")

    def __init__(self, make: Callable[[], Any], *, ours: bool = True) -> None:
        self._make = make
        self._ours = ours
        self._spare: list[Any] = [make()]  # made at construction, so that a missing key shows before the first call
        self._live: dict[asyncio.AbstractEventLoop, tuple[Any, Any]] = {}

    @classmethod
    def of(cls, client: Any) -> Clients:
        """An application's own client, without the SDK's retries."""
        calm = client.with_options(max_retries=0)
        return cls(lambda: calm, ours=False)

    def peek(self) -> Any:
        """The first client, to inspect before any call."""
        return self._spare[0]

    async def get(self) -> Any:
        """The client of the running loop."""
        loop = asyncio.get_running_loop()
        found = self._live.get(loop)
        if found is not None:
            return found[0]
        for gone in [known for known in list(self._live) if known.is_closed()]:
            self._live.pop(gone, None)
        client = self._spare.pop() if self._spare else self._make()
        keeper = self._keep(loop, client)
        self._live[loop] = client, keeper
        await anext(keeper)
        return client

    async def _keep(self, loop: asyncio.AbstractEventLoop, client: Any) -> AsyncIterator[None]:
        """Wait, without a task, for the loop to end: it closes every generator that was started and not finished."""
        try:
            yield
        finally:
            self._live.pop(loop, None)
            if self._ours:
                await client.close()

    async def aclose(self) -> None:
        """Close the client of the running loop now."""
        found = self._live.get(asyncio.get_running_loop())
        if found is not None:
            await found[1].aclose()
