"""A server for agents: start, watch and steer runs over HTTP, and the flight deck in a browser."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from glidepath.values import ConfigurationError, install_line

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from glidepath.agent import Agent
    from glidepath.apps.server.locks import KeyRing
    from glidepath.spi import SessionStore

__all__ = ["app"]


def app(
    agents: Mapping[str, Agent[Any]] | Sequence[Agent[Any]] | Agent[Any] = (),
    *,
    store: SessionStore | None = None,
    token: str | Mapping[str, str] | None = None,
    keys: KeyRing | None = None,
    **options: Any,
) -> Starlette:
    """An ASGI application that serves these agents; mount it in your own, or pass it to uvicorn.

    `token` is one secret that may do everything, or a mapping of secrets to roles: `"view"`, `"run"`, `"approve"` or
    `"control"`, with a name that is journaled with every action and a tenant if you like (`"run:webchat@acme"`).
    Without one, a random token is made: `application.state.token`. `keys` are the named keys, by default those that
    `glidepath keys` keeps beside the store. The options are the fields of
    `glidepath.apps.server.application.ServeOptions`.
    """
    try:
        import starlette
    except ImportError:
        raise ConfigurationError(f"the server needs starlette: {install_line('serve')}") from None
    assert starlette  # noqa: S101 - only looked for
    from glidepath.apps.server.application import make_application

    return make_application(agents, store=store, token=token, keys=keys, **options)
