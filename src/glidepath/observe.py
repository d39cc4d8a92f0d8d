"""Watching runs from outside: an observer that writes events to a log, one record each."""

from glidepath.plugins.observe import LogObserver

__all__ = ["LogObserver"]
