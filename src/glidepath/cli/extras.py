"""Packages that only some commands need."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from glidepath.errors import ConfigurationError, install_line

_PACKAGES = {"acp": "agent-client-protocol"}  # where a module and its package have different names


def needed(module: str, extra: str = "cli") -> Any:
    """The module; raises `ConfigurationError` naming the extra to install if it is missing."""
    try:
        return import_module(module)
    except ImportError as error:
        if error.name is not None and not module.startswith(error.name.partition(".")[0]):
            raise
        package = _PACKAGES.get(module, module.partition(".")[0])
        raise ConfigurationError(f"this command needs {package}: {install_line(extra)}") from None
