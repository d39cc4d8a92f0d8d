"""The plugins that ship with glidepath, and the lineup that orders plugins and their hooks."""

from typing import TYPE_CHECKING

from glidepath._lazy import lazy_attributes
from glidepath.plugins.hook_table import PluginNames

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


# What other packages use, imported when it is first asked for.
if TYPE_CHECKING:
    from glidepath.plugins.hook_table import Hooks as Hooks, HookTable as HookTable, snake_case as snake_case
    from glidepath.plugins.observer import (
        FAREWELL as FAREWELL,
        LAST_WORDS as LAST_WORDS,
        Audience as Audience,
        Observer as Observer,
        finish_observers as finish_observers,
    )
    from glidepath.plugins.single_observer import audience_of as audience_of

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(
        __name__,
        __getattr__,
        hook_table=("HookTable", "Hooks", "snake_case"),
        observer=("Audience", "FAREWELL", "LAST_WORDS", "Observer", "finish_observers"),
        single_observer=("audience_of",),
    )
