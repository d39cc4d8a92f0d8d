"""AgentDojo's 97 user tasks along their ground truth, judged by AgentDojo's own `utility`.

python bench/agentdojo/run.py             # all of them; exit code 1 when one does not pass
python bench/agentdojo/run.py --every 10  # a slice
"""

import argparse
import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from dojo_packages import PACKAGES  # noqa: E402
from environment import ROOT, NotInstalledError, figures, python_with  # noqa: E402


def fly(every=1):
    """The figures; raises `NotInstalledError` where agentdojo cannot be had."""
    return figures(python_with("agentdojo", PACKAGES), HERE / "fly.py", "--every", str(every))


def misses(report):
    """The bars that are not met."""
    found = []
    for name, one in report.items():
        if one["passed"] != one["tasks"]:
            found.append(f"{name}: {one['passed']} of {one['tasks']} pass: {', '.join(one['failed'])}")
        if one["errors"] or one["guards"]:
            found.append(f"{name}: {one['errors']} errors, {one['guards']} interventions of guards")
    return found


def table(report):
    words = {"turn_by_turn": "one call in a reply", "one_reply": "all calls in one reply"}
    rows = [("the model puts", "tasks passed", "calls", "errors", "guards")]
    for name, one in report.items():
        rows.append((words[name], f"{one['passed']} of {one['tasks']}", one["calls"], one["errors"], one["guards"]))
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in (rows[0], ("---",) * 5, *rows[1:]))


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--every", type=int, default=1, help="fly every Nth task")
    chosen = options.parse_args()
    try:
        report = fly(chosen.every)
    except NotInstalledError as error:
        sys.exit(str(error))
    out = ROOT / "build" / "agentdojo.json"
    out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    print(table(report))
    sys.exit("\n".join(misses(report)) or 0)


if __name__ == "__main__":
    main()
