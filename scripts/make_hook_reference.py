"""Write docs/hooks.md from the plugin port, so that the reference cannot fall behind the code.

python scripts/make_hook_reference.py           # rewrite the generated part of docs/hooks.md
python scripts/make_hook_reference.py --check   # exit with 1 when it is not up to date
"""

import argparse
import inspect
import re
import sys
from pathlib import Path
from typing import Any

from glidepath.spi import HOOKS, Plugin, hooks
from glidepath.values import stability_of

PAGE = Path(__file__).resolve().parent.parent / "docs" / "hooks.md"
BEGIN = "<!-- begin: made by scripts/make_hook_reference.py -->"
END = "<!-- end -->"
PARTS = ("Asked", "Answer", "Composition", "Failure")
DECISIONS = ("Allow", "Replace", "Block", "Ask", "AfterDecision", "Gate")


def contract(hook: str) -> tuple[str, dict[str, str]]:
    """What a hook promises in one sentence, and the parts of its contract."""
    first, _, rest = (inspect.getdoc(getattr(Plugin, hook)) or "").partition("\n\n")
    found = dict(re.findall(r"^(\w+): (.*?)(?=^\w+: |\Z)", rest, re.DOTALL | re.MULTILINE))
    if tuple(found) != PARTS:
        raise SystemExit(f"Plugin.{hook} must say {', '.join(PARTS)}; it says {', '.join(found)}")
    return first, {part: " ".join(text.split()) for part, text in found.items()}


def fields(kind: Any, own: bool = False) -> str:
    """The fields of a context or decision, as they are declared."""
    notes: dict[str, Any] = {}
    for owner in [kind] if own else reversed(kind.__mro__):
        notes |= inspect.get_annotations(owner)
    defaults = dict(zip(reversed(kind.__struct_fields__), reversed(kind.__struct_defaults__), strict=False))
    shown = []
    for name in kind.__struct_fields__:
        if name in notes:
            default = defaults.get(name, inspect.Parameter.empty)
            has_default = default is not inspect.Parameter.empty and "NODEFAULT" not in repr(default)
            shown.append(f"`{name}: {notes[name]}{f' = {default!r}' if has_default else ''}`".replace("|", "\\|"))
    return "<br>".join(shown) or "none"


def reference() -> str:
    """Every hook, every context, every decision."""
    lines = ["| hook | what it is for | if it fails |", "|---|---|---|"]
    for hook in HOOKS:
        first, parts = contract(hook)
        lines.append(f"| [`{hook}`](#{hook}) | {first} | {parts['Failure']} |")
    for hook in HOOKS:
        first, parts = contract(hook)
        method = getattr(Plugin, hook)
        mark = stability_of(method)
        context = next(item for name, item in inspect.signature(method).parameters.items() if name != "self")
        lines += ["", f"### {hook}", first, "", f"- takes: `{context.annotation}`"]
        lines += [f"- {part.lower()}: {text}" for part, text in parts.items()]
        if mark is not None:
            lines.append(f"- stability: {mark.level}" + (f" since {mark.since}" if mark.since else ""))
    own = [name for name, one in vars(hooks).items() if getattr(one, "__module__", None) == hooks.__name__]
    contexts = sorted(name for name in own if name.endswith("Context") and name[0] != "_")
    lines += ["", "### Contexts", "All are read-only values.", "", "| context | what it is | fields |", "|---|---|---|"]
    lines += [_row(name) for name in contexts]
    lines += [
        "",
        "### Decisions",
        "None is always no opinion.",
        "",
        "| decision | what it means | fields |",
        "|---|---|---|",
    ]
    lines += [_row(name) for name in DECISIONS]
    return "\n".join(lines)


def _row(name: str) -> str:
    kind = getattr(hooks, name)
    about = " ".join((inspect.getdoc(kind) or "").split("\n\n")[0].split())
    return f"| `{name}` | {about} | {fields(kind)} |"


def updated(page: str) -> str:
    """The page with its generated part made anew."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{reference()}\n\n{END}{after}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 when the page is out of date")
    options = parser.parse_args()
    page = PAGE.read_text(encoding="utf-8")
    new = updated(page)
    if options.check:
        print("up to date" if new == page else "docs/hooks.md is out of date: run scripts/make_hook_reference.py")
        return int(new != page)
    PAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
