"""What the adapters to hosted models share."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from importlib import import_module
from typing import Any

from glidepath.models.clients import Clients
from glidepath.models.exchange import Reader, answer
from glidepath.models.faults import Faults
from glidepath.spi import HostedTool, ModelRequest
from glidepath.values import Delta

_log = logging.getLogger("glidepath")


def fit_thoughts(tokens: int, cap: int | None) -> int:
    """How much a model may think where a call was made smaller: half of its cap at most, so that an answer fits."""
    return tokens if cap is None else min(tokens, max(1, cap // 2))


class VendorModel:
    """A model behind a vendor's SDK. An adapter says what to send (`_body`, `_open`) and how to read the reply."""

    max_output_tokens: int | None = None
    price: Any = None
    provider: str | None = None
    vendor: str
    host: str
    _sdk: str
    """The package of the SDK."""
    usage_is_billed: bool
    least_reasoning_tokens: int | None = None
    """The fewest tokens that it can be told to think; None: it takes no number."""
    takes_task_budget: bool = False
    """It can be shown how many tokens its run has left."""
    search_price: str | None = None
    """Dollars of a search of the web where no price list knows them."""
    session_price: str | None = None
    """Dollars of a container for programs."""

    def __init__(self, name: str, context_window: int | None, clients: Clients, faults: Faults) -> None:
        self.name = name
        self.context_window = context_window or _look_up_window(name, self.provider)
        self._clients = clients
        self._faults = faults
        self._unknown_reasons: set[str] = set()
        self._left_out: set[str] = set()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Answer one request."""
        body = self._body(request)

        async def open_stream() -> Any:
            client = await self._clients.get()
            # Only connecting gets a time limit: the run keeps all others, because it sees more.
            timeout = import_module(self._sdk).Timeout(None, connect=request.connect_timeout)
            return self._open(client, body, stream=True, timeout=timeout)

        return answer(open_stream, self._reader(request))

    def explain_no_hosted(self, _tool: HostedTool, _others: Sequence[object], /) -> str | None:
        """Why it cannot offer a tool of its provider beside these other tools; None if it can."""
        return "this endpoint has no tools of its own"

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        await self._clients.aclose()

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        raise NotImplementedError

    def _open(self, client: Any, body: dict[str, Any], **how: object) -> Any:
        """Send the request in `extra_body`: the SDK would walk through every typed field of a long history."""
        raise NotImplementedError

    def _reader(self, request: ModelRequest) -> Reader:
        raise NotImplementedError

    def _leave_out(self, what: str) -> None:
        """Log once that requests go out without something, because the vendor would refuse it."""
        if what not in self._left_out:
            self._left_out.add(what)
            _log.warning("%r %s", self, what)


def _look_up_window(name: str, provider: str | None) -> int | None:
    """The context window of a model in tokens, from the genai-prices data; None if it is unknown."""
    if provider is None:
        return None
    try:
        from genai_prices.data_snapshot import get_snapshot

        _, model = get_snapshot().find_provider_model(name, None, provider, None)
    except (ImportError, LookupError):
        return None
    window = model.context_window
    return window if type(window) is int and window > 0 else None
