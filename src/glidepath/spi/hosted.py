"""Tools that run at the provider: searching the web, reading a page, running code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, TypeAlias

from glidepath._wire import Value, settle_field
from glidepath.values import ConfigurationError, close_to, short_repr

HOSTED_USES = 5
"""How often a tool may run in one call where `max_uses` does not say."""
MOST_ROUNDS = 10
"""How often a provider reads the prompt again in one call at most, however many uses there are."""
MOST_USES = 1_000
_RESULTS = 10_000  # tokens that one search may bring into the prompt
_PAGE = 25_000
_OUTPUT = 5_000  # tokens that a program may print


class WebSearch(Value, frozen=True, kw_only=True, omit_defaults=True):
    """The provider searches the web while the model answers.

    `max_uses` is how many searches one model call may make. Search only `allowed_domains`, or everything but
    `blocked_domains`; not both.
    """

    NAME: ClassVar[str] = "web_search"
    max_uses: int | None = None
    allowed_domains: tuple[str, ...] = ()
    blocked_domains: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_uses(self)
        _check_domains(self)

    @property
    def result_tokens(self) -> int:
        """Tokens that one use may add to the prompt, as they are reserved."""
        return _RESULTS


class WebFetch(Value, frozen=True, kw_only=True, omit_defaults=True):
    """The provider reads pages of the web while the model answers.

    `max_uses` is how many pages one model call may read, `max_content_tokens` how much of each.
    """

    NAME: ClassVar[str] = "web_fetch"
    max_uses: int | None = None
    allowed_domains: tuple[str, ...] = ()
    blocked_domains: tuple[str, ...] = ()
    max_content_tokens: int = _PAGE

    def __post_init__(self) -> None:
        _check_uses(self)
        _check_domains(self)
        _check_count(self, "max_content_tokens", self.max_content_tokens, 10_000_000)

    @property
    def result_tokens(self) -> int:
        """Tokens that one use may add to the prompt, as they are reserved."""
        return self.max_content_tokens


class CodeExecution(Value, frozen=True, kw_only=True, omit_defaults=True):
    """The provider runs programs that the model writes, in its container."""

    NAME: ClassVar[str] = "code_execution"
    max_uses: ClassVar[None] = None

    @property
    def result_tokens(self) -> int:
        """Tokens that one use may add to the prompt, as they are reserved."""
        return _OUTPUT


HostedTool: TypeAlias = WebSearch | WebFetch | CodeExecution
HOSTED: Mapping[str, type[WebSearch | WebFetch | CodeExecution]] = {
    kind.NAME: kind for kind in (WebSearch, WebFetch, CodeExecution)
}


class HostedReserve(Value, frozen=True):
    """What the hosted tools of a request may cost at most, beside its prompt and its reply."""

    rounds: int
    """How often the provider may read the prompt again, because a tool has answered."""
    results: int
    """Tokens of results that these rounds read, counted once for each round that reads them."""
    fees: int = 0
    """Pico-dollars for searches and containers."""

    def tokens(self, prompt: int) -> int:
        """Tokens of input to reserve above a prompt of this length."""
        return self.rounds * prompt + self.results

    def prompt_within(self, room: int) -> int:
        """The longest prompt that fits into this many tokens, with what is reserved above it."""
        return max(0, room - self.results) // (self.rounds + 1)


def reserve_for(tools: tuple[HostedTool, ...], *, search: int, session: int) -> HostedReserve | None:
    """The worst case of these tools, given the pico-dollars of a search and of a container; None without tools."""
    if not tools:
        return None
    sizes = sorted([tool.result_tokens for tool in tools for _ in range(tool.max_uses or HOSTED_USES)], reverse=True)
    rounds = min(len(sizes), MOST_ROUNDS)
    # The largest results first: then every later round reads them again.
    results = sum(size * (rounds - min(place, rounds - 1)) for place, size in enumerate(sizes))
    searches = sum(tool.max_uses or HOSTED_USES for tool in tools if type(tool) is WebSearch)
    sessions = sum(1 for tool in tools if type(tool) is CodeExecution)
    return HostedReserve(rounds, results, searches * search + sessions * session)


def is_hosted(item: object) -> bool:
    """Whether this is a hosted tool, or the class of one."""
    return any(item is kind or type(item) is kind for kind in HOSTED.values())


def as_hosted_tools(given: object) -> tuple[HostedTool, ...]:
    """The hosted tools in what a program or a file gives: values, or a table such as {"web_search": {"max_uses": 5}}.

    Raises `ConfigurationError`.
    """
    found: tuple[Any, ...]
    if isinstance(given, Mapping):
        found = tuple([_read_entry(name, options) for name, options in given.items()])
    elif isinstance(given, str) or not isinstance(given, Iterable):
        raise ConfigurationError(
            f"hosted_tools must be a list such as [WebSearch(max_uses=5)], not {short_repr(given)}"
        )
    else:
        found = tuple([_read_entry(one, {}) if isinstance(one, str) else one for one in given])
    for one in found:
        if isinstance(one, type) or not is_hosted(one):
            hint = f"; write {one.__name__}()" if isinstance(one, type) and is_hosted(one) else ""
            raise ConfigurationError(
                "hosted_tools must be WebSearch, WebFetch or CodeExecution of glidepath.models, not "
                f"{short_repr(one)}{hint}"
            )
    names = [one.NAME for one in found]
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(f"there are two hosted tools {name!r}; pass one of them")
    return found


def _read_entry(name: object, options: object) -> HostedTool:
    kind = HOSTED.get(name) if isinstance(name, str) else None
    if kind is None:
        close = close_to(str(name), HOSTED)
        hint = f"; did you mean {close!r}?" if close else f"; they are {', '.join(HOSTED)}"
        raise ConfigurationError(f"there is no hosted tool {short_repr(name, 60)}{hint}")
    if options is True:
        options = {}
    if not isinstance(options, Mapping):
        raise ConfigurationError(f"hosted_tools.{name} must be a table of options, not {short_repr(options)}")
    fields: tuple[str, ...] = kind.__struct_fields__
    for option in options:
        if option not in fields:
            close = close_to(str(option), fields)
            hint = f"; did you mean {close!r}?" if close else f"; it takes {', '.join(fields) or 'no options'}"
            raise ConfigurationError(f"hosted_tools.{name} has no option {short_repr(option, 60)}{hint}")
    return kind(**options)


def _check_uses(tool: WebSearch | WebFetch) -> None:
    if tool.max_uses is not None:
        _check_count(tool, "max_uses", tool.max_uses, MOST_USES)


def _check_count(tool: object, field: str, given: object, most: int) -> None:
    if type(given) is not int or not 1 <= given <= most:
        raise ConfigurationError(
            f"{type(tool).__name__}.{field} must be a whole number from 1 to {most}, not {short_repr(given, 60)}"
        )


def _check_domains(tool: WebSearch | WebFetch) -> None:
    for field in ("allowed_domains", "blocked_domains"):
        given: object = getattr(tool, field)
        if isinstance(given, str) or not isinstance(given, list | tuple):
            raise ConfigurationError(
                f"{type(tool).__name__}.{field} must be a list of domains such as ['example.com'], "
                f"not {short_repr(given)}"
            )
        for one in given:
            if not isinstance(one, str) or not one.strip() or "://" in one or any(sign.isspace() for sign in one):
                raise ConfigurationError(
                    f"{type(tool).__name__}.{field} has {short_repr(one, 60)}, which is not a domain "
                    "such as 'example.com'"
                )
        if field == "allowed_domains" and type(given) is list and not given:
            raise ConfigurationError(
                f"{type(tool).__name__}.allowed_domains is an empty list, which allows nothing: leave the tool out, or "
                "leave allowed_domains out to allow every domain"
            )
        if type(given) is list:
            settle_field(tool, field, tuple(given))
    if tool.allowed_domains and tool.blocked_domains:
        raise ConfigurationError(
            f"{type(tool).__name__} has allowed_domains and blocked_domains; providers take one of them: remove one"
        )
