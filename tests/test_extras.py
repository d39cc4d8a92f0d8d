"""What a missing extra answers: the line that installs it, from where glidepath itself came."""

import importlib.metadata
import importlib.util
import json
import sys

import pytest

from glidepath import Agent, Limits
from glidepath.errors import ConfigurationError
from glidepath.testing import ScriptedModel, say
from glidepath.values import install_line, require_extra

from .cli.shell_user import glidepath

HERE = {"url": "file:///home/me/a%20folder/glidepath", "dir_info": {}}
GIT = {"url": "https://example.org/glidepath.git", "vcs_info": {"vcs": "git", "commit_id": "c0ffee"}}
WHEEL = {"url": "file:///tmp/glidepath-0.1.0-py3-none-any.whl", "archive_info": {}}


class Installed:
    """A distribution whose origin is this."""

    def __init__(self, origin):
        self.origin = origin

    def read_text(self, name):
        assert name == "direct_url.json"
        return self.origin


@pytest.mark.parametrize(
    ("origin", "line"),
    [
        (json.dumps(HERE), "pip install '/home/me/a folder/glidepath[mcp]'"),
        (json.dumps({**HERE, "dir_info": {"editable": True}}), "pip install -e '/home/me/a folder/glidepath[mcp]'"),
        (json.dumps(WHEEL), "pip install 'glidepath[mcp] @ file:///tmp/glidepath-0.1.0-py3-none-any.whl'"),
        (json.dumps(GIT), "pip install 'glidepath[mcp] @ git+https://example.org/glidepath.git@c0ffee'"),
        (json.dumps({"url": "https://example.org/x.whl"}), "pip install 'glidepath[mcp] @ https://example.org/x.whl'"),
        (None, "pip install 'glidepath[mcp]'"),
        ("not json", "pip install 'glidepath[mcp]'"),
        ("[]", "pip install 'glidepath[mcp]'"),
        ('{"url": "file:///x", "dir_info": 3}', "pip install '/x[mcp]'"),
    ],
    ids=["folder", "editable", "wheel", "git", "address", "index", "garbage", "list", "odd"],
)
def test_the_line_names_the_place_glidepath_was_installed_from(monkeypatch, origin, line):
    monkeypatch.setattr(importlib.metadata, "distribution", lambda _: Installed(origin))
    assert install_line("mcp") == line


@pytest.mark.parametrize(
    ("receipt", "pip", "line"),
    [
        ("pipx_metadata.json", True, "pipx inject glide 'glidepath[mcp]'"),
        ("pipx_metadata.json", False, "pipx inject glide 'glidepath[mcp]'"),
        ("uv-receipt.toml", False, "uv pip install --python '/opt/my tools/python' 'glidepath[mcp]'"),
        ("pyvenv.cfg", True, "pip install 'glidepath[mcp]'"),
    ],
)
def test_the_line_works_in_an_environment_of_pipx_or_uv(monkeypatch, tmp_path, receipt, pip, line):
    prefix = tmp_path / "glide"
    prefix.mkdir()
    (prefix / receipt).touch()
    monkeypatch.setattr(importlib.metadata, "distribution", lambda _: Installed(None))
    monkeypatch.setattr(sys, "prefix", str(prefix))
    monkeypatch.setattr(sys, "executable", "/opt/my tools/python")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: (name == "pip" and pip) or None)
    assert install_line("mcp") == line


def test_a_source_folder_that_was_never_installed_is_installed_from_there(monkeypatch, tmp_path):
    here = sys.modules[install_line.__module__]

    def nowhere(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", nowhere)
    (tmp_path / "pyproject.toml").write_text('name = "glidepath"')
    monkeypatch.setattr(here, "__file__", str(tmp_path / "src" / here.__name__.replace(".", "/")) + ".py")
    assert install_line("mcp") == f"pip install -e '{tmp_path}[mcp]'"


def without(monkeypatch, package, *ours):
    """As if the package were not installed, and these modules of ours not imported yet."""
    for name in [name for name in sys.modules if name.partition(".")[0] == package or name.startswith(ours or "\0")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)


def scripted(**fields):
    return Agent(model=ScriptedModel([say("Hello.")]), limits=Limits(max_iterations=2), **fields)


def test_the_import_of_otel_without_its_package_says_how_to_install_it(monkeypatch):
    without(monkeypatch, "opentelemetry", "glidepath.otel", "glidepath.apps.telemetry")
    with pytest.raises(ImportError) as caught:
        import glidepath.otel  # noqa: F401
    assert str(caught.value) == f"glidepath.otel needs opentelemetry-api: {install_line('otel')}"


def test_a_package_that_lacks_something_itself_is_a_configuration_error_that_names_it(monkeypatch, tmp_path):
    """One that is called like the beginning of the package, too."""
    (tmp_path / "vendor_sdk.py").write_text("import vendor\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigurationError, match=r"imported \(ModuleNotFoundError: No module named 'vendor'\): pip"):
        require_extra("vendor_sdk", "this needs it", "mcp")
    with pytest.raises(ConfigurationError, match=r"this needs it: pip install"):
        require_extra("vendor.sdk", "this needs it", "mcp")


def test_a_server_without_its_package_says_how_to_install_it(monkeypatch):
    from glidepath.serve import app

    without(monkeypatch, "starlette")
    with pytest.raises(ConfigurationError) as caught:
        app([scripted(agent_name="helper")])
    assert str(caught.value) == f"the server needs starlette: {install_line('serve')}"


def test_code_mode_without_its_package_says_how_to_install_it(monkeypatch):
    from glidepath.code import CodeMode

    without(monkeypatch, "pydantic_monty")
    with pytest.raises(ConfigurationError) as caught:
        scripted(plugins=[CodeMode()])
    assert str(caught.value) == f"code mode needs pydantic-monty: {install_line('code')}"


@pytest.mark.parametrize(
    ("model", "module", "extra", "says"),
    [
        ("openai:gpt-5", "openai", "openai", "OpenAI models need the openai package"),
        ("groq:llama-3.3-70b-versatile", "openai", "openai", "OpenAI models need the openai package"),
        ("anthropic:claude-sonnet-4-5", "anthropic", "anthropic", "Anthropic models need the anthropic package"),
        ("bedrock:anthropic.claude-sonnet-4-5", "anthropic", "bedrock", "Anthropic models need the anthropic package"),
        ("vertex:claude-sonnet-4-5", "anthropic", "vertex", "Anthropic models need the anthropic package"),
        ("google:gemini-3-pro", "google.genai", "google", "Google models need the google-genai package"),
        ("google:gemini-3-pro", "google", "google", "Google models need the google-genai package"),
        ("local:smollm2", "platformdirs", "local", "the embedded model needs platformdirs, to find its folder"),
    ],
)
def test_a_model_without_its_package_says_how_to_install_it(monkeypatch, model, module, extra, says):
    without(monkeypatch, module)
    with pytest.raises(ConfigurationError) as caught:
        Agent(model=model, limits=Limits(max_iterations=2))
    assert str(caught.value) == f"model {model!r}: {says}: {install_line(extra)}"


def test_a_package_that_is_there_and_lacks_something_names_that_and_the_line(monkeypatch, tmp_path):
    (tmp_path / "anthropic.py").write_text("import anthropic_needs_this")
    without(monkeypatch, "anthropic")
    monkeypatch.delitem(sys.modules, "anthropic")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigurationError) as caught:
        Agent(model="anthropic:claude-sonnet-4-5", limits=Limits(max_iterations=2))
    lacks = "which cannot be imported (ModuleNotFoundError: No module named 'anthropic_needs_this')"
    expected = f"Anthropic models need the anthropic package, {lacks}: {install_line('anthropic')}"
    assert str(caught.value) == f"model 'anthropic:claude-sonnet-4-5': {expected}"


@pytest.mark.parametrize(
    ("argv", "module", "extra", "package"),
    [
        (("deck", "--demo"), "starlette", "serve", "starlette"),
        (("acp", "--agent", "agents:helper"), "acp", "serve", "agent-client-protocol"),
        (("completion", "bash"), "shtab", "cli", "shtab"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else value,
)
def test_a_command_without_its_package_names_the_package_and_the_line(
    monkeypatch, tmp_path, argv, module, extra, package
):
    without(monkeypatch, module)
    ran = glidepath(*argv, folder=tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == f"glidepath: error: this command needs {package}: {install_line(extra)}\n"
