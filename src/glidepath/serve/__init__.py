"""A server for agents: start, watch and steer runs over HTTP, and the flight deck in a browser."""

from glidepath.apps.server import app

__all__ = ["app"]
