"""Plugins: which has which hook and in which order, who sees events, and those that come with glidepath."""

from glidepath.plugins.lineup import Hook, Hooks, Lineup, PluginNames, name_of, snake_case
from glidepath.plugins.observer import Audience, Observer

__all__ = ["Audience", "Hook", "Hooks", "Lineup", "Observer", "PluginNames", "name_of", "snake_case"]
