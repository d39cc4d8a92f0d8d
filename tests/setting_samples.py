"""Values for settings that a test does not name, by their kind: one that is not the default, and wrong ones."""

import math

from glidepath.values import settings_of

_OTHERS = {"int": (3, 4), "count": (3, 4), "seconds": (4.5, 5.5), "number": (0.5, 0.7), "text": ("other", "another")}
_COUNTS = ["five", 5.0, math.nan, -1, True, [5]]
_WRONG = {
    "int": [*_COUNTS, 0],
    "count": _COUNTS,
    "seconds": ["soon", math.nan, math.inf, -1, 0, True, [5]],
    "number": ["0.5", math.nan, math.inf, -0.1, True, [1]],
    "bool": ["yes", 1, None],
    "text": [7, b"x", ["x"], "nul \0 inside"],
    "choice": [7, "none of them", ["x"]],
    "callable": ["print", 7],
    "table": [7, "x", [1]],
}


def filled_in(owner, given):
    """For every field of a class of settings the value given, or another one than its default."""
    return {name: given[name] if name in given else another(owner, name) for name in settings_of(owner)}


def another(owner, name):
    """A value that is not the default; KeyError for a kind of which a test must name one."""
    one, default = settings_of(owner)[name], _default(owner, name)
    kind = one.kind.removesuffix("?")
    if kind == "bool":
        return not default
    return next(value for value in (one.choices or _OTHERS[kind]) if value != default)


def wrong_for(owner, named):
    """Pairs of a field and wrong values, for every field that is not named."""
    return [(name, _WRONG[one.kind.removesuffix("?")]) for name, one in settings_of(owner).items() if name not in named]


def _default(owner, name):
    fields, defaults = owner.__struct_fields__, owner.__struct_defaults__
    known = dict(zip(fields[::-1], defaults[::-1], strict=False))
    return known.get(name)
