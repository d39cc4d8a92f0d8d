"""The agents for the gate: list, install, and run one without a gate.

python bench/gate/agents.py list
python bench/gate/agents.py install [NAME ...]
python bench/gate/agents.py fly NAME --base-url URL --key KEY --task "..."
python bench/gate/agents.py bare [NAME ...]      # all against a scripted upstream: it answers, and a loop never ends
python bench/gate/agents.py observe [NAME ...]   # what each sends, into observed.json

NAME is a program of `table.PINS` for install, a configuration of `table.AGENTS` for the rest. Agents are installed into
build/agents, or where GLIDEPATH_AGENTS says.
"""

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import bare
import observe
from flight import fly
from install import CannotInstallError, find_cache, install, installed_version, is_installed
from table import AGENTS, PINS

MARKER = "SCRIPTED-ANSWER"


def list_agents() -> int:
    """Every configuration with its release and what it cannot express."""
    print(f"{'agent':24} {'release':12} {'installed':10} {'dialect':17} cannot")
    for agent in AGENTS.values():
        there = is_installed(agent.program)
        version = installed_version(agent.program) if there else "-"
        cannot = ", ".join(f"{cell} ({why})" for cell, why in agent.cannot.items())
        print(f"{agent.name:24} {version:12} {'yes' if there else 'no':10} {agent.dialect:17} {cannot}")
    print(f"in {find_cache()}")
    return 0


def install_agents(names: list[str], *, newest: bool) -> int:
    """Install these programs, or all of them, one after the other."""
    failed = 0
    for name in names or PINS:
        try:
            print(f"{name}: {install(name, newest=newest)}", flush=True)
        except CannotInstallError as error:
            failed += 1
            print(f"{name}: NOT INSTALLED: {error}", flush=True)
    return 1 if failed else 0


def fly_one(options: argparse.Namespace) -> int:
    """Run one agent and print how it ended, as JSON; its exit code is ours."""
    folder = options.logs or Path(tempfile.mkdtemp(prefix=f"fly-{options.name.replace('/', '-')}-"))
    flight = fly(
        options.name,
        folder,
        task=options.task,
        url=options.base_url.rstrip("/"),
        key=options.key,
        seconds=options.timeout,
        marker=options.marker,
        newest=options.newest,
    )
    print(json.dumps(asdict(flight), indent=1))
    return flight.code


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("list")
    row = actions.add_parser("install")
    row.add_argument("names", nargs="*", metavar="NAME")
    row.add_argument("--newest", action="store_true", help="the newest releases, beside the pinned ones")
    row = actions.add_parser("fly")
    row.add_argument("name", choices=AGENTS, metavar="NAME")
    row.add_argument("--base-url", required=True)
    row.add_argument("--key", default="some-key")
    row.add_argument("--task", default="Count the steps, then report.")
    row.add_argument("--timeout", type=float, default=120)
    row.add_argument("--marker", default=MARKER)
    row.add_argument("--logs", type=Path, help="a folder for its HOME, standard output and error")
    row.add_argument("--newest", action="store_true")
    for name in ("bare", "observe"):
        row = actions.add_parser(name)
        row.add_argument("names", nargs="*", metavar="NAME")
        row.add_argument("--logs", type=Path)
        row.add_argument("--newest", action="store_true")
        row.add_argument("--out", type=Path)
    options = parser.parse_args()
    unknown = set(getattr(options, "names", ())) - {*AGENTS, *PINS}
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))}: not in the table; python bench/gate/agents.py list")
    if options.action == "list":
        return list_agents()
    if options.action == "install":
        return install_agents(options.names, newest=options.newest)
    if options.action == "fly":
        return fly_one(options)
    logs = options.logs or Path(tempfile.mkdtemp(prefix=f"gate-{options.action}-"))
    run = bare.run_all if options.action == "bare" else observe.run_all
    return run(options.names or list(AGENTS), logs, newest=options.newest, out=options.out)


if __name__ == "__main__":
    sys.exit(main())
