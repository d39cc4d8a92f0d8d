"""Fly the same four probes on glidepath and on each peer, each in an environment of its own, and write the table.

python bench/probes/run.py             # newest releases; writes build/probes.json and the table of docs/comparison.md
python bench/probes/run.py --no-page   # only build/probes.json
"""

import argparse
import json
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PAGE = ROOT / "docs" / "comparison.md"
BEGIN, END = "<!-- probes: written by bench/probes/run.py -->", "<!-- end of probes -->"
PEERS = {  # name, its probe, what is installed
    "LangGraph": ("langgraph_.py", ["langgraph", "langchain"]),
    "OpenAI Agents": ("openai_agents_.py", ["openai-agents"]),
    "Pydantic AI": ("pydantic_ai_.py", ["pydantic-ai-slim"]),
    "Strands": ("strands_.py", ["strands-agents"]),
    "Agno": ("agno_.py", ["agno"]),
    "Microsoft Agent Framework": ("agent_framework_.py", ["agent-framework-core"]),
}


def python_of(name, packages):
    """The interpreter of a peer's environment, which is made when it is not there."""
    folder = ROOT / "build" / "probes" / name.lower().replace(" ", "-")
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    install = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--upgrade", *packages]
    subprocess.run(install, check=True, stderr=subprocess.DEVNULL)
    return python


def flown(python, probe):
    command = [python, HERE / probe]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        sys.exit(f"{probe} failed:\n{done.stderr}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def shown(probe, figure):
    if probe is None:
        return "no such limit"
    if probe["ended"].startswith("nothing"):
        return f"nothing ended it; more than {probe['calls']} calls"
    ended = "a result" if probe["ended"] == "result" else probe["ended"]
    ended = ended if " " in ended else f"`{ended}`"
    answer = ", with an answer" if probe["answer"] else ", no answer" if probe["ended"] == "result" else ""
    return f"{ended}{answer}; {probe[figure]:,} {figure}"


def table(results):
    head = ["", "4 turns", "40,000 tokens", "40,000 tokens for 8 agents", "parent of 3 turns, child without a limit"]
    rows = [head, ["---"] * len(head)]
    for name, result in results.items():
        turns = shown(result["turns"], "calls")
        if "turns_other" in result:
            turns += "<br>or " + shown(result["turns_other"], "calls")
        cells = [shown(result[probe], "tokens") for probe in ("tokens", "shared")]
        rows.append([f"{name} {result['version']}", turns, *cells, shown(result["child"], "calls")])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def inserted(page, begin, end, made):
    """The page with this between its two marks."""
    head, _, rest = page.partition(begin)
    return f"{head}{begin}\n{made}\n{end}{rest.partition(end)[2]}"


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--no-page", action="store_true")
    chosen = options.parse_args()
    results = {"glidepath": flown(sys.executable, "glidepath_.py")}
    for name, (probe, packages) in PEERS.items():
        print(name, file=sys.stderr)
        results[name] = flown(python_of(name, packages), probe)
    out = ROOT / "build" / "probes.json"
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    made = table(results)
    print(made)
    if not chosen.no_page:
        PAGE.write_text(inserted(PAGE.read_text(encoding="utf-8"), BEGIN, END, made), encoding="utf-8")


if __name__ == "__main__":
    main()
