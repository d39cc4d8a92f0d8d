"""What a release is made of: the page of the flight deck in its archives, pinned actions, known licenses."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from .docs.pages import script

ROOT = Path(__file__).resolve().parent.parent
CHECK = script(ROOT / "scripts" / "release_check.py")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
BUILDS = """#!/bin/sh
[ "$3" = ci ] && exit 0
[ "$3" = run ] && mkdir -p "$2/../{folder}" && echo '<script src="assets/a.js">' > "$2/../{page}"
"""


@pytest.fixture
def tree(tmp_path):
    """As much of a checkout as a wheel needs, without the page."""
    folder = tmp_path / "tree"
    for name in ("pyproject.toml", "README.md", "LICENSE", "scripts/hatch_build.py", "src/glidepath/__init__.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    for name in ("package-lock.json", "src/main.tsx"):
        (folder / "deck" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "deck" / name).touch()
    (tmp_path / "bin").mkdir()
    return folder


def build(tree, npm=None, **environ):
    """Build a wheel where this npm, or none, is in PATH."""
    programs = tree.parent / "bin"
    if npm is not None:
        (programs / "npm").write_text(npm, encoding="utf-8")
        (programs / "npm").chmod(0o755)
        for name in ("sh", "mkdir"):
            (programs / name).symlink_to(shutil.which(name))
    return subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel"],
        cwd=tree,
        env={"PATH": str(programs), "HOME": os.environ.get("HOME", ""), **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def names_in(tree):
    (wheel,) = (tree / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


@pytest.mark.process
def test_a_release_without_the_page_and_without_npm_is_refused(tree):
    done = build(tree, GLIDEPATH_RELEASE="1")
    assert done.returncode != 0
    assert "a release needs the flight deck's page" in done.stderr
    assert "npm is missing" in done.stderr
    assert not list(tree.glob("dist/*.whl"))


@pytest.mark.process
def test_without_npm_an_ordinary_wheel_has_no_page_and_says_so(tree):
    done = build(tree)
    assert done.returncode == 0, done.stderr
    assert "the package has no flight deck: npm is missing" in done.stderr
    assert CHECK.PAGE not in names_in(tree)


@pytest.mark.process
def test_npm_builds_the_page_that_the_wheel_lacks(tree):
    page = f"src/{CHECK.PAGE}"
    done = build(tree, BUILDS.format(folder=Path(page).parent, page=page), GLIDEPATH_RELEASE="1")
    assert done.returncode == 0, done.stderr
    assert CHECK.PAGE in names_in(tree)


@pytest.mark.process
def test_an_npm_that_fails_fails_a_release_with_its_words(tree):
    done = build(tree, "#!/bin/sh\necho no network >&2; exit 1\n", GLIDEPATH_RELEASE="1")
    assert done.returncode != 0
    assert "npm ci failed: no network" in done.stderr


def test_every_extra_says_what_has_to_import_where_only_it_is_installed():
    assert set(CHECK.IMPORTS) == set(PROJECT["optional-dependencies"]) - CHECK.NOT_SHIPPED


def test_every_action_is_pinned_by_its_digest_and_names_its_version():
    lines = [
        line.strip()
        for path in (ROOT / ".github" / "workflows").glob("*.yml")
        for line in path.read_text(encoding="utf-8").splitlines()
        if "uses:" in line
    ]
    assert len(lines) >= 8
    for line in lines:
        assert re.search(r"uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line), line


def test_every_license_in_the_page_is_known_and_nothing_for_development_counts():
    lock = json.loads((ROOT / "deck" / "package-lock.json").read_text(encoding="utf-8"))
    parts = list(CHECK.npm_parts(lock))
    assert {"preact", "uplot"} <= {part["name"] for part in parts}
    assert "vite" not in {part["name"] for part in parts}
    assert [part for part in parts if not CHECK.FREE.search(CHECK.name_license(part))] == []


@pytest.mark.parametrize("said", ["GPL-3.0-only", "unknown", "", "AGPL", "LicenseRef-Proprietary", "Commercial"])
def test_a_license_that_nobody_has_looked_at_stops_a_release(said):
    assert not CHECK.FREE.search(said)


def test_the_constraints_for_a_new_archive_are_the_pinned_versions_without_hashes(tmp_path):
    rows = CHECK.write_constraints(tmp_path).read_text(encoding="utf-8").split("\n")
    assert "msgspec==0.22.0" in [row.strip() for row in rows]
    assert not [row for row in rows if "--hash" in row or "\\" in row or "[" in row]
