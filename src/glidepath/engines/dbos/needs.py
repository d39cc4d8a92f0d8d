"""Imports what only a fleet needs, on first use, and names the extra if it is missing."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from glidepath.errors import ConfigurationError, install_line

__all__ = ["needed"]


def needed(module: str) -> Any:
    """The module; `ConfigurationError` naming the extra to install when it is missing."""
    try:
        return import_module(module)
    except ImportError as error:
        if error.name is not None and not module.startswith(error.name.partition(".")[0]):
            raise
        package = module.partition(".")[0]
        raise ConfigurationError(f"a fleet needs {package}: {install_line('dbos')}") from None
