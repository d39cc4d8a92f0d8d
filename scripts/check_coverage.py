"""Hold the kernel to its branch-coverage bars.

Reads the file that `coverage json` writes. A group is every file below one of its folders or modules, which are named
from `src/glidepath` on; its files are judged together.
"""

import json
import sys
from pathlib import Path, PurePath
from typing import Any

ROOT = PurePath("src/glidepath")
BARS = dict.fromkeys(
    (
        "kernel/loop",
        "kernel/model_call",
        "kernel/tool_calls",
        "kernel/constraint_checks",
        "kernel/landing",
        "kernel/endings",
        "run/ledger",
        "run",
    ),
    95.0,
)


def group_of(path: str) -> str | None:
    """Name the group a measured file belongs to, or None."""
    parts = PurePath(path).parts
    if parts[: len(ROOT.parts)] != ROOT.parts:
        return None
    inside = "/".join(parts[len(ROOT.parts) :]).removesuffix(".py")
    return next((name for name in BARS if inside == name or inside.startswith(f"{name}/")), None)


def failures(report: dict[str, Any]) -> list[str]:
    """Say, for each group below its bar, what is missing."""
    files: dict[str, dict[str, Any]] = {name: {} for name in BARS}
    for path, data in report["files"].items():
        if group := group_of(path):
            files[group][path] = data
    found = []
    for group, bar in BARS.items():
        if not files[group]:
            found.append(f"{group}: no measured file; was it renamed? Then change BARS as well")
            continue
        total = sum(data["summary"]["num_branches"] for data in files[group].values())
        covered = sum(data["summary"]["covered_branches"] for data in files[group].values())
        percent = 100.0 * covered / total if total else 100.0
        print(f"{group:<26} {percent:6.1f} % of {total} branches (bar {bar:.0f} %)")
        if percent < bar:
            missing = [f"{path}: {data['missing_branches']}" for path, data in files[group].items()]
            found.append(f"{group}: {percent:.1f} % < {bar:.0f} %; missing " + "; ".join(missing))
    return found


def main() -> int:
    report = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    found = failures(report)
    for line in found:
        print(f"coverage bar missed: {line}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
