"""A server for agents: start, watch and steer runs over HTTP, and the flight deck in a browser."""

from glidepath.apps.server import Webhook, app

__all__ = ["Webhook", "app"]
