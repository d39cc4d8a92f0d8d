"""The plugins that ship with glidepath, and the lineup that orders plugins and their hooks."""

from typing import TYPE_CHECKING

from glidepath.late import lazy_attributes
from glidepath.plugins.lineup import PluginNames

if TYPE_CHECKING:
    from glidepath.plugins.builtin_gates import ApprovalGate, OpeningGate, ToolListGate
    from glidepath.plugins.channel import ChannelSteering

__all__ = ["ApprovalGate", "ChannelSteering", "OpeningGate", "PluginNames", "ToolListGate"]

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(
        __name__, builtin_gates=("ApprovalGate", "OpeningGate", "ToolListGate"), channel=("ChannelSteering",)
    )


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
