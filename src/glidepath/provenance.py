"""Provenance: untrusted content cannot drive consequential tools unseen."""

from glidepath.guards.provenance import Provenance

__all__ = ["Provenance"]
