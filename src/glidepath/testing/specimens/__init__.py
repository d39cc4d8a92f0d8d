"""A library of misbehaving models and tools, and of honest runs: what `glidepath sim` runs a configuration against.

Each specimen is a small class whose docstring says what it does. Write your own by subclassing `Specimen`.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

from glidepath._lazy import lazy_attributes
from glidepath.testing.specimens import (
    bad_order,
    hangs,
    honest,
    inner_runs,
    left_behind,
    loops,
    malicious_skills,
    overshoot,
    replies,
    result,
    streams,
    tools,
    vandals,
)
from glidepath.testing.specimens.bad_arguments import arguments_for
from glidepath.testing.specimens.specimen import ANSWER, Moment, Outside, Specimen, Tireless

__all__ = ["ANSWER", "SPECIMENS", "Moment", "Outside", "Specimen", "Tireless", "arguments_for"]


def _of(module: ModuleType) -> list[type[Specimen]]:
    """The specimens in a module: its classes and its tables."""
    named = [one for name, one in vars(module).items() if not name.startswith("_")]
    own = [one for one in named if isinstance(one, tuple) or getattr(one, "__module__", "") == module.__name__]
    kinds = [kind for one in own for kind in (one if isinstance(one, tuple) else (one,))]
    return [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Specimen)]


_MODULES = (
    hangs,
    honest,
    inner_runs,
    left_behind,
    loops,
    malicious_skills,
    bad_order,
    overshoot,
    replies,
    result,
    streams,
    tools,
    vandals,
)
SPECIMENS: tuple[type[Specimen], ...] = tuple(
    sorted(
        [kind for module in _MODULES for kind in _of(module)],
        key=lambda kind: (kind.family != "control", kind.family, kind.name),
    )
)
"""All specimens, the control first, then by family and name."""


# What other packages use, imported when it is first asked for.
if TYPE_CHECKING:
    from glidepath.testing.specimens.bad_order import PacksBoxesInOneReply as PacksBoxesInOneReply

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(__name__, bad_order=("PacksBoxesInOneReply",))
