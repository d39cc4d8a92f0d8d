"""Makes an agent from settings: finds models and tools by name."""

from __future__ import annotations

import json
import re
import shlex
import sys
from ast import literal_eval
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from glidepath.agent import Agent, ExecutionMode, Limits
from glidepath.agent.discovery import list_entry_points, load_installed
from glidepath.apps.cli.cli_context import CliContext
from glidepath.apps.cli.instructions import (
    load_agent_files,
    load_skills,
    project_instructions,
    shape_by_agent_file,
)
from glidepath.apps.cli.layers import Known, LoadedSettings
from glidepath.apps.cli.own_prompt import PROMPT, has_own_prompt, write_own_prompt
from glidepath.apps.cli.settings import SETTINGS
from glidepath.apps.cli.stores import NO_STORE, add_redaction, make_store, store_path
from glidepath.guards import GuardrailsConfig
from glidepath.guards.approvals import Rules
from glidepath.tools import Tool, find_closest, tool
from glidepath.values import ConfigurationError, Texts, describe_error, install_line
from glidepath.workspace import Workspace

EMBEDDED = ("local:", "local:smollm2")


def make_agent(
    settings: LoadedSettings,
    world: CliContext,
    *,
    model: str | None = None,
    plugins: Sequence[Any] = (),
    output: type | None = None,
) -> Agent:
    """The agent that the settings describe; raises `ConfigurationError` if they are wrong."""
    if settings.agent is not None:
        from glidepath.apps.cli.own_agent import adapt_agent

        return adapt_agent(settings.agent, settings, world, model=model, plugins=plugins, output=output)
    fields = config_fields(settings)
    name = model or settings.get("model")
    if not name:
        if "model" in settings.ignored:
            raise ConfigurationError(
                f"no model is named: the one in {settings.ignored['model'].origin} is ignored, because this folder is "
                "not trusted. Trust it with `glidepath trust`, or pass --model NAME"
            )
        raise ConfigurationError(
            "no model is named: pass --model NAME, set GLIDEPATH_MODEL, or write model = ... into glidepath.toml; "
            "`glidepath models` lists the providers; without a key: local:smollm2, or `glidepath demo`"
        )
    if name in EMBEDDED:
        _offer_little(settings, world)  # first: nobody fetches a model to hear that it cannot do this
    fields["model"] = make_model(name, world)
    from glidepath.apps.cli.servers import make_servers

    fields["tools"] = (*make_tools(settings, world), *make_servers(settings, world))
    if fields.get("fallback_models"):
        fields["fallback_models"] = tuple(make_model(one, world) for one in fields["fallback_models"])
    if fields.get("store"):
        fields["store"] = open_store(fields["store"], settings, world)
    if settings.get("telemetry.otel"):
        plugins = (set_up_telemetry(settings), *plugins)
    if plugins:
        fields["plugins"] = (*fields.get("plugins", ()), *plugins)
    told = project_instructions(world, wanted=settings.get("agents_md") is not False)
    # The embedded model is too small to make use of it, and an agent from a file has its own.
    if has_own_prompt(settings) and name not in EMBEDDED and not settings.get("agent_file"):
        fields[PROMPT] = write_own_prompt(settings[PROMPT], world.folder)
    if told:
        fields[PROMPT] = "\n\n".join(filter(None, [fields.get(PROMPT), told]))
    if name not in EMBEDDED or settings.get("overload"):
        fields["skills"], fields["agents"] = load_skills(settings, world), load_agent_files(settings, world)
    if settings.get("agent_file"):
        fields = shape_by_agent_file(fields, settings, world)
    if output is not None:
        fields["output_type"] = output
    try:
        return Agent(**fields)
    except ConfigurationError as error:
        raise ConfigurationError(rephrase_error(str(error))) from error


def open_store(named: str, settings: LoadedSettings, world: CliContext) -> Any:
    """The store of this name, behind the hook that redacts; None for `none`."""
    return None if named == NO_STORE else add_redaction(make_store(named, world), settings, world)


def set_up_telemetry(settings: LoadedSettings) -> Any:
    """Set up the OpenTelemetry SDK and return the plugin."""
    chosen = settings.is_set_by_person("telemetry.content")  # else the environment decides
    return make_telemetry(settings.get("telemetry.content") if chosen else None)


def make_telemetry(content: bool | None = None) -> Any:
    """Set up the OpenTelemetry SDK and return the plugin; without `content` the environment decides about texts."""
    check_telemetry()
    from glidepath.apps.telemetry import OpenTelemetry
    from glidepath.apps.telemetry.sdk import set_up_sdk

    set_up_sdk()
    return OpenTelemetry(content=content)


def check_telemetry() -> None:
    """Raise `ConfigurationError` where what telemetry needs is not installed."""
    try:
        for module in ("glidepath.apps.telemetry.sdk", "opentelemetry.sdk"):
            import_module(module)
    except ImportError:
        raise ConfigurationError(
            "--otel needs the extra otel and the OpenTelemetry SDK: "
            + install_line("otel", "opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http")
        ) from None


def _offer_little(settings: LoadedSettings, world: CliContext) -> None:
    """The embedded model can call one simple tool. With more it makes things up, so `--overload` is required."""
    tools, servers = settings["tools"], settings.get("mcp") or settings.get("mcp_config")
    if settings.get("overload"):
        return
    if not settings.is_set_by_person("tools") and not servers:
        if tools:
            world.note_once("the embedded model gets no tools: it is too small for them. --tools NAME gives it one")
        settings.known["tools"] = Known((), "default")
    elif len(tools) > 1 or servers or set(tools) & {"write", "edit", "shell"}:
        raise ConfigurationError(
            f"the embedded model cannot handle {', '.join(tools) or 'the tools of MCP servers'}: it has 135 million "
            "parameters, and with more than one simple tool it makes up what it did. Pass --overload to try it "
            "anyway, or name a larger model (`glidepath models`)"
        )


def rephrase_error(text: str) -> str:
    """The error, with the command-line fix instead of the Python one."""
    for said, name, figures in re.findall(r"(prices=\{('.*?'|\".*?\"): \((.*?)\)\})", text):
        prices = {literal_eval(name): ["0", "0"] if figures == "0, 0" else ["3", "15"]}
        text = text.replace(said, f"--set {shlex.quote(f'prices={json.dumps(prices)}')}")
    text = text.replace("}' in dollars per million tokens", "}' (dollars per million tokens, input and output)")
    text = text.replace("(max_cost)", "(--max-budget-usd)").replace("remove max_cost", "remove --max-budget-usd")
    return text.replace("unpriced='estimate:<model>'", "--set unpriced=estimate:MODEL")


def config_fields(settings: LoadedSettings) -> dict[str, Any]:
    """The fields of a `LoopConfig` that the settings name; the model and the tools are still names."""
    groups: dict[str, dict[str, Any]] = {"LoopConfig": {}, "Limits": {}, "GuardrailsConfig": {}}
    for setting in SETTINGS:
        group, _, field = setting.python.partition(".")
        if group and setting.key in settings.known and not (setting.key == PROMPT and has_own_prompt(settings)):
            groups[group][field] = settings[setting.key]
    fields = groups["LoopConfig"]
    if "default_execution_mode" in fields:
        fields["default_execution_mode"] = ExecutionMode(fields["default_execution_mode"])
    if "texts" in fields:
        fields["texts"] = Texts(**fields["texts"])
    if groups["Limits"]:
        fields["limits"] = Limits(**groups["Limits"])
    rules = make_rules({key: known.value for key, known in settings.known.items()})
    if rules is not None:
        fields["approvals"] = rules
    if groups["GuardrailsConfig"]:
        fields["guardrails"] = GuardrailsConfig(**groups["GuardrailsConfig"])
    return fields


def make_rules(values: Mapping[str, Any]) -> Rules | None:
    """The section [approvals] of these settings; None when nothing is in it."""
    named = {name: values.get(f"approvals.{name}") for name in Rules.__struct_fields__}
    given = {name: value for name, value in named.items() if value}
    return Rules(**given) if given else None


# --- by name ------------------------------------------------------------------------------------------------------


def make_model(name: str, world: CliContext) -> Any:
    """The model a name stands for: `python:package.module:attribute`, or a provider's `provider:name`.

    GLIDEPATH_API_KEY is sent to a compatible server. A name from a file in an untrusted folder never comes here.
    """
    if name.startswith("python:"):
        found = find_object(name, world)
        if isinstance(found, type) or not callable(getattr(found, "stream", None)):
            found = _call_model_factory(found, name)
        return found
    from glidepath.apps.cli.keyring_keys import read_key
    from glidepath.models import resolve
    from glidepath.models.hosts import HOSTS

    key = world.environ.get("GLIDEPATH_API_KEY") if name.startswith("openai-compatible:") else None
    host = HOSTS.get(name.partition(":")[0])
    if host is not None and host.key and not world.environ.get(host.key):
        key = read_key(host.key)
    try:
        return resolve(name, api_key=key)
    except ConfigurationError as error:
        raise ConfigurationError(str(error).replace(", or pass api_key=", "")) from error


def _call_model_factory(factory: object, name: str) -> Any:
    if not callable(factory):
        raise ConfigurationError(
            f"{name}: expected a Model, or a function that makes one, got {type(factory).__name__}"
        )
    try:
        return factory()
    except Exception as error:
        raise ConfigurationError(f"{name}: making the model failed: {describe_error(error)}") from error


def search_folder(world: CliContext) -> None:
    """Let imports find the modules of the current folder, as with `python -m`."""
    here = str(world.folder)
    if here not in sys.path:
        sys.path.insert(0, here)


def find_object(name: str, world: CliContext) -> Any:
    """What `python:package.module:attribute` names; the current folder is searched, as with `python -m`."""
    _, _, path = name.partition(":")
    module, sign, attribute = path.partition(":")
    if not sign or not module or not attribute:
        raise ConfigurationError(f"{name}: expected python:package.module:attribute")
    search_folder(world)
    try:
        found: Any = import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:
        raise ConfigurationError(f"{name}: {describe_error(error)}") from error
    return found


def workspace_folder(settings: LoadedSettings, world: CliContext) -> Path:
    """The folder the tools work in."""
    try:
        folder = (world.folder / Path(settings.get("workspace") or ".").expanduser()).resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise ConfigurationError(f"workspace: {settings['workspace']!r:.80} is not a path ({error})") from None
    if not folder.is_dir():
        raise ConfigurationError(f"workspace: {folder} is not a folder")
    return folder


def make_tools(settings: LoadedSettings, world: CliContext) -> tuple[Tool, ...]:
    """The tools by name: built-in ones, `python:module:attribute`, or installed ones."""
    names = settings["tools"]
    if not names:
        return ()
    from glidepath.workspace import workspace_tools
    from glidepath.workspace.toolset import TOOL_NAMES

    built_in = [name for name in names if name in TOOL_NAMES]
    made: dict[str, Any] = {}
    if built_in:
        allowed = settings.get("allow_protected") or ()
        workspace = Workspace(
            workspace_folder(settings, world),
            allow_protected=allowed,
            protect=_list_own_files(settings, world),
            secrets=settings.get("secret_files"),
        )
        approve, home = settings["approve"] != "all", settings.get("shell_home")
        tools = workspace_tools(
            workspace,
            built_in,
            sandbox=settings["sandbox"],
            shell_approval=approve,
            shell_home=None if home is None else world.folder / Path(home).expanduser(),
        )
        made = {item.name: item for item in tools}
        _note_missing_sandbox(made.get("shell"), world)
    return tuple(made[name] if name in made else _load_tool(name, world) for name in names)


def _list_own_files(settings: LoadedSettings, world: CliContext) -> list[Path]:
    """Files that decide about this run or the next one: the configuration, and the store with its approvals."""
    files = [settings.file] if settings.file is not None else []
    store = store_path(settings.get("store") or NO_STORE, world)
    return files if store is None else [*files, store, Path(f"{store}-wal"), Path(f"{store}-shm")]


def _note_missing_sandbox(shell: Tool | None, world: CliContext) -> None:
    from glidepath.workspace.shell import NO_SANDBOX

    reason = (shell.approval_reason or "") if shell is not None else ""
    if reason.startswith(NO_SANDBOX):
        world.note_once(reason.replace("the command runs", "shell commands run"))


_SAME = {"bash": "shell", "sh": "shell", "exec": "shell", "cat": "read", "ls": "list", "search": "grep", "rg": "grep"}


def _load_tool(name: str, world: CliContext) -> Tool:
    from glidepath.workspace.toolset import TOOL_NAMES

    if name.startswith("python:"):
        found = find_object(name, world)
        return found if isinstance(found, Tool) else tool(found)
    if name not in list_entry_points("tools"):
        meant = _SAME.get(name.lower()) or find_closest(name, TOOL_NAMES)
        hint = f"; did you mean {meant!r}?" if meant else "."
        others = ", ".join([*TOOL_NAMES, *list_entry_points("tools")])
        raise ConfigurationError(
            f"tools: there is no tool {name!r}{hint} The tools are {others}, or python:MODULE:FUNCTION for one of yours"
        )
    return load_installed("tools", name)  # type: ignore[no-any-return]
