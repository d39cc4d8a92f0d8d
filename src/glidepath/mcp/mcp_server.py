"""An MCP server as a value: how to reach it, what it may do, and which of its tools an agent gets."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from glidepath._wire import Value, replace
from glidepath.tools import Sandbox, SourceError, Tool, ToolSource
from glidepath.tools.options import check_name
from glidepath.values import ConfigurationError, short_repr

if TYPE_CHECKING:
    from glidepath.mcp.mcp_tool_source import McpToolSource

PinPolicy = Literal["auto", "block", "ask", "warn", "off"]
PIN_POLICIES = ("auto", "block", "ask", "warn", "off")
MODES = ("auto", "legacy", "2026-07-28")
LONGEST_NAME = 64
FOREVER = 1e9  # seconds
LOCK = "glidepath.mcp.lock"


class Sampling(Value, frozen=True, kw_only=True):
    """What a server may ask of the run's model, in one run. Everything is charged to that run as `mcp:NAME`."""

    max_calls: int = 10
    max_tokens: int = 20_000
    """Tokens of all its requests together, input and output."""
    max_cost: str | None = None
    """Dollars of all its requests together; None: no limit besides the run's own."""
    max_output_tokens: int = 2_000
    """Tokens of one reply; a request for more gets this many."""

    def __post_init__(self) -> None:
        for field in ("max_calls", "max_tokens", "max_output_tokens"):
            value = getattr(self, field)
            if type(value) is not int or value < 1:
                raise ConfigurationError(
                    f"Sampling.{field} must be a whole number above 0, not {short_repr(value, 80)}"
                )
        if self.max_cost is not None:
            try:
                cost = Decimal(self.max_cost)
            except Exception:
                cost = Decimal(-1)
            if not isinstance(self.max_cost, str) or not cost.is_finite() or cost <= 0:
                raise ConfigurationError(
                    f"Sampling.max_cost must be dollars as text, such as '0.10', not {short_repr(self.max_cost, 80)}"
                )


class ServerLink(Value, frozen=True, kw_only=True):
    """How one server is reached and what it may do. Views of the same server share it."""

    name: str
    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    cwd: str | None = None
    sandbox: Sandbox | None = None
    url: str | None = None
    headers: Mapping[str, str] = {}
    auth: Any = None
    mode: str = "auto"
    trusted: bool = False
    sampling: Sampling | None = None
    elicitation: bool = False
    roots: tuple[str, ...] = ()
    connect_timeout: float = 30.0
    idle_timeout: float | None = 120.0
    call_timeout: float | None = None
    max_message_bytes: int = 4 << 20
    pins: str = "auto"
    lock: str | None = None
    artifacts: str | None = None
    resources: bool = True

    @property
    def where(self) -> str:
        """The command or the address, for messages, events and the model: without what may hold a secret."""
        if self.url is not None:
            parts = urlsplit(self.url)
            host = parts.netloc.rpartition("@")[2]
            return f"{parts.scheme}://{host}{parts.path}{'?...' if parts.query else ''}"
        return f"{self.command} ..." if self.args else self.command or ""


class OfferedTools(tuple[Tool, ...]):  # noqa: SLOT001 - it has its own attribute
    """The tools of a server that an agent may have, and the names of those that the pins keep back."""

    withheld: frozenset[str] = frozenset()


class McpServer(ToolSource):
    """A server of tools that speaks MCP; it goes in `tools=[...]` beside functions.

    `McpServer("time", command="mcp-server-time")` starts a program and talks to it over its pipes, and
    `command="server.py"` runs a script with this Python;
    `McpServer("docs", url="https://...")` talks streamable HTTP. It is started when a run first needs it, shared by the
    agent's runs in that event loop, and closed when the last of them ends, or at the end of `async with agent:`.
    Raises `ConfigurationError` for settings that contradict each other.

    `env` is added to PATH, HOME and a few others; nothing else of this process's environment reaches the program.
    `trusted=True` believes the server's own hints (read-only, idempotent, destructive). `required=True` makes a run
    fail when the server cannot be reached; otherwise the run continues without its tools. `auth="oauth"` uses the
    tokens of `glidepath mcp login`; any `httpx2.Auth` is used as it is. `sampling=Sampling(...)` and `elicitation=True`
    allow what is refused otherwise. `sandbox=Sandbox(...)` closes a program in: what it may read, write and reach.
    """

    __slots__ = ("chosen", "link", "name", "prefix", "required")

    link: ServerLink
    chosen: tuple[str, ...] | None
    prefix: str

    def __init__(
        self,
        name: str,
        *,
        command: str | os.PathLike[str] | None = None,
        args: Sequence[str | os.PathLike[str]] = (),
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        sandbox: Sandbox | None = None,
        url: str | None = None,
        headers: Mapping[str, str] | None = None,
        auth: object | None = None,
        mode: str = "auto",
        required: bool = False,
        trusted: bool = False,
        sampling: Sampling | None = None,
        elicitation: bool = False,
        roots: Sequence[str | os.PathLike[str]] = (),
        connect_timeout: float = 30.0,
        idle_timeout: float | None = 120.0,
        call_timeout: float | None = None,
        max_message_bytes: int = 4 << 20,
        pins: PinPolicy = "auto",
        lock: str | os.PathLike[str] | None = None,
        artifacts: str | os.PathLike[str] | None = None,
        resources: bool = True,
    ) -> None:
        _check_server_name(name)
        wrong = f"MCP server {name!r}"
        flags = {"required": required, "trusted": trusted, "elicitation": elicitation, "resources": resources}
        _check_words(wrong, flags, {"mode": (mode, MODES), "pins": (pins, PIN_POLICIES)}, sampling)
        folder = _check_optional_text(wrong, "cwd", cwd)
        program, words = _find_interpreter(wrong, command, args, folder)
        link = ServerLink(
            name=name,
            command=program,
            args=words,
            env=_check_pairs(wrong, "env", env),
            cwd=folder,
            sandbox=_check_sandbox(wrong, sandbox, url),
            url=_check_optional_text(wrong, "url", url),
            headers=_check_pairs(wrong, "headers", headers),
            auth=auth,
            mode=mode,
            trusted=trusted,
            sampling=sampling,
            elicitation=elicitation,
            roots=tuple(_check_root(wrong, root) for root in _check_texts(wrong, "roots", roots)),
            connect_timeout=_check_seconds(wrong, "connect_timeout", connect_timeout) or 30.0,
            idle_timeout=_check_seconds(wrong, "idle_timeout", idle_timeout),
            call_timeout=_check_seconds(wrong, "call_timeout", call_timeout),
            max_message_bytes=_check_size(wrong, max_message_bytes),
            pins=pins,
            lock=_check_optional_text(wrong, "lock", lock),
            artifacts=_check_optional_text(wrong, "artifacts", artifacts),
            resources=resources,
        )
        _check_reach(wrong, link)
        self._fill(link, required, None, "")

    def _fill(self, link: ServerLink, required: bool, chosen: tuple[str, ...] | None, prefix: str) -> None:
        for field, value in (
            ("link", link),
            ("name", link.name),
            ("required", required),
            ("chosen", chosen),
            ("prefix", prefix),
        ):
            object.__setattr__(self, field, value)

    def __setattr__(self, name: str, _value: object) -> None:
        raise AttributeError(f"an McpServer is immutable: make another one with {name}=... instead")

    def __repr__(self) -> str:
        narrowed = "" if self.chosen is None else f" only {', '.join(self.chosen)}"
        renamed = f" as {self.prefix}*" if self.prefix else ""
        return f"<McpServer {self.name}{narrowed}{renamed}>"

    # --- views ------------------------------------------------------------------------------------------------

    def only(self, *names: str) -> McpServer:
        """The same server, offering only these of its tools (by the server's own names)."""
        if not names or not all(isinstance(name, str) and name for name in names):
            raise ConfigurationError(
                f"MCP server {self.name!r}: only(...) takes at least one tool name, not {names!r:.80}"
            )
        kept = names if self.chosen is None else tuple(name for name in self.chosen if name in names)
        if not kept:
            raise ConfigurationError(
                f"MCP server {self.name!r}: only{names!r:.80} leaves nothing of {self.chosen!r:.80}"
            )
        return self._view(chosen=tuple(dict.fromkeys(kept)), prefix=self.prefix)

    def prefixed(self, prefix: str) -> McpServer:
        """The same server, with this in front of its tools' names."""
        check_name(prefix)
        return self._view(chosen=self.chosen, prefix=prefix + self.prefix)

    def _view(self, *, chosen: tuple[str, ...] | None, prefix: str) -> McpServer:
        other = object.__new__(type(self))
        other._fill(self.link, self.required, chosen, prefix)
        return other

    def configured(self, **changes: object) -> McpServer:
        """The same server with other settings of its connection, such as `lock` or `artifacts`."""
        other = object.__new__(type(self))
        other._fill(replace(self.link, **changes), self.required, self.chosen, self.prefix)
        return other

    # --- as a source of tools ---------------------------------------------------------------------------------

    @property
    def origin(self) -> object:
        """Views of one server share its process or connection."""
        return ("mcp", id(self.link))

    def open(self) -> McpToolSource:
        """Its connection, which is made when its tools are asked for."""
        from glidepath.mcp.mcp_tool_source import McpToolSource

        return McpToolSource(self.link)

    def choose(self, tools: Sequence[Tool]) -> Sequence[Tool]:
        """The tools of this view, under its names."""
        if self.chosen is not None:
            known = {tool.name: tool for tool in tools}
            withheld = tools.withheld if isinstance(tools, OfferedTools) else frozenset()
            missing = [name for name in self.chosen if name not in known and name not in withheld]
            if missing:
                raise SourceError(
                    f"MCP server {self.name!r} has no tool {', '.join(map(repr, missing))}; it offers "
                    f"{', '.join(sorted(known)[:12]) or 'none'}: correct only(...)"
                )
            tools = [known[name] for name in self.chosen if name in known]
            if not tools:
                raise SourceError(
                    f"MCP server {self.name!r}: {', '.join(self.chosen)} has changed since it was pinned, or is "
                    f"gone; see `glidepath mcp diff {self.name}`"
                )
        return [tool.renamed(self.prefix + tool.name) for tool in tools] if self.prefix else tools


def _check_sandbox(wrong: str, sandbox: object, url: object) -> Sandbox | None:
    if sandbox is None or isinstance(sandbox, Sandbox):
        if sandbox is not None and url is not None:
            raise ConfigurationError(f"{wrong}: sandbox= confines a program, but url= names a remote server; drop one")
        return sandbox
    raise ConfigurationError(f"{wrong}: sandbox must be a glidepath.sandbox.Sandbox, not {sandbox!r:.80}")


def _check_server_name(name: object) -> None:
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME:
        raise ConfigurationError(
            f"an MCP server needs a name of 1 to {LONGEST_NAME} characters, not {short_repr(name, 80)}"
        )
    if not all(letter.isascii() and (letter.isalnum() or letter in "_-.") for letter in name):
        raise ConfigurationError(f"MCP server name {name!r:.80}: use letters, digits, _ - and . only")


def _check_words(wrong: str, flags: Mapping[str, Any], words: Mapping[str, Any], sampling: object) -> None:
    for field, flag in flags.items():
        if not isinstance(flag, bool):
            raise ConfigurationError(f"{wrong}: {field} must be True or False, not {short_repr(flag, 80)}")
    for field, (word, allowed) in words.items():
        if word not in allowed:
            raise ConfigurationError(
                f"{wrong}: {field} must be one of {', '.join(allowed)}; got {short_repr(word, 80)}"
            )
    if sampling is not None and not isinstance(sampling, Sampling):
        raise ConfigurationError(f"{wrong}: sampling must be a Sampling(...) or None, not {short_repr(sampling, 80)}")


def _check_reach(wrong: str, link: ServerLink) -> None:
    if (link.command is None) == (link.url is None):
        raise ConfigurationError(f"{wrong}: pass either command=... or url=..., not both")
    if link.url is not None:
        parts = urlsplit(link.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigurationError(f"{wrong}: url must begin with http:// or https://, not {link.url!r:.100}")
        if isinstance(link.auth, str) and link.auth != "oauth":
            raise ConfigurationError(f"{wrong}: auth must be 'oauth' or an httpx2.Auth; a token belongs in headers")
        for field in ("args", "env", "cwd"):
            if getattr(link, field):
                raise ConfigurationError(f"{wrong}: {field} is only for a command, and this server has a url")
    elif link.headers or link.auth is not None:
        raise ConfigurationError(f"{wrong}: headers and auth are only for a url, and this server is a command")
    elif link.command is not None and not link.command.strip():
        raise ConfigurationError(f"{wrong}: command is empty; name the program that starts the server")


def _check_text(wrong: str, field: str, value: object) -> str:
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(text, str):
        raise ConfigurationError(f"{wrong}: {field} must be a str, not {short_repr(value, 80)}")
    if "\0" in text or "\n" in text:
        raise ConfigurationError(f"{wrong}: {field} contains a NUL or a line break; remove it")
    return str(text)


def _check_optional_text(wrong: str, field: str, value: object) -> str | None:
    return None if value is None else _check_text(wrong, field, value)


def _find_interpreter(wrong: str, command: object, args: object, cwd: str | None) -> tuple[str | None, tuple[str, ...]]:
    """The program to start, and its words: this Python for a script of Python that cannot be started itself."""
    program, words = _check_optional_text(wrong, "command", command), _check_texts(wrong, "args", args)
    if program is None or not program.endswith(".py") or os.access(Path(cwd or "", program), os.X_OK):
        return program, words
    return sys.executable, (program, *words)


def _check_texts(wrong: str, field: str, values: object) -> tuple[str, ...]:
    if isinstance(values, str | bytes) or not isinstance(values, Sequence):
        raise ConfigurationError(f"{wrong}: {field} must be a list of str, not {short_repr(values, 80)}")
    return tuple(_check_text(wrong, f"{field}[{number}]", value) for number, value in enumerate(values))


def _check_pairs(wrong: str, field: str, pairs: object) -> dict[str, str]:
    if pairs is None:
        return {}
    if not isinstance(pairs, Mapping):
        raise ConfigurationError(f"{wrong}: {field} must be a mapping of str to str, not {short_repr(pairs, 80)}")
    return {
        _check_text(wrong, field, key): _check_text(wrong, f"{field}[{key!r}]", value) for key, value in pairs.items()
    }


def _check_seconds(wrong: str, field: str, value: object) -> float | None:
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < FOREVER:
        raise ConfigurationError(f"{wrong}: {field} must be a number of seconds above 0, not {short_repr(value, 80)}")
    return float(value)


def _check_size(wrong: str, value: object) -> int:
    if type(value) is not int or not 1 << 10 <= value <= 1 << 30:
        raise ConfigurationError(
            f"{wrong}: max_message_bytes must be between 1,024 and 1,073,741,824, not {short_repr(value, 80)}"
        )
    return value


def _check_root(wrong: str, root: str) -> str:
    if root.startswith("file://"):
        return root
    if not root:
        raise ConfigurationError(f"{wrong}: roots must be folders or file:// addresses, not an empty text")
    return Path(root).absolute().as_uri()
