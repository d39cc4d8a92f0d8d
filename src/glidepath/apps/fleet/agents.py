"""Resolves agent names in a worker: an import path, an `Agent`, a `LoopConfig`, or a function that makes one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import reduce
from importlib import import_module
from typing import Any

from glidepath._wire import replace
from glidepath.agent import Agent, LoopConfig
from glidepath.values import ConfigurationError, describe_error

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def check_name(name: object) -> None:
    """Raise `ConfigurationError` unless this can be the name of an agent in a fleet."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"agent must be 1 to 64 letters, digits or any of _ . - and begin with a letter or digit; got {name!r:.100}"
        )


def find_agents(agents: object, store: object) -> dict[str, Agent]:
    """Every agent by its name, with its journal in the fleet's store; raises `ConfigurationError`."""
    if not isinstance(agents, Mapping) or not agents:
        raise ConfigurationError("a worker needs agents: agents={'name': agent}, or --agent name=module:attribute")
    found = {}
    for name, given in agents.items():
        check_name(name)
        config = _make_config(name, given)
        if config.store is not None:
            raise ConfigurationError(
                f"agent {name!r} has its own store: remove store=..., because a worker writes to the fleet's store"
            )
        found[name] = Agent(replace(config, store=store))
    return found


def _make_config(name: str, given: object) -> LoopConfig:
    what: Any = _import_agent(name, given) if isinstance(given, str) else given
    if callable(what) and not isinstance(what, Agent | LoopConfig):
        try:
            what = what()
        except Exception as error:
            raise ConfigurationError(f"agent {name!r}: could not be created: {describe_error(error)}") from error
    if isinstance(what, Agent):
        return what.config
    if isinstance(what, LoopConfig):
        return what
    raise ConfigurationError(
        f"agent {name!r} must be an Agent, a LoopConfig or a function that makes one, not {type(what).__name__}"
    )


def _import_agent(name: str, path: str) -> Any:
    module, _, attribute = path.partition(":")
    if not module or not attribute:
        raise ConfigurationError(f"agent {name!r}: expected module:attribute, not {path!r:.100}")
    try:
        return reduce(getattr, attribute.split("."), import_module(module))
    except Exception as error:
        raise ConfigurationError(f"agent {name!r}: {path}: {describe_error(error)}") from error
