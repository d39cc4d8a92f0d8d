"""Makes the SDK's client for a server: the one module that brings the SDK in, imported on a thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mcp import Client, types
from pydantic import TypeAdapter

from glidepath.mcp.http_transport import HttpTransport
from glidepath.mcp.mcp_server import ServerLink
from glidepath.mcp.stdio_transport import StdioTransport

if TYPE_CHECKING:
    from glidepath.mcp.server_owner import ServerAsked, ServerOwner

__all__ = ["CALL_RESULT", "make_client"]

CALL_RESULT: TypeAdapter[types.CallToolResult | types.InputRequiredResult] = TypeAdapter(
    types.CallToolResult | types.InputRequiredResult
)
"""What a call can be answered with. The session's own method would also check the result against the server's schema,
with a library that a hostile schema can keep busy forever."""


def make_client(link: ServerLink, owner: ServerOwner, asked: ServerAsked) -> tuple[Client, Any]:
    """A client that is not connected yet, and its transport."""
    transport: Any = HttpTransport(link) if link.url is not None else StdioTransport(link, owner.mark_lost)

    async def answering(context: object, params: types.CreateMessageRequestParams) -> Any:  # noqa: ARG001 - named by the SDK
        return await asked.sample(params)

    async def asking(context: object, params: types.ElicitRequestParams) -> Any:  # noqa: ARG001
        return await asked.elicit(params)

    async def list_roots(context: object) -> types.ListRootsResult:  # noqa: ARG001
        return types.ListRootsResult(roots=[types.Root(uri=uri) for uri in link.roots])  # type: ignore[arg-type]

    async def hear(message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            owner.relist()

    client = Client(
        transport,
        mode=link.mode,
        read_timeout_seconds=link.connect_timeout,
        sampling_callback=answering if link.sampling is not None else None,
        elicitation_callback=asking if link.elicitation else None,
        list_roots_callback=list_roots if link.roots else None,
        message_handler=hear,
        client_info=types.Implementation(name="glidepath", version=_version()),
        cache=None,
    )
    return client, transport


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("glidepath")
    except PackageNotFoundError:
        return "0"
