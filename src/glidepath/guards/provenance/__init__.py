"""Provenance: untrusted content cannot drive consequential tools unseen."""

from __future__ import annotations

from glidepath.guards.provenance.provenance_plugin import Provenance

__all__ = ["Provenance"]
