"""The script of an upstream as text: `spawn:children=2 + 429:every=5,retry_after=1`."""

from __future__ import annotations

import difflib
from random import Random
from typing import Any

from glidepath._wire import Value, WireError as _WireError, convert, replace
from glidepath.testing.upstream.conduct import CONDUCTS, Conduct
from glidepath.values import ConfigurationError

FAULTS = {
    "429": "too many requests; retry_after=SECONDS adds the header",
    "529": "overloaded",
    "500": "server error",
    "cut": "the connection breaks after `after` events",
    "slow": "`seconds` pass before the first byte",
    "stall": "the stream pauses for `seconds` after `after` events",
    "no_usage": "the reply reports no usage",
    "absurd_usage": "the reply reports a million times what was used; factor=-1 reports negative numbers",
    "redirect": "307 to the address `to`",
    "half_call": "the arguments of a tool call break off, and the reply ends as if they did not",
    "garbage": "an event, or the whole reply if it is not streamed, is not JSON",
    "huge": "a text of `tokens` tokens comes before everything else",
    "web_page": "a web page comes instead of a reply, with status 200",
    "empty": "the reply says nothing and calls nothing",
    "refusal": "the reply refuses, as the vendor says that",
    "truncated": "the reply breaks off in a sentence, at its maximum length",
    "same_ids": "every tool call has the same id",
    "unknown_tool": "the reply calls a tool that nobody has offered",
    "bad_arguments": "the arguments of a tool call are not JSON, or not what the tool takes",
}


class Fault(Value):
    """Something that goes wrong: `at` one call, at the `first` few, at `every` n-th, at a `rate`, else at all."""

    name: str
    at: int = 0
    first: int = 0
    every: int = 0
    rate: float = 0.0
    after: int = 3
    seconds: float = 1.0
    retry_after: float | None = None
    factor: int = 1_000_000
    tokens: int = 1_000_000
    to: str = "http://127.0.0.1:9/v1/elsewhere"

    def strikes(self, number: int, random: Random) -> bool:
        """Whether it happens at the call with that number, counted from 1."""
        if self.at or self.first or self.every:
            return number == self.at or number <= self.first or bool(self.every and number % self.every == 0)
        return random.random() < self.rate if self.rate else True


class Script(Value):
    """A behavior and the faults beside it."""

    conduct: Conduct
    faults: tuple[Fault, ...] = ()

    def pick_faults(self, number: int, random: Random) -> dict[str, Fault]:
        """The faults that happen at that call, by name."""
        return {fault.name: fault for fault in self.faults if fault.strikes(number, random)}


def read_script(text: str) -> Script:
    """Read a script: names with options, joined by `+`; raises `ConfigurationError` with what is possible."""
    conduct: Conduct | None = None
    faults: list[Fault] = []
    is_stubborn = False
    for part in text.split("+"):
        name, _, rest = part.strip().partition(":")
        options = _read_options(rest, part)
        if name == "stubborn":
            is_stubborn = True
            if options:
                raise ConfigurationError(
                    f"{part.strip()!r}: 'stubborn' takes no options; give them to the behavior beside it"
                )
        elif name in CONDUCTS:
            if conduct is not None:
                raise ConfigurationError(f"behavior {text!r} has both {conduct.name!r} and {name!r}; use one of them")
            conduct = _build(Conduct, name, options)
        elif name in FAULTS:
            faults.append(_build(Fault, name, options))
        else:
            raise ConfigurationError(_advise(name, text))
    conduct = conduct or Conduct(name="loop" if is_stubborn else "honest")
    for which in (conduct.then, conduct.child):
        if which not in CONDUCTS or which in ("spawn", "endless"):
            raise ConfigurationError(f"behavior {text!r}: {which!r} is not one of 'loop', 'same', 'honest', 'answer'")
    return Script(conduct=replace(conduct, is_stubborn=is_stubborn), faults=tuple(faults))


def _read_options(rest: str, part: str) -> dict[str, str]:
    options = {}
    for option in filter(None, (one.strip() for one in rest.split(","))):
        name, equals, value = option.partition("=")
        if not equals:
            raise ConfigurationError(f"{part.strip()!r}: {option!r} is not an option; write NAME=VALUE")
        options[name] = value
    return options


def _build(kind: type[Any], name: str, options: dict[str, str]) -> Any:
    known = [field for field in kind.__struct_fields__ if field not in ("name", "is_stubborn")]
    for option in options:
        if option not in known:
            raise ConfigurationError(f"{name!r} has no option {option!r}; use one of {', '.join(known)}")
    try:
        return convert({"name": name, **options}, kind, strict=False)
    except _WireError as error:
        raise ConfigurationError(f"{name!r}: {error}") from None


def _advise(name: str, text: str) -> str:
    known = [*CONDUCTS, "stubborn", *FAULTS]
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"behavior {text!r}: {name!r} is not known; use {', '.join(known)}{hint}"
