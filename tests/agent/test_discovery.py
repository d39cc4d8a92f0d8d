"""Installed extensions: available by name, active only when listed, and every failure says whose it is."""

import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from glidepath import Agent, AgentBuilder, ConfigurationError, Limits, LoopConfig
from glidepath.testing import ScriptedModel

ROOT = Path(__file__).resolve().parent.parent.parent
LIMITS = Limits(max_iterations=5)

MODULE = """
from glidepath import Plugin, ResourceConstraint, ResourceValidation, tool

class Loud(Plugin):
    def steering(self, context):
        return None

class Free(ResourceConstraint):
    async def validate(self, context):
        return ResourceValidation.ok()

shared = Loud()
free = Free()

def make_loud():
    return Loud()

def crash():
    raise OSError("no such thing")

def leave():
    raise SystemExit(3)

def greet(name: str) -> str:
    "Greet."
    return name

made = tool(greet, name="made")
nothing = 7
"""
POINTS = """
[glidepath.plugins]
loud = extras_for_test:Loud
shared = extras_for_test:shared
made_loud = extras_for_test:make_loud
crash = extras_for_test:crash
leave = extras_for_test:leave
missing_module = no_such_module_at_all:x
missing_name = extras_for_test:nobody
nothing = extras_for_test:nothing
wrong_kind = extras_for_test:free
twice = extras_for_test:Loud

[glidepath.constraints]
free = extras_for_test:Free
free_object = extras_for_test:free

[glidepath.tools]
greet = extras_for_test:greet
made = extras_for_test:made
not_a_tool = extras_for_test:Loud
"""


def distribution(folder, name, points):
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(points, encoding="utf-8")


@pytest.fixture
def extras(tmp_path, monkeypatch):
    (tmp_path / "extras_for_test.py").write_text(MODULE, encoding="utf-8")
    distribution(tmp_path, "extras-for-test", POINTS)
    distribution(tmp_path, "other-extras", "[glidepath.plugins]\ntwice = extras_for_test:make_loud\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("extras_for_test", None)


def agent(**more):
    return Agent(model=ScriptedModel([]), limits=LIMITS, **more)


@pytest.mark.usefixtures("extras")
def test_what_is_installed_is_not_active_until_it_is_listed():
    config = agent().config
    assert (config.plugins, config.constraints, config.tools) == ((), (), ())


@pytest.mark.usefixtures("extras")
def test_names_stand_for_classes_objects_and_functions_that_make_them():
    config = agent(plugins=["shared"], constraints=["free", "free_object"], tools=["greet", "made"]).config
    import extras_for_test

    assert config.plugins == (extras_for_test.shared,)
    assert [type(item).__name__ for item in config.constraints] == ["Free", "Free"]
    assert config.constraints[1] is extras_for_test.free
    assert [item.name for item in config.tools] == ["greet", "made"]
    assert agent(plugins=["loud"]).config.plugins != agent(plugins=["loud"]).config.plugins
    assert type(agent(plugins=["made_loud"]).config.plugins[0]).__name__ == "Loud"


@pytest.mark.usefixtures("extras")
def test_names_work_in_a_config_and_a_builder_too():
    config = LoopConfig(model=ScriptedModel([]), plugins=("loud",))
    assert config.plugin_names().steering == ("loud",)
    assert Agent(config).config.plugin_names().steering == ("loud",)
    assert config.child_builder().build().plugins == ()
    built = AgentBuilder().model(ScriptedModel([])).plugin("loud").tools(["greet"]).build()
    assert (built.plugin_names().steering, built.tools[0].name) == (("loud",), "greet")


@pytest.mark.usefixtures("extras")
@pytest.mark.parametrize(
    ("field", "name", "parts"),
    [
        ("plugins", "lowd", ["there is no 'lowd'", "did you mean 'loud'?", "installed are:", "made_loud"]),
        ("tools", "grete", ["did you mean 'greet'?"]),
        ("constraints", "zzz", ["there is no 'zzz' (installed are: free, free_object)"]),
        ("plugins", "", ["there is no ''"]),
        ("plugins", "crash", ["'crash' of package extras-for-test", "extras_for_test:crash", "OSError: no such thing"]),
        ("plugins", "leave", ["'leave' of package extras-for-test", "SystemExit: 3"]),
        ("plugins", "missing_module", ["missing_module", "extras-for-test", "ModuleNotFoundError"]),
        ("plugins", "missing_name", ["missing_name", "AttributeError"]),
        ("plugins", "nothing", ["expected a Plugin", "7"]),
        ("plugins", "wrong_kind", ["expected a Plugin", "Free"]),
        ("plugins", "twice", ["extras-for-test", "other-extras", "both offer 'twice'"]),
        ("tools", "not_a_tool", ["expected a Tool or a function"]),
    ],
)
def test_a_name_that_cannot_be_used_is_an_error_that_says_why(field, name, parts):
    with pytest.raises(ConfigurationError) as caught:
        agent(**{field: [name]})
    for part in [field, *parts]:
        assert part in str(caught.value)


BROKEN = {
    "no metadata": {"entry_points.txt": b"[glidepath.plugins]\nnameless = extras_for_test:Loud\n"},
    "metadata without a name": {
        "METADATA": b"Metadata-Version: 2.1\n",
        "entry_points.txt": b"[glidepath.plugins]\nnameless = extras_for_test:Loud\n",
    },
    "entry points that are no list": {"METADATA": b"Name: broken\n", "entry_points.txt": b"[glidepath.plugins]\nx\n"},
    "entry points that are no text": {"METADATA": b"Name: broken\n", "entry_points.txt": b"\xff\xfe[glide\0"},
    "a value that leads nowhere": {"METADATA": b"Name: broken\n", "entry_points.txt": b"[glidepath.plugins]\nx = ?!\n"},
}


@pytest.mark.usefixtures("extras")
@pytest.mark.parametrize("files", BROKEN.values(), ids=BROKEN)
def test_a_broken_package_takes_no_other_with_it(files, tmp_path):
    info = tmp_path / "broken-1.0.dist-info"
    info.mkdir()
    for name, content in files.items():
        (info / name).write_bytes(content)
    assert agent(plugins=["loud"]).config.plugin_names().steering == ("loud",)
    with pytest.raises(ConfigurationError, match="did you mean 'loud'"):
        agent(plugins=["lowd"])
    if b"nameless" in files["entry_points.txt"]:
        assert agent(plugins=["nameless"]).config.plugin_names().steering == ("loud",)
    if b"?!" in files["entry_points.txt"]:
        with pytest.raises(ConfigurationError, match="'x' of package broken"):
            agent(plugins=["x"])


def test_without_any_installed_the_error_says_so():
    with pytest.raises(ConfigurationError, match="no installed package offers constraints"):
        agent(constraints=["anything"])


USE = """
import asyncio
from glidepath import Agent, Limits
from glidepath.testing import ScriptedModel, call, say

def busy(request):
    return call("count_words", text="one two three") if request.tools else say("landed")

agent = Agent(model=ScriptedModel().forever(busy), tools=["count_words"], plugins=["redact_numbers"],
              constraints=["quiet_tools"], limits=Limits(max_iterations=20))
result = asyncio.run(agent.run("Count."))
print(result.cause.source, result.tool_calls, result.outcome.name)
print(next(m.text for m in result.messages if m.role == "tool_result"))
"""


@pytest.mark.process
def test_the_example_package_is_built_installed_and_used_by_name(tmp_path):
    source, wheels, target = tmp_path / "source", tmp_path / "wheels", tmp_path / "target"
    shutil.copytree(ROOT / "examples" / "extension_package", source)

    def python(*arguments, **more):
        done = subprocess.run(
            [sys.executable, *arguments], capture_output=True, text=True, timeout=120, check=False, **more
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    python("-m", "hatchling", "build", "--target", "wheel", "--directory", str(wheels), cwd=source)
    [wheel] = wheels.glob("*.whl")
    pip = ("-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps", "--no-index", "--no-compile")
    python(*pip, "--target", str(target), str(wheel))
    script = tmp_path / "use.py"
    script.write_text(textwrap.dedent(USE), encoding="utf-8")
    import os

    printed = python("-W", "error", str(script), env={**os.environ, "PYTHONPATH": str(target)})
    assert printed.splitlines() == ["MostToolCalls 3 WRAPPED_UP", "3 words, reference [number]"]
