"""Plugins that come with glidepath; behind them, which plugin has which hook and in which order."""

from glidepath.plugins.builtin_gates import ApprovalGate, OpeningGate, ToolListGate
from glidepath.plugins.channel import ChannelSteering
from glidepath.plugins.lineup import PluginNames

__all__ = ["ApprovalGate", "ChannelSteering", "OpeningGate", "PluginNames", "ToolListGate"]
