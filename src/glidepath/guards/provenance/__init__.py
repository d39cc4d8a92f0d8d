"""Provenance: untrusted content cannot drive consequential tools unseen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glidepath._lazy import lazy_attributes
from glidepath.guards.provenance.provenance_plugin import Provenance

__all__ = ["Provenance"]

# What other packages use, imported when it is first asked for.
if TYPE_CHECKING:
    from glidepath.guards.provenance.words import find_addresses as find_addresses

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(__name__, words=("find_addresses",))
