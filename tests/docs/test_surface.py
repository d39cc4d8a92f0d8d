"""The public surface is written down: a change of it is a change of a file, and is seen in review."""

import ast
import difflib
import importlib
import importlib.util
import inspect
import re
from typing import Protocol

import pytest
from tests.extension_points import EXTENSION_POINTS, TEXTBOOK, VIEWS

import glidepath.spi
import glidepath.teams.spi
from glidepath import Plugin
from glidepath.spi import HOOKS, Model
from glidepath.stability import Stability, experimental, stable
from glidepath.testing import ScriptedModel
from glidepath.values import stability_of

from .pages import ROOT

IMPORTS = re.compile(r"from (glidepath(?:\.[\w.]+)?) import (\([^)]*\)|[\w, ]+)")


def script():
    spec = importlib.util.spec_from_file_location("make_surface", ROOT / "scripts" / "make_surface.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_dump_of_the_public_surface_is_up_to_date():
    changed = script().outdated()
    lines = []
    for path, text in changed.items():
        before = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        lines += difflib.unified_diff(before, (text or "").splitlines(), path.name, "now", n=0, lineterm="")
    assert not changed, "\n".join(["if this is meant, run scripts/make_surface.py:", *lines])


def test_the_dump_notices_names_signatures_fields_and_values():
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "api").glob("*.txt")))
    for part in (
        "AgentBuilder: glidepath.agent.builder",
        "    async def run(self, prompt: Prompt, *, session",
        "    max_iterations: int | None = None",
        "    WRAPPED_UP = 'wrapped_up'",
        "class Plugin  # experimental",
        "class BuilderError(ConfigurationError)",
    ):
        assert part in text, part
    assert " at 0x" not in text


def test_type_checkers_find_every_public_name():
    """They do not look at what is imported when it is first used."""
    tree = ast.parse((ROOT / "src" / "glidepath" / "__init__.py").read_text(encoding="utf-8"))
    hidden = [node for node in tree.body if isinstance(node, ast.If)]
    found = {name.asname or name.name for block in hidden for line in block.body for name in line.names}
    assert set(glidepath.__all__) - {"__version__"} <= found


# --- markers ----------------------------------------------------------------------------------------------------


def load(path):
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def test_every_protocol_of_the_spi_is_on_the_list_and_every_hook():
    listed = {point.port for point in EXTENSION_POINTS}
    for module in (glidepath.spi, glidepath.teams.spi):
        for name in module.__all__:
            thing = getattr(module, name)
            port = inspect.isclass(thing) and (Protocol in thing.__bases__ or stability_of(thing) is not None)
            if port and name not in VIEWS:
                assert f"{module.__name__}:{name}" in listed, name
    hooks = [point.name for point in EXTENSION_POINTS if point.port == "glidepath.spi:Plugin"]
    assert hooks == list(HOOKS)
    names = [point.name for point in EXTENSION_POINTS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("point", EXTENSION_POINTS, ids=lambda point: point.name)
def test_an_extension_point_is_marked_and_states_what_a_crash_means(point):
    port = load(point.port)
    subject = getattr(port, point.name) if point.name in HOOKS else port
    assert stability_of(subject) is not None
    text = (inspect.getdoc(subject) or "").lower()
    assert any(word in text for word in ("contract", "crash", "raise")), point.name


@pytest.mark.parametrize("point", EXTENSION_POINTS, ids=lambda point: point.name)
def test_an_extension_point_has_two_implementations_or_a_reason(point):
    made = [load(path) for path in point.implementations]
    assert len(set(made)) == len(made)
    if point.name in HOOKS:
        assert all(getattr(kind, point.name) is not getattr(Plugin, point.name) for kind in made)
    else:
        port = load(point.port)
        needed = [name for name, value in vars(port).items() if inspect.isfunction(value) and not name.startswith("_")]
        assert all(issubclass(kind, port) if not is_protocol(port) else has(kind, needed) for kind in made)
    assert (len(made) < 2) == (point.name in TEXTBOOK)
    assert len(TEXTBOOK.get(point.name, "a reason that is long enough")) > 20


def is_protocol(port):
    return getattr(port, "_is_protocol", False)


def has(kind, names):
    return all(callable(getattr(kind, name, None)) for name in names)


def test_a_mark_says_why_or_since_when_and_is_not_inherited():
    @experimental(reason="new")
    class Port:
        @stable(since="1.0")
        def hook(self): ...

    class Mine(Port):
        pass

    assert stability_of(Port) == Stability(level="experimental", reason="new")
    assert stability_of(Port.hook) == Stability(level="stable", since="1.0")
    assert stability_of(Mine) is None
    assert stability_of(7) is None
    for wrong in (lambda: experimental(reason=""), lambda: stable(since=None)):
        with pytest.raises(TypeError):
            wrong()


def test_a_mark_does_not_make_a_protocol_ask_for_more():
    assert isinstance(ScriptedModel([]), Model)


def test_every_module_that_a_page_imports_from_has_a_dump():
    """A reader may rely on what a page shows: without a dump it could change, and nobody would notice."""
    root = ROOT / "docs"
    pages = [
        ROOT / "README.md",
        *(page for page in root.rglob("*.md") if "history" not in page.relative_to(root).parts),
    ]
    public = {dump.stem for dump in (ROOT / "api").glob("*.txt")}
    shown, found = set(), []
    for page in pages:
        for module, names in IMPORTS.findall(page.read_text(encoding="utf-8")):
            shown.add(module)
            offered = getattr(importlib.import_module(module), "__all__", ()) if module in public else ()
            wanted = [name.strip().partition(" as ")[0] for name in names.strip("()").split(",") if name.strip()]
            missing = [name for name in wanted if name not in offered and f"{module}.{name}" not in public]
            found += [f"{page.name}: {module}.{name}" for name in missing]
    assert {"glidepath", "glidepath.events", "glidepath.sessions"} <= shown
    assert found == []
