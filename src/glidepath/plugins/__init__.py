"""Plugins: which has which hook and in which order, who sees events, and those that come with glidepath."""

from glidepath.plugins.channel import ChannelSteering
from glidepath.plugins.functions import plugin_from
from glidepath.plugins.gates import ApprovalGate, OpeningGate, ToolListGate
from glidepath.plugins.lineup import Hook, Hooks, Lineup, PluginNames, hooks_of, name_of, snake_case
from glidepath.plugins.observer import Audience, Observer

__all__ = [
    "ApprovalGate",
    "Audience",
    "ChannelSteering",
    "Hook",
    "Hooks",
    "Lineup",
    "Observer",
    "OpeningGate",
    "PluginNames",
    "ToolListGate",
    "hooks_of",
    "name_of",
    "plugin_from",
    "snake_case",
]
