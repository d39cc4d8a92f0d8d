"""What may still change: markers on extension points."""

from glidepath.values.stability import Stability, experimental, stable

__all__ = ["Stability", "experimental", "stable"]
