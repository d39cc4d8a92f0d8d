"""Sessions: a conversation that outlives its runs."""

from glidepath.sessions.session import Session, Totals

__all__ = ["Session", "Totals"]
