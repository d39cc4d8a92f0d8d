"""The gate: agents written in anything point their base URL here, and land inside their budget with an answer."""

from typing import TYPE_CHECKING

from glidepath._lazy import lazy_attributes

if TYPE_CHECKING:
    from glidepath.apps.gate import Gate, Upstream

__all__ = ["Gate", "Upstream"]

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(__name__, **{"glidepath.apps.gate": ("Gate", "Upstream")})
