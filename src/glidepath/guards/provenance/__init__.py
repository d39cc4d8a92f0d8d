"""Provenance: untrusted content cannot drive consequential tools unseen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glidepath._lazy import lazy_attributes
from glidepath.guards.provenance.provenance_plugin import Provenance

__all__ = ["Provenance"]

# What other packages use, imported when it is first asked for.
if TYPE_CHECKING:
    from glidepath.guards.provenance.user_text import UserText as UserText, role_of as role_of
    from glidepath.guards.provenance.words import find_addresses as find_addresses, is_telling as is_telling

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(__name__, user_text=("UserText", "role_of"), words=("find_addresses", "is_telling"))
