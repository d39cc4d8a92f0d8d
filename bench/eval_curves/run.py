"""Curves of budget against success, predicted from one generous run, beside real runs at each limit.

python bench/eval_curves/run.py                        # all three benchmarks: some hours on two cores
python bench/eval_curves/run.py --every 20 --points 4  # a slice
python bench/eval_curves/run.py agentdojo              # one of them

The model is scripted with the right calls, so a run is deterministic and each prediction must equal its real run, but
for landings whose text nobody can know: these are counted.
"""

import argparse
import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "agentdojo"), str(HERE.parent / "bfcl")]

from dojo_packages import PACKAGES as DOJO  # noqa: E402
from environment import ROOT, NotInstalledError, figures, python_with  # noqa: E402

BFCL = ("bfcl-eval==2026.3.23", "mpmath==1.3.0", "msgspec")
TAU = (
    "inspect-evals==0.26.0",
    "annotated-types",
    "msgspec",
    "pydantic==2.12.5",
    "pydantic-core==2.41.5",
    "pyyaml",
    "toml",
    "typing-extensions",
    "typing-inspection",
)
PACKAGES = {"agentdojo": DOJO, "bfcl": BFCL, "tau": TAU}


def fly(name, every=1, by="max_cost", points=20):
    """The figures of one benchmark; raises `NotInstalledError` where its package cannot be had."""
    python = python_with(name, PACKAGES[name])
    return figures(python, HERE / "fly.py", name, "--every", str(every), "--by", by, "--points", str(points))


def misses(name, report):
    """What is not as promised."""
    found = []
    for one in report["points"]:
        if one["wrong"]:
            found.append(f"{name}: at {one['limit']} {one['wrong']} runs do not fit their prediction")
        if abs(one["passed"] - one["real_passed"]) > one["other_landings"]:
            found.append(f"{name}: at {one['limit']} {one['passed']} were predicted, {one['real_passed']} passed")
    if report["not_covered"] or report["left_out"]:
        found.append(f"{name}: {report['not_covered']} not covered, left out: {report['left_out']}")
    return found


def table(reports):
    rows = [("benchmark", "cases", "solved", "limits", "runs again", "predicted wrong", "landings with another text")]
    for name, one in reports.items():
        points = one["points"]
        other = sum(point["other_landings"] for point in points)
        wrong = sum(point["wrong"] for point in points)
        rows.append((name, one["cases"], one["passed"], len(points), len(points) * one["runs"], wrong, other))
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in (rows[0], ("---",) * 7, *rows[1:]))


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PACKAGES))
    options.add_argument("--every", type=int, default=1, help="take every Nth case")
    options.add_argument("--by", default="max_cost")
    options.add_argument("--points", type=int, default=20, help="how many limits")
    chosen = options.parse_args()
    reports, found = {}, []
    for name in chosen.names or PACKAGES:
        if name not in PACKAGES:
            options.error(f"{name} is not one of {', '.join(PACKAGES)}")
        try:
            reports[name] = fly(name, chosen.every, chosen.by, chosen.points)
        except NotInstalledError as error:
            sys.exit(str(error))
        found.extend(misses(name, reports[name]))
    (ROOT / "build").mkdir(exist_ok=True)
    (ROOT / "build" / "eval-curves.json").write_text(json.dumps(reports, indent=2) + "\n", encoding="utf-8")
    print(table(reports))
    sys.exit("\n".join(found) or 0)


if __name__ == "__main__":
    main()
