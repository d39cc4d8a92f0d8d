"""What each agent sends: paths, headers, ids, fields, tools; as data in observed.json, and compared with new releases.

An agent runs twice with the same task and HOME, so that what names a run (differs between the runs, stays within one)
is told from what is always the same. Agents with sub-agents run once more, with two honest children. Values of ids are
not kept.
"""

import asyncio
import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from bare import try_agent
from install import HERE, installed_version, is_installed
from table import AGENTS, Agent

from glidepath.testing.upstream.tool_use import FINISHING

OBSERVED = HERE / "observed.json"
HONEST = "honest:calls=2"
SPAWN = "spawn:children=2,child=honest,calls=2,then=answer"
ORDINARY = {
    "accept",
    "accept-encoding",
    "accept-language",
    "authorization",
    "connection",
    "content-length",
    "content-type",
    "host",
    "sec-fetch-mode",
    "transfer-encoding",
    "x-api-key",
    "x-goog-api-key",
}
PARTS = (
    "metadata",
    "client_metadata",
    "generationConfig",
    "reasoning",
    "stream_options",
    "thinking",
    "output_config",
    "text",
)


def flatten(body: dict) -> dict[str, object]:
    """The fields of a body by name, those of small objects as `outer.inner`; JSON inside `metadata` is opened."""
    found = {}
    for name, value in body.items():
        if name in PARTS and isinstance(value, dict):
            for inner, one in value.items():
                opened = open_json(one) if name == "metadata" else None
                if opened is None:
                    found[f"{name}.{inner}"] = one
                else:
                    found |= {f"{name}.{inner}.{deep}": two for deep, two in opened.items()}
        else:
            found[name] = value
    return found


def open_json(value: object) -> dict | None:
    """The object that a string holds as JSON."""
    if not isinstance(value, str) or not value.startswith("{"):
        return None
    try:
        return json.loads(value)
    except ValueError:
        return None


def scalars(call: dict) -> dict[str, str]:
    """Headers and short fields of a call that could name a run."""
    found = {f"header {name}": value for name, value in call["headers"].items() if name not in ORDINARY}
    for name, value in flatten(call["body"]).items():
        if isinstance(value, str) and len(value) < 200 and name not in ("input", "instructions", "system", "model"):
            found[f"field {name}"] = value
    return found


def split_calls(calls: list[dict]) -> tuple[list[dict], list[dict], list[dict]]:
    """The calls of the main agent, of its children, and on the side (no tools, while others have them)."""
    tools = any(call["tools"] for call in calls)
    side = [call for call in calls if tools and not call["tools"] and not call["past"] and not call["child"]]
    main = [call for call in calls if call not in side and not call["child"]]
    return main, [call for call in calls if call["child"]], side


def constant(calls: list[dict]) -> dict[str, str]:
    """What has the same value in all of these calls."""
    if not calls:
        return {}
    rows = [scalars(call) for call in calls]
    return {name: value for name, value in rows[0].items() if all(row.get(name) == value for row in rows)}


def name_runs(first: list[dict], second: list[dict]) -> list[str]:
    """What stays within a run and differs between two runs."""
    one, two = constant(first), constant(second)
    return sorted(name for name, value in one.items() if name in two and two[name] != value and is_id(value))


def is_id(value: str) -> bool:
    """Whether a value could be an id: not a number or a time."""
    return re.fullmatch(r"[\d.]+", value) is None and len(value) >= 8


def name_children(main: list[dict], children: list[dict]) -> list[str]:
    """What a child's calls have that the main agent's do not, or with another value."""
    numbers = sorted({call["child"] for call in children})
    rows = [constant([call for call in children if call["child"] == number]) for number in numbers]
    before = constant(main)
    if not rows:
        return []
    shared = [name for name in rows[0] if all(name in row for row in rows)]
    apart = [name for name in shared if len({row[name] for row in rows}) == len(rows) and is_id(rows[0][name])]
    new = [name for name in shared if name not in scalars(main[0])]
    return sorted({*new, *[name for name in apart if before.get(name) != rows[0][name]]})


def header_names(calls: Iterable[dict]) -> list[str]:
    """Every header that is not ordinary."""
    return sorted({name for call in calls for name in call["headers"]} - ORDINARY)


def field_names(calls: Iterable[dict]) -> list[str]:
    """Every field of the bodies."""
    return sorted({name for call in calls for name in flatten(call["body"])})


def describe(
    agent: Agent, runs: list[list[dict]], families: list[list[dict]], looks: list[str], *, newest: bool
) -> dict:
    """One row of the table."""
    first = runs[0]
    main, _, side = split_calls(first)
    head = main[0]
    row: dict = {
        "version": installed_version(agent.program, newest=newest),
        "dialect": agent.dialect,
        "paths": sorted(
            {re.sub(r"/models/[^:]+:", "/models/MODEL:", f"{one['method']} {one['path']}") for one in first}
        ),
        "looks": looks,
        "query": sorted({name for one in first for name in one["query"]}),
        "user_agent": tidy(head["headers"].get("user-agent", "")),
        "headers": header_names(first),
        "fields": field_names(first),
        "stream": head["stream"],
        "max_output": head["max_output"],
        "tool_choice": head["choice"],
        "tools": head["tools"],
        "first_request_bytes": round(len(json.dumps(head["body"])), -2),
        "run_is_named_by": name_runs(split_calls(runs[0])[0], split_calls(runs[1])[0]),
        "side_calls": len(side),
        "finishing": agent.finishing,
        "roles": sorted(
            {str(one.get("role")) for call in main for one in turns(call["body"]) if isinstance(one, dict)}
        ),
    }
    if "anthropic-beta" in head["headers"]:
        row["betas"] = sorted(head["headers"]["anthropic-beta"].split(","))
    if families:
        main, children, _ = split_calls(families[0])
        row["children"] = {
            "tool": next((name for call in main for name in call["said"]), None),
            "are_named_by": name_children(main, children),
            "headers": sorted(set(header_names(children)) - set(header_names(main))),
            "fields": sorted(set(field_names(children)) - set(field_names(main))),
            "tools": children[0]["tools"] if children else [],
            "finishing": next((name for name in children[0]["tools"] if FINISHING.match(name)), None),
        }
    return row


def tidy(user_agent: str) -> str:
    """A user agent without versions and without what it says about the machine."""
    return re.sub(r"\(.*?\)", "(...)", re.sub(r"\d[\w.+-]*", "N", user_agent))


def turns(body: dict) -> list:
    """The messages, items or contents of a body."""
    found = body.get("messages") or body.get("input") or body.get("contents") or []
    return found if isinstance(found, list) else []


def read_calls(folder: Path) -> list[dict]:
    """The upstream's log of a run, in the order of arrival."""
    lines = (folder / "upstream.jsonl").read_text(encoding="utf-8").splitlines()
    return sorted((json.loads(line) for line in lines), key=lambda call: call["number"])


async def observe(name: str, logs: Path, *, newest: bool) -> dict:
    """Run an agent often enough to know what it sends."""
    agent = AGENTS[name]
    runs, families, looks = [], [], set()
    for behavior in [HONEST, HONEST, *([] if "spawn" in agent.cannot else [SPAWN])]:
        row = await try_agent(name, logs, behavior, 120, newest=newest)
        if row["code"] or not row["answer"]:
            raise RuntimeError(f"{name} does not answer: exit code {row['code']}, {row['last_words']!r}, {row['logs']}")
        (families if behavior == SPAWN else runs).append(read_calls(Path(row["logs"])))
        looks |= set(row["looks"])
    return describe(agent, runs, families, sorted(looks), newest=newest)


def compare(known: dict, seen: dict) -> list[str]:
    """What a release sends that the table does not know, and what it no longer sends, in words."""
    found = []
    for name in ("paths", "looks", "query", "headers", "fields", "roles", "betas", "run_is_named_by"):
        before, now = set(known.get(name) or ()), set(seen.get(name) or ())
        found += [f"{name}: {one!r} is new" for one in sorted(now - before)]
        found += [f"{name}: {one!r} is gone" for one in sorted(before - now)]
    for name in ("user_agent", "max_output", "stream", "tool_choice", "dialect", "side_calls"):
        if known.get(name) != seen.get(name):
            found.append(f"{name}: {seen.get(name)!r}, was {known.get(name)!r}")
    old, new = known.get("children") or {}, seen.get("children") or {}
    for name in ("tool", "are_named_by", "headers", "fields", "finishing"):
        if old.get(name) != new.get(name):
            found.append(f"children.{name}: {new.get(name)!r}, was {old.get(name)!r}")
    tools = set(seen.get("tools") or ()) ^ set(known.get("tools") or ())
    return [*found, f"tools: {', '.join(sorted(tools))} differ"] if tools else found


def read_known() -> dict:
    """The table of the repository."""
    return json.loads(OBSERVED.read_text(encoding="utf-8")) if OBSERVED.is_file() else {}


def run_all(names: list[str], logs: Path, *, newest: bool, out: Path | None) -> int:
    """Observe these agents, say what differs from the table, and write the table (never with newest releases)."""
    table = read_known()
    failed = 0
    for name in names:
        if not newest and not is_installed(AGENTS[name].program):
            print(f"{name}: not installed")
            continue
        try:
            seen = asyncio.run(observe(name, logs / name.replace("/", "-"), newest=newest))
        except RuntimeError as error:
            failed += 1
            print(error, file=sys.stderr)
            continue
        for line in compare(table[name], seen) if name in table else ():
            print(f"{name} {seen['version']}: {line}")
        print(f"{name} {seen['version']}: named by {', '.join(seen['run_is_named_by']) or 'nothing'}", flush=True)
        table[name] = seen
    target = out or (None if newest else OBSERVED)
    if target:
        target.write_text(json.dumps(dict(sorted(table.items())), indent=1) + "\n", encoding="utf-8")
    return 1 if failed else 0
