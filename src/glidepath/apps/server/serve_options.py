"""How a server behaves: its settings, and what they may be."""

from __future__ import annotations

from collections.abc import Sequence

from glidepath._wire import Settings
from glidepath.apps.server.gatekeeper import BODY_SECONDS, MAX_BODY
from glidepath.apps.server.webhooks import Webhook
from glidepath.values import ConfigurationError

__all__ = ["ServeOptions"]

_DISCONNECTS = ("land", "continue", "stop")


class ServeOptions(Settings, frozen=True, kw_only=True):
    """How a server behaves.

    `max_runs` run at once, more are refused with 429. `on_disconnect` is what happens to a run without a store when
    its last reader has gone for `disconnect_grace` seconds: `land` or `continue`. With `stop`, a client of the OpenAI
    or AG-UI doors that leaves stops its run, with a store as well. `allowed_hosts` are host names beside
    localhost that requests may use, `allow_origins` the origins whose pages may call. `prefix` is the path under which
    a proxy shows the server. A body has at most `max_body` bytes, and `body_seconds` to arrive. `resume_lost` resumes,
    at the start, the runs that a dead server has left behind. Events of runs that wrote none for `keep_events` days are
    forgotten at the start; the journals stay. Without `metrics` runs are not measured for /metrics. `mcp_name` is what
    MCP clients call the server. `trace_url` is where a trace is shown, with `{trace_id}` in it: the deck links to it.
    `webhooks` are told when a run waits, fails or comes near a limit.
    """

    max_runs: int = 100
    on_disconnect: str = "land"
    disconnect_grace: float = 3.0
    allowed_hosts: Sequence[str] = ()
    allow_origins: Sequence[str] = ()
    prefix: str = ""
    max_body: int = MAX_BODY
    body_seconds: float = BODY_SECONDS
    resume_lost: bool = False
    keep_events: float = 30.0
    metrics: bool = True
    demo: bool = False
    mcp_name: str = "glidepath"
    trace_url: str = ""
    webhooks: Sequence[Webhook] = ()

    def __post_init__(self) -> None:
        if self.on_disconnect not in _DISCONNECTS:
            raise ConfigurationError(f"on_disconnect must be land, continue or stop, not {self.on_disconnect!r:.80}")
        for name in ("max_runs", "max_body"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ConfigurationError(f"{name} must be a whole number from 1, not {value!r:.80}")
        if self.trace_url and (
            not self.trace_url.startswith(("https://", "http://")) or "{trace_id}" not in self.trace_url
        ):
            raise ConfigurationError(
                "trace_url must be an http or https address with {trace_id} in it, such as "
                f"http://127.0.0.1:6006/traces/{{trace_id}}: {self.trace_url!r:.200}"
            )
        if self.prefix and (not self.prefix.startswith("/") or self.prefix.endswith("/")):
            raise ConfigurationError(
                f"prefix must begin with / and not end with it, such as /deck: {self.prefix!r:.80}"
            )

    @classmethod
    def no_such_setting(cls, name: str) -> ConfigurationError:
        """The error for an unknown option."""
        return ConfigurationError(f"serve has no option {name!r}; there are {', '.join(cls.__struct_fields__)}")
