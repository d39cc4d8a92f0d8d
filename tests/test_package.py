"""What is shipped: the wheel installs clean and runs the README's first program; the source archive is whole."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import msgspec
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import glidepath

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
pytestmark = pytest.mark.process


def run(*command, **options):
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("COV", "PYTHON", "PIP_"))}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=clean, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The wheel and the source archive, built as `python -m build` builds them, without a network."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT))
    (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, source


def test_the_wheel_holds_the_package_its_types_and_nothing_else(built):
    with zipfile.ZipFile(built[0]) as archive:
        names = archive.namelist()
        metadata = archive.read(next(name for name in names if name.endswith("METADATA"))).decode()
    package = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src" / "glidepath").rglob("*")}
    shipped = {name for name in package if (ROOT / "src" / name).is_file() and "__pycache__" not in name}
    info = f"glidepath-{glidepath.__version__}.dist-info/"
    assert {name for name in names if not name.startswith(info)} == shipped
    assert "glidepath/py.typed" in names
    assert f"{info}licenses/LICENSE" in names
    needed = [line for line in metadata.splitlines() if line.startswith("Requires-Dist:") and "extra" not in line]
    assert needed == ["Requires-Dist: msgspec>=0.20"]


def test_the_source_archive_can_build_test_and_document_itself(built):
    with tarfile.open(built[1]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    needed = """pyproject.toml README.md LICENSE CHANGELOG.md CONTRIBUTING.md SECURITY.md Makefile mkdocs.yml
        docs/index.md src/glidepath/py.typed requirements/dev.txt requirements/docs.txt requirements/constraints.txt
        requirements/demo.txt requirements/image.txt requirements/build.txt .dockerignore
        tests/test_package.py deck/package-lock.json examples/batch.py deck/src/main.tsx
        scripts/docs_site.py config/samples/local.toml"""
    for name in needed.split():
        assert name in names, name
    strange = [name for name in names if re.search(r"__pycache__|\.venv|\.pyc$|^build/|\.git/", name)]
    assert not strange


def test_the_wheel_installs_clean_and_the_readmes_first_program_runs(built, tmp_path):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    program, expected = re.search(
        r"^```python\n(.*?)^```\n```text output\n(.*?)^```", readme, re.MULTILINE | re.DOTALL
    ).groups()
    home = tmp_path / "env"
    venv.create(home, with_pip=True)
    python = home / "bin" / "python"
    run(python, "-m", "pip", "install", "--no-index", "--no-deps", "--quiet", str(built[0]))
    # Its one dependency, from this environment: no network, and nothing else of what is installed here.
    place = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('platlib'))").strip())
    (place / "msgspec").symlink_to(Path(msgspec.__file__).parent)
    (tmp_path / "first.py").write_text(program, encoding="utf-8")
    assert run(python, "-W", "error", "first.py", cwd=tmp_path) == expected
    where = run(python, "-c", "import glidepath; print(glidepath.__file__, glidepath.__version__)", cwd=tmp_path)
    assert str(home) in where
    assert run(home / "bin" / "glidepath", "--version", cwd=tmp_path).split()[-1] == glidepath.__version__


def test_the_version_is_the_same_everywhere():
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert PROJECT["project"]["version"] == glidepath.__version__
    released = re.findall(r"^## \[(\d[^\]]*)\]", changes, re.MULTILINE)
    assert released[:1] in ([], [glidepath.__version__])


@pytest.mark.parametrize("file", ["constraints.txt", "demo.txt", "dev.txt", "docs.txt", "image.txt", "build.txt"])
def test_every_requirement_is_pinned_with_its_hashes(file):
    text = (ROOT / "requirements" / file).read_text(encoding="utf-8").replace("\\\n", " ")
    rows = [line for line in text.splitlines() if line.strip()]
    assert rows
    for row in rows:
        assert re.match(r"[a-z0-9._-]+(\[[a-z0-9,._-]+\])?==\S+ .*--hash=sha256:", row), row[:80]


def test_every_dependency_is_in_the_constraints():
    project = PROJECT["project"]
    asked = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    assert names(asked) - {"glidepath"} <= pinned("constraints.txt")
    assert names(PROJECT["dependency-groups"]["docs"]) <= pinned("docs.txt")


@pytest.mark.parametrize("file", ["demo.txt", "dev.txt", "image.txt"])
def test_extras_that_a_pinned_package_asks_for_are_pinned(file):
    """Older versions of pip take the newest `psycopg[binary]` if only `psycopg` is pinned, and it has no hash."""
    text = (ROOT / "requirements" / file).read_text(encoding="utf-8")
    rows = re.findall(r"^([a-z0-9._-]+)(?:\[([^\]]*)\])?==", text, re.MULTILINE)
    extras = {name: set(found.split(",")) if found else set() for name, found in rows}
    lacking = []
    for name in extras:
        try:
            asked = metadata.requires(name) or []
        except metadata.PackageNotFoundError:  # for another system, or of an extra that is not installed here
            continue
        for one in map(Requirement, asked):
            wanted = one.extras - extras.get(canonicalize_name(one.name), one.extras)
            if wanted and (one.marker is None or one.marker.evaluate({"extra": ""})):
                lacking.append(f"{name} asks for {one}")
    assert not lacking


def names(requirements):
    return {re.match(r"[A-Za-z0-9._-]+", one)[0].lower() for one in requirements}


def pinned(file):
    text = (ROOT / "requirements" / file).read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z0-9._-]+)(?:\[[^\]]*\])?==", text, re.MULTILINE))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_demo_runs_from_the_wheel_with_the_line_that_the_page_shows(built, tmp_path):
    uv = shutil.which("uvx")
    if uv is None:
        pytest.skip("uv is missing: https://docs.astral.sh/uv/")
    page = (ROOT / "docs" / "running-without-a-key.md").read_text(encoding="utf-8")
    line = next(line.strip() for line in page.splitlines() if line.strip().startswith("uvx "))
    (tmp_path / "dist").mkdir()
    shutil.copy(built[0], tmp_path / "dist")
    home = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "XDG_DATA_HOME": str(tmp_path / "data")}
    done = subprocess.run(
        ["sh", "-c", line],  # as a person types it
        cwd=tmp_path,
        env=home,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout
    assert "The model is local:smollm2" in said or "A scripted model takes its place" in said
    for scene in ("1. A limit that lands", "2. A budget that holds", "3. A stuck loop, noticed", "contained by"):
        assert scene in said


def test_packages_import_where_there_is_no_fcntl_and_no_pwd():
    """Prevents an `import glidepath.mcp` that fails on Windows, where MCP servers over HTTP need none of these."""
    program = """
import importlib, sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name in ("fcntl", "grp", "pty", "pwd", "resource", "termios", "tty"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
for name in ("fcntl", "grp", "pty", "pwd", "resource", "termios", "tty"):
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Blocked())
for name in sys.argv[1:]:
    importlib.import_module(name)
"""
    names = ["mcp", "mcp.mcp_tool_source", "workspace", "sandbox", "conformance", "tools", "tools.processes", "serve"]
    modules = [f"glidepath.{name}" for name in names]
    done = subprocess.run([sys.executable, "-c", program, *modules], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
