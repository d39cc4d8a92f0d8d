"""The plugins that ship with glidepath, and the lineup that orders plugins and their hooks."""

from glidepath.plugins.builtin_gates import ApprovalGate, OpeningGate, ToolListGate
from glidepath.plugins.channel import ChannelSteering
from glidepath.plugins.lineup import PluginNames

__all__ = ["ApprovalGate", "ChannelSteering", "OpeningGate", "PluginNames", "ToolListGate"]
