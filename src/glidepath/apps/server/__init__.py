"""A server for agents: start, watch and steer runs over HTTP, and the flight deck in a browser."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from glidepath._lazy import lazy_attributes
from glidepath.values import ConfigurationError, install_line

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from glidepath.agent import Agent
    from glidepath.apps.server.gate_door import MountedGate
    from glidepath.apps.server.locks import KeyRing
    from glidepath.spi import SessionStore

__all__ = ["ServeKeywords", "app"]


class ServeKeywords(TypedDict, total=False):
    """What `app` takes beside agents, store and keys: the fields of `ServeOptions`, without the server's imports."""

    max_runs: int
    on_disconnect: str
    disconnect_grace: float
    allowed_hosts: Sequence[str]
    allow_origins: Sequence[str]
    prefix: str
    max_body: int
    body_seconds: float
    resume_lost: bool
    keep_events: float
    metrics: bool
    demo: bool
    mcp_name: str
    trace_url: str
    webhooks: Sequence[Webhook]


def app(
    agents: Mapping[str, Agent[Any]] | Sequence[Agent[Any]] | Agent[Any] = (),
    *,
    store: SessionStore | None = None,
    token: str | Mapping[str, str] | None = None,
    keys: KeyRing | None = None,
    gate: MountedGate | Callable[[str], MountedGate] | None = None,
    **options: Unpack[ServeKeywords],
) -> Starlette:
    """An ASGI application that serves these agents; mount it in your own, or pass it to uvicorn.

    `token` is one secret that may do everything, or a mapping of secrets to roles: `"view"`, `"run"`, `"approve"` or
    `"control"`, with a name that is journaled with every action and a tenant if you like (`"run:webchat@acme"`).
    Without one, a random token is made: `application.state.token`. `keys` are the named keys, by default those that
    `glidepath keys` keeps beside the store. A `gate` is served below `/gate/`. The options are those of
    `ServeKeywords`; `ServeOptions` says what they mean.
    """
    try:
        import starlette
    except ImportError:
        raise ConfigurationError(f"the server needs starlette: {install_line('serve')}") from None
    assert starlette  # noqa: S101 - only looked for
    from glidepath.apps.server.application import make_application

    return make_application(agents, store=store, token=token, keys=keys, gate=gate, **options)


# What other packages use, imported when it is first asked for.
if TYPE_CHECKING:
    from glidepath.apps.server.event_log import LogHead as LogHead, log_for as log_for
    from glidepath.apps.server.listener import config_for as config_for, listen as listen
    from glidepath.apps.server.prometheus import PrometheusMeters as PrometheusMeters, metrics_plugin as metrics_plugin
    from glidepath.apps.server.protocol_acp import EditorAgent as EditorAgent
    from glidepath.apps.server.serve_options import ServeOptions as ServeOptions
    from glidepath.apps.server.webhook_post import (
        HookAddress as HookAddress,
        PostFailed as PostFailed,
        post_signed as post_signed,
        sign as sign,
    )
    from glidepath.apps.server.webhooks import Webhook as Webhook, Webhooks as Webhooks, read_webhooks as read_webhooks

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(
        __name__,
        serve_options=("ServeOptions",),
        event_log=("LogHead", "log_for"),
        listener=("config_for", "listen"),
        prometheus=("PrometheusMeters", "metrics_plugin"),
        protocol_acp=("EditorAgent",),
        webhook_post=("HookAddress", "PostFailed", "post_signed", "sign"),
        webhooks=("Webhook", "Webhooks", "read_webhooks"),
    )
