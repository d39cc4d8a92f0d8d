"""Write the tables of docs/events.md from glidepath.events, so that the page cannot fall behind the code.

python scripts/make_event_table.py           # rewrite the tables in docs/events.md
python scripts/make_event_table.py --check   # exit with 1 when they are not up to date
"""

import argparse
import inspect
import sys
from pathlib import Path

from glidepath.events import Event
from glidepath.values import EVENTS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "events.md"
BEGIN = "<!-- begin: made by scripts/make_event_table.py -->"
END = "<!-- end -->"
NOT_YET: frozenset[str] = frozenset()
"""Events that are part of the format and that nothing emits in this version."""

GROUPS = {
    "The run": ("RunStarted", "RunPaused", "RunEnded"),
    "Turns and messages": ("TurnStarted", "TurnEnded", "MessageAdded"),
    "Model calls": (
        "StreamStarted",
        "StreamChunk",
        "AttemptDiscarded",
        "RetryScheduled",
        "OutputTokensEscalated",
        "ContextShaped",
        "ModelSwitched",
        "BreakerChanged",
    ),
    "Tools": (
        "ToolStarted",
        "ToolsChanged",
        "ToolProgress",
        "ToolEnded",
        "ApprovalRequested",
        "CallRuled",
        "GateApplied",
        "GateConflictResolved",
    ),
    "Limits and guards": (
        "BudgetReserved",
        "BudgetSettled",
        "ConstraintViolated",
        "NoticeSent",
        "GuardTripped",
        "LandingStarted",
        "HookFailed",
    ),
    "Children and sessions": ("ChildStarted", "ChildEnded", "SessionSaved", "ConfigurationChanged"),
}


def own_fields(kind: type[Event]) -> list[str]:
    """The fields of a kind of event beside the envelope, as they are declared."""
    types = inspect.get_annotations(kind)
    defaults = dict(zip(reversed(kind.__struct_fields__), reversed(kind.__struct_defaults__), strict=False))
    shown = []
    for name in types:
        text = f"{name}: {types[name]}"
        if name in defaults:
            text += f" = {_default(defaults[name])}"
        shown.append(text)
    return shown


def _default(value: object) -> str:
    factory = getattr(value, "factory", None)
    return repr(factory() if factory is not None else value)


def summary(kind: type[Event]) -> str:
    """The first paragraph of a kind's docstring, on one line."""
    text = " ".join((inspect.getdoc(kind) or "").split("\n\n")[0].split())
    return f"{text} *Not emitted in this version.*" if kind.__name__ in NOT_YET else text


def grouped(names: list[str]) -> dict[str, list[str]]:
    """The events in their groups; one that is in no group joins that of the event before it in the module."""
    groups = {title: [name for name in group if name in names] for title, group in GROUPS.items()}
    for before, name in zip([None, *names], names, strict=False):
        if not any(name in group for group in groups.values()):
            home = next((group for group in groups.values() if before in group), groups[next(iter(groups))])
            home.append(name)
    return groups


def tables() -> str:
    """All tables, as Markdown."""
    kinds = {kind.__name__: kind for kind in EVENTS}
    lines = ["### The envelope", "", "Every event has these fields first.", "", *_rows([Event])]
    for title, names in grouped(list(kinds)).items():
        lines += ["", f"### {title}", "", *_rows([kinds[name] for name in names])]
    return "\n".join(lines)


def _rows(kinds: list[type[Event]]) -> list[str]:
    rows = ["| event | fields | meaning |", "|---|---|---|"]
    for kind in kinds:
        fields = "<br>".join(f"`{field}`".replace("|", "\\|") for field in own_fields(kind)) or "none"
        rows.append(f"| `{kind.__name__}` | {fields} | {summary(kind)} |")
    return rows


def updated(page: str) -> str:
    """The page with its tables made anew."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{tables()}\n\n{END}{after}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 when the page is out of date")
    options = parser.parse_args()
    page = PAGE.read_text(encoding="utf-8")
    new = updated(page)
    if options.check:
        print("up to date" if new == page else "docs/events.md is out of date: run scripts/make_event_table.py")
        return int(new != page)
    PAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
