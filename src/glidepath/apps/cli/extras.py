"""Packages that only some commands need."""

from __future__ import annotations

from typing import Any

from glidepath.values import errors

_PACKAGES = {"acp": "agent-client-protocol"}  # where a module and its package have different names


def require_extra(module: str, extra: str = "cli") -> Any:
    """The module; raises `ConfigurationError` naming the extra to install if it is missing."""
    return errors.require_extra(module, f"this command needs {_PACKAGES.get(module, module.partition('.')[0])}", extra)
