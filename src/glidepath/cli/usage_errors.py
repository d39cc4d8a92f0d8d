"""What is wrong with the words of a command line, said in ours rather than in those of the standard library."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable


def usage_error(message: str, actions: Iterable[argparse.Action]) -> str:
    """What the standard library says of a wrong flag, in our words; a missing choice comes with what there is."""
    said = message.removeprefix("argument ").replace("the following arguments are required:", "missing:")
    for old, new in ((": invalid int value:", "a whole number"), (": invalid float value:", "a number")):
        said = said.replace(old, f": expected {new}, got", 1)
    for action in actions:
        if said == f"missing: {action.metavar or action.dest}" and action.choices:
            said = f"{said}, one of {', '.join(map(str, action.choices))}"
    return said
