"""The marks of a run: which of its fields have changed since its journal was last written."""

from __future__ import annotations

from typing import TypeAlias

Unsaved: TypeAlias = dict[str, None]
"""The names of the fields. All parts of a run share one; the method that writes a field adds its name.

A dict and not a set: of a dict of texts the garbage collector knows nothing, and a thousand runs have one each.
"""
