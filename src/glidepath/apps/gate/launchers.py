"""How a foreign program is pointed at a gate: variables, inserted flags, a temporary overlay. User files never change.

`LAUNCHERS` is the table, as data. A text in it may name the base URL of a vendor (`{anthropic}`, `{openai}`,
`{gemini}`, without `/v1`) and the key for it (`{openai_key}`; empty where the program's own login is passed through).
Such a base URL has the gate's key in it, so it must not get onto a command line, which every user of the machine can
read: `{openai_door}` has no key in it, and `{openai_door_key}` is what a header must bring then. A program that is not
in the table gets the variables of all vendors, which most SDKs read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from glidepath._wire import Record, Value

KEY_VARIABLE = "GLIDEPATH_GATE_KEY"
URL_VARIABLE = "GLIDEPATH_GATE_URL"
VENDORS_VARIABLE = "GLIDEPATH_GATE_VENDORS"


class VendorVariables(Value, frozen=True, kw_only=True):
    """The variables of a vendor: what its SDKs read, and what else holds its credentials or leads around the gate."""

    urls: tuple[tuple[str, str], ...]
    """Variables for the base URL, each with what is appended to it."""
    keys: tuple[str, ...]
    """Variables for the key: the first is always set, the others where the user has them."""
    bearers: tuple[str, ...] = ()
    """Variables for tokens that are sent as bearer tokens."""
    logins: tuple[str, ...] = ()
    """Variables of a login with an account, which only the program itself can use."""
    detours: tuple[str, ...] = ()
    """Variables that send calls elsewhere."""


VENDORS: Mapping[str, VendorVariables] = {
    "anthropic": VendorVariables(
        urls=(("ANTHROPIC_BASE_URL", ""), ("ANTHROPIC_API_BASE", ""), ("ANTHROPIC_HOST", "")),
        keys=("ANTHROPIC_API_KEY",),
        bearers=("ANTHROPIC_AUTH_TOKEN",),
        logins=("CLAUDE_CODE_OAUTH_TOKEN",),
        detours=("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY"),
    ),
    "openai": VendorVariables(
        urls=(("OPENAI_BASE_URL", "/v1"), ("OPENAI_API_BASE", "/v1"), ("OPENAI_HOST", "")),
        keys=("OPENAI_API_KEY", "CODEX_API_KEY"),
        detours=("AZURE_OPENAI_API_KEY", "AZURE_OPENAI_ENDPOINT"),
    ),
    "gemini": VendorVariables(
        urls=(("GOOGLE_GEMINI_BASE_URL", ""),),
        keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        detours=("GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_GCA"),
    ),
}

OTHER_KEYS = (
    "COHERE_API_KEY", "DEEPSEEK_API_KEY", "FIREWORKS_API_KEY", "GROQ_API_KEY", "MISTRAL_API_KEY", "OPENROUTER_API_KEY",
    "TOGETHER_API_KEY", "XAI_API_KEY",
)  # fmt: skip
"""Keys of vendors that the gate does not cover: the program keeps them, and the user is told."""


class Overlay(Value, frozen=True, kw_only=True):
    """Configuration for one run, as JSON: in a variable, or in a temporary file or home that a variable names.

    What the user has there (in the variable, the file it names, or a file at one of `files`) is kept and completed. A
    `home` is the path of the settings below the user's home: what lies beside them is linked into the temporary one.
    """

    variable: str
    content: Mapping[str, Any]
    is_file: bool = False
    files: tuple[str, ...] = ()
    home: str | None = None


class Launcher(Value, frozen=True, kw_only=True):
    """A program, by the names of its command and its packages, and what it needs beyond the variables."""

    name: str
    programs: tuple[str, ...]
    vendor: str
    """Whose models it calls first: it is set up for the gate's key, or for its own login, as this vendor is."""
    agent: str = ""
    """Its name in the table of known agents, which says how it ends."""
    packages: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    """Inserted after the program's name."""
    own_flags: tuple[str, ...] = ()
    """The same where the program's own login is passed through."""
    overlay: Overlay | None = None
    own_overlay: Overlay | None = None
    variables: Mapping[str, str] = {}
    """Set beside those of the vendors, where the program gets the gate's key."""
    own_variables: Mapping[str, str] = {}
    """The same where its own login is passed through."""
    removed: tuple[str, ...] = ()
    """Taken out in the same case."""


def _codex_flags(credentials: str) -> tuple[str, ...]:
    table = f'{{{{name="glidepath gate",base_url="{{openai_door}}/v1",{credentials},wire_api="responses"}}}}'
    return ("-c", 'model_provider="glidepath"', "-c", f"model_providers.glidepath={table}")


def _opencode() -> Overlay:
    ends = {"anthropic": ("anthropic", "/v1"), "openai": ("openai", "/v1"), "google": ("gemini", "/v1beta")}
    return Overlay(
        variable="OPENCODE_CONFIG_CONTENT",
        content={
            "provider": {
                name: {"options": {"baseURL": f"{{{vendor}}}{tail}", "apiKey": f"{{{vendor}_key}}"}}
                for name, (vendor, tail) in ends.items()
            }
        },
    )


def _login(kind: str) -> Mapping[str, Any]:
    return {"security": {"auth": {"selectedType": kind}}}


LAUNCHERS: tuple[Launcher, ...] = (
    Launcher(
        name="Claude Code",
        vendor="anthropic",
        agent="claude-code",
        programs=("claude",),
        packages=("@anthropic-ai/claude-code",),
        # At a terminal it would ask about every API key that it has not seen before; about a token it does not.
        variables={"ANTHROPIC_AUTH_TOKEN": "{anthropic_key}"},
        removed=("ANTHROPIC_API_KEY",),
    ),
    Launcher(
        name="Codex",
        vendor="openai",
        agent="codex",
        programs=("codex",),
        packages=("@openai/codex",),
        flags=_codex_flags(f'env_key="{KEY_VARIABLE}"'),
        own_flags=_codex_flags(
            f'requires_openai_auth=true,env_http_headers={{{{"x-glidepath-key"="{KEY_VARIABLE}"}}}}'
        ),
        own_variables={KEY_VARIABLE: "{openai_door_key}"},
    ),
    Launcher(
        name="OpenCode",
        vendor="anthropic",
        agent="opencode",
        programs=("opencode",),
        packages=("opencode-ai",),
        overlay=_opencode(),
        own_overlay=_opencode(),
    ),
    Launcher(
        name="Gemini CLI",
        vendor="gemini",
        agent="gemini-cli",
        programs=("gemini",),
        packages=("@google/gemini-cli",),
        # Not GEMINI_CLI_SYSTEM_SETTINGS_PATH: that file must belong to root.
        overlay=Overlay(variable="GEMINI_CLI_HOME", content=_login("gemini-api-key"), home=".gemini/settings.json"),
    ),
    Launcher(
        name="Qwen Code",
        vendor="openai",
        agent="qwen-code",
        programs=("qwen",),
        packages=("@qwen-code/qwen-code",),
        overlay=Overlay(
            variable="QWEN_CODE_SYSTEM_SETTINGS_PATH",
            content=_login("openai"),
            is_file=True,
            files=("/etc/qwen-code/settings.json", "/Library/Application Support/QwenCode/settings.json"),
        ),
    ),
    Launcher(name="Aider", vendor="anthropic", agent="aider", programs=("aider",), packages=("aider-chat",)),
    Launcher(
        name="mini-swe-agent",
        vendor="anthropic",
        agent="mini-swe-agent",
        programs=("mini", "mini-swe-agent"),
        packages=("mini-swe-agent", "minisweagent"),
    ),
    Launcher(name="goose", vendor="anthropic", programs=("goose",)),
)

_WRAPPERS: Mapping[str, frozenset[str]] = {
    "bun": frozenset(),
    "bunx": frozenset(("-p", "--package")),
    "env": frozenset(("-u", "--unset", "-C", "--chdir")),
    "nice": frozenset(("-n",)),
    "node": frozenset(("-r", "--require", "--import", "--env-file")),
    "nohup": frozenset(),
    "npm": frozenset(),
    "npx": frozenset(("-p", "--package", "--node-options")),
    "pipx": frozenset(("--spec", "--python")),
    "pnpm": frozenset(("--package",)),
    "pnpx": frozenset(("--package",)),
    "python": frozenset(("-W", "-X")),
    "stdbuf": frozenset(("-i", "-o", "-e")),
    "time": frozenset(),
    "timeout": frozenset(("-k", "-s", "--signal", "--kill-after")),
    "uv": frozenset(("--with", "--from", "--python", "-p", "--directory", "--project")),
    "uvx": frozenset(("--with", "--from", "--python", "-p")),
    "yarn": frozenset(("-p", "--package")),
}
"""Commands that start another one, with those of their flags that take a value."""
_STEPS = frozenset(("run", "tool", "dlx", "exec", "x"))
_DURATION = re.compile(r"\d+(\.\d+)?[smhd]?\Z")
_COMMENT = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")


def find_launcher(command: Sequence[str]) -> tuple[Launcher, int] | None:
    """The launcher of a command line and the index of its program in it, behind npx, uvx, node, python or env."""
    at, is_wrapped = 0, False
    while at < len(command):
        word = command[at]
        found = _launcher_of(word)
        if found is not None:
            return found, at
        name = re.sub(r"\d+(\.\d+)*\Z", "", PurePath(word).name)
        takes = _WRAPPERS.get(name)
        if takes is None and not (is_wrapped and word in _STEPS):
            return None
        at = _skip_flags(command, at + 1, takes or frozenset())
        is_wrapped = True
    return None


def _skip_flags(command: Sequence[str], at: int, takes: frozenset[str]) -> int:
    while at < len(command):
        word = command[at]
        if word in takes:
            at += 2
        elif (word.startswith("-") and len(word) > 1) or _ASSIGNMENT.match(word) or _DURATION.match(word):
            at += 1
        else:
            break
    return at


def _launcher_of(word: str) -> Launcher | None:
    path = word.replace("\\", "/")
    package = re.sub(r"(?<=.)@[^/@]*\Z", "", path)  # without a version
    program = re.sub(r"\.(exe|cmd|ps1|js|mjs|cjs|py)\Z", "", package.rpartition("/")[2])
    for one in LAUNCHERS:
        inside = any(f"/{name}/" in f"/{path}" and path.count("/") > name.count("/") for name in one.packages)
        if program in one.programs or package in one.packages or inside:
            return one
    return None


class Aim(Value, frozen=True):
    """Where a program finds a vendor: the base URL without `/v1`, and the gate's key; None keeps its own login.

    With its own login the gate's key is in `url`. `door` is the address without it, and `door_key` what opens that.
    """

    url: str
    key: str | None
    door: str = ""
    door_key: str = ""


class Prepared(Record, kw_only=True):
    """A command, ready to start."""

    command: list[str]
    environ: dict[str, str]
    name: str
    removed: list[str]
    """Variables that were taken out."""
    stays: list[str]
    """Keys of vendors that the gate does not cover."""


def prepare(
    command: Sequence[str], environ: Mapping[str, str], aims: Mapping[str, Aim], folder: Path, own: Sequence[str] = ()
) -> Prepared:
    """The command and its environment behind a gate. `folder` is for overlays, and is gone after the run.

    `own` are the vendors that the gate itself calls at their own addresses: what only they have works behind it.
    """
    found = find_launcher(command)
    words = list(command)
    launcher = None if found is None else found[0]
    name = PurePath(command[0]).name if launcher is None else launcher.name
    made = Prepared(command=words, environ=dict(environ), name=name, removed=[], stays=[])
    for vendor, aim in aims.items():
        _point(made, VENDORS[vendor], aim)
    keys = [aim.key for aim in aims.values() if aim.key is not None]
    made.environ[URL_VARIABLE] = next((aim.url for aim in aims.values() if aim.key), next(iter(aims.values())).url)
    made.environ |= {VENDORS_VARIABLE: ",".join(own)}
    made.environ.pop(KEY_VARIABLE, None)
    if keys:
        made.environ[KEY_VARIABLE] = keys[0]
    _pass_by_proxies(made.environ)
    made.stays = [one for one in OTHER_KEYS if made.environ.get(one)]
    if launcher is not None and found is not None:
        values = _texts_of(aims)
        is_swap = aims[launcher.vendor].key is not None if launcher.vendor in aims else bool(keys)
        flags = launcher.flags if is_swap else launcher.own_flags
        words[found[1] + 1 : found[1] + 1] = [flag.format(**values) for flag in flags]
        variables = launcher.variables if is_swap else launcher.own_variables
        made.environ |= {name: text.format(**values) for name, text in variables.items()}
        for name in launcher.removed if is_swap else ():
            made.environ.pop(name, None)
        overlay = launcher.overlay if is_swap else launcher.own_overlay
        if overlay is not None:
            _lay_over(made.environ, overlay, values, folder)
    return made


def _texts_of(aims: Mapping[str, Aim]) -> dict[str, str]:
    """What the texts of a launcher may name; a vendor without an aim is found where the first of the others is."""
    other = next((aim for aim in aims.values() if aim.key), next(iter(aims.values())))
    texts: dict[str, str] = {}
    for vendor in VENDORS:
        aim = aims.get(vendor, other)
        texts |= {vendor: aim.url, f"{vendor}_key": aim.key or ""}
        texts |= {f"{vendor}_door": aim.door or aim.url, f"{vendor}_door_key": aim.door_key}
    return texts


def _point(made: Prepared, vendor: VendorVariables, aim: Aim) -> None:
    environ = made.environ
    for name, tail in vendor.urls:
        environ[name] = aim.url + tail
    for name in vendor.detours:
        if environ.pop(name, None):
            made.removed.append(name)
    if aim.key is None:
        return
    for name in (*vendor.bearers, *vendor.logins):
        if environ.pop(name, None):
            made.removed.append(name)
    first, *others = vendor.keys
    for name in [first, *[one for one in others if environ.get(one)]]:
        environ[name] = aim.key


def _pass_by_proxies(environ: dict[str, str]) -> None:
    """Keep a proxy out of the way between the program and the gate."""
    if not any(name.lower() in ("http_proxy", "https_proxy", "all_proxy") and value for name, value in environ.items()):
        return
    for name in ("NO_PROXY", "no_proxy"):
        environ[name] = ",".join([*filter(None, [environ.get(name)]), "127.0.0.1", "localhost"])


def _lay_over(environ: dict[str, str], overlay: Overlay, values: Mapping[str, str], folder: Path) -> None:
    given = environ.get(overlay.variable)
    content = _fill(overlay.content, values)
    if overlay.home is not None:
        home = Path(given or environ.get("HOME") or Path.home())
        _make_home(folder / "home", home, overlay.home, content)
        environ[overlay.variable] = str(folder / "home")
    elif overlay.is_file:
        base = _read_first([Path(name) for name in ([given] if given else overlay.files)])
        path = folder / f"{overlay.variable.lower()}.json"
        _write(path, merge(base, content))
        environ[overlay.variable] = str(path)
    else:
        environ[overlay.variable] = json.dumps(merge(_read_json(given or ""), content))


def _make_home(made: Path, home: Path, settings: str, content: Mapping[str, Any]) -> None:
    """A home of one run: the program's folder with the settings completed, and links to all else that is in it."""
    theirs = home / settings
    ours = made / settings
    ours.parent.mkdir(parents=True, mode=0o700)
    if theirs.parent.is_dir():
        for one in theirs.parent.iterdir():
            if one.name != theirs.name:
                (ours.parent / one.name).symlink_to(one)
    _write(ours, merge(_read_first([theirs]), content))


def _write(path: Path, content: Mapping[str, Any]) -> None:
    path.touch(mode=0o600)
    path.write_text(json.dumps(content), encoding="utf-8")


def _read_first(paths: Sequence[Path]) -> dict[str, Any]:
    """The first of these files that can be read."""
    for path in paths:
        try:
            return _read_json(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError):
            continue
    return {}


def _read_json(text: str) -> dict[str, Any]:
    """JSON as people write it in settings, with comments; nothing where it is malformed."""
    plain = _COMMENT.sub(lambda found: found[0] if found[0].startswith('"') else " ", text)
    try:
        found = json.loads(plain)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _fill(content: Any, values: Mapping[str, str]) -> Any:
    """A content with its texts filled in; what is empty then is left out."""
    if isinstance(content, Mapping):
        filled = {name: _fill(value, values) for name, value in content.items()}
        return {name: value for name, value in filled.items() if value != ""}
    return content.format(**values) if isinstance(content, str) else content


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Two configurations as one; where both say something, the second counts."""
    found = dict(base)
    for name, value in over.items():
        below = found.get(name)
        found[name] = merge(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return found
