"""Run the peers' code that the pages about moving show, each in the environment of its peer.

python bench/probes/pages.py

A block of a peer begins with `# no-run: needs <package> <version>`; what it prints stands in `# prints:` comments.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from run import PEERS, ROOT, python_of

PAGES = {
    "from-langgraph.md": "LangGraph",
    "from-openai-agents.md": "OpenAI Agents",
    "from-pydantic-ai.md": "Pydantic AI",
}
BLOCK = re.compile(r"^```python no-run\n(# no-run: needs .*?)^```$", re.MULTILINE | re.DOTALL)
VERSION = "import sys; from importlib.metadata import version; print(version(sys.argv[1]))"


def output(python, *arguments):
    command = [python, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout


def main():
    for page, peer in PAGES.items():
        python = python_of(peer, PEERS[peer][1])
        for code in BLOCK.findall((ROOT / "docs" / page).read_text(encoding="utf-8")):
            package, said = re.match(r"# no-run: needs (\S+) (\S+?)[;,\n]", code).groups()
            there = output(python, "-c", VERSION, package).strip()
            if there != said:
                print(f"{page}: says {package} {said}, ran with {there}")
            with tempfile.TemporaryDirectory() as folder:
                script = Path(folder) / "block.py"
                script.write_text(code, encoding="utf-8")
                printed = output(python, "-W", "ignore", str(script))
            expected = "".join(f"{line}\n" for line in re.findall(r"# prints: (.*)$", code, re.MULTILINE))
            if printed != expected:
                sys.exit(f"{page}: printed\n{printed}instead of\n{expected}")
            print(f"{page}: as shown, with {package} {there}")


if __name__ == "__main__":
    main()
