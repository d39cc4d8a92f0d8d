"""Files that an agent must not plant: something runs or trusts them without anyone running the project.

One table of names. The file tools refuse to write them; in the sandbox they are read-only. A name counts anywhere in
a path, and in every spelling that some file system takes for the same name. Only the standard library is imported: the
process that guards names while a command runs loads this file by its path.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence

GIT_WORD = "git runs the commands that are named there"
_OWN = "it says what glidepath's next run may do"
_NAMES = {
    GIT_WORD: ".git .gitconfig .config/git",
    "it turns its folder into a git repository, whose configuration git runs commands from": "HEAD",
    "mercurial runs the commands that are named there": ".hg .hgrc",
    "it belongs to version control": ".svn .jj",
    "it runs at the next commit": ".husky .githooks .pre-commit-config.yaml lefthook.yml",
    _OWN: """
        glidepath.toml glidepath.json glidepath.lock glidepath.mcp.lock .glidepath .config/glidepath
        .local/share/glidepath .mcp.json AGENTS.md
    """,
    "other agents obey it, and run the commands that are named there": """
        .claude .claude.json CLAUDE.md CLAUDE.local.md .codex .cursor .cursorrules .gemini GEMINI.md .aider.conf.yml
        .agents .windsurf .windsurfrules .goosehints .goose .github/copilot-instructions.md .github/instructions
        .github/prompts .github/agents opencode.json opencode.jsonc .opencode .roo .roorules .roomodes .kiro .continue
        .continuerules .clinerules .cline .amp .amazonq .augment .augment-guidelines .junie .qwen QWEN.md CRUSH.md
        .crush .crush.json crush.json AGENT.md AGENTS.override.md .rules .openhands .trae .zencoder .warp WARP.md
    """,
    "a shell runs it when it starts": """
        .bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc .zshenv .zprofile .zlogin
        .zlogout .kshrc .mkshrc .cshrc .tcshrc .login .logout .bash_completion .inputrc .envrc mise.toml .mise.toml
        .config/mise .tool-versions .rvmrc .config/fish .tmux.conf .screenrc
    """,
    "it runs, or lets somebody in, at the next login": """
        .ssh .gnupg .rhosts .shosts .pam_environment .xprofile .xinitrc .xsession .config/autostart .config/systemd
        .config/environment.d Library/LaunchAgents .local/bin
    """,
    "mail that arrives runs it": ".forward",
    "python imports modules from it when it starts": ".local/lib",
    "an editor runs the tasks that are named there": """
        .vscode *.code-workspace .vs .idea .fleet .zed .devcontainer .devcontainer.json .exrc .vim .vimrc .gvimrc
        .lvimrc .nvimrc .nvim.lua .config/nvim .dir-locals.el .dir-locals-2.el .emacs .emacs.d
    """,
    "a tool takes commands or addresses from it": """
        .npmrc .yarnrc .yarnrc.yml .yarn/releases .yarn/plugins .pnpmfile.cjs .pypirc .pip .config/pip .pythonrc
        .pdbrc .gdbinit .lldbinit .cargo .curlrc .wgetrc .netrc .bundle .irbrc .pryrc .Rprofile .aws .kube
        .terraformrc
    """,
}
"""Why names are protected, and which. A name with a slash is a path; `*.x` is every name with that ending."""

ROWS = {name: why for why, names in _NAMES.items() for name in names.split()}
"""Every protected name, and why."""

LINKABLE = {name: why for name, why in ROWS.items() if not name.startswith("*") and "/" not in name}
"""Names that may be links to other files in a folder."""

GIT_PARTS = ("hooks", "config", "config.worktree", "info", "modules", "commondir")
"""Names in a repository's own folder from which git takes commands."""

_HEAD = "head"  # protected only as a file: ordinary folders have this name, too
_SHORT_NAMES = {"git~1": ".git"}  # its short name on NTFS


def fold_name(name: str) -> str:
    """A name as the most lenient file system compares it: without case, variants of letters, invisible characters."""
    plain = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    plain = "".join(sign for sign in plain if unicodedata.category(sign) not in ("Cf", "Cc", "Mn"))
    plain = plain.partition(":")[0].rstrip(". ")  # NTFS: streams, and ends that it drops
    return _SHORT_NAMES.get(plain, plain)


_ENDINGS = {name[1:].casefold(): why for name, why in ROWS.items() if name.startswith("*")}
_PATHS = {
    tuple([fold_name(step) for step in name.split("/")]): why for name, why in ROWS.items() if not name.startswith("*")
}
_LONGEST = max(map(len, _PATHS))
_LAST = frozenset(path[-1] for path in _PATHS) - {_HEAD}


def may_be_protected(name: str) -> bool:
    """A quick look at one name in a folder: False when no row of the table can be meant.

    A file called HEAD is left out: on its own it is harmless, and code that looks at whole folders sees the rest.
    """
    if name.isascii() and ":" not in name and "\\" not in name and "~" not in name:
        plain = name.lower().rstrip(". ")
    else:
        plain = fold_name(name.rpartition("\\")[2])
    return plain in _LAST or plain.endswith(tuple(_ENDINGS))


class NameRules:
    """Which paths of a workspace are protected; `Protection` has the same for people, who are told what is wrong.

    `allowed` and `own` are paths of folded names, `above` the folded names of the folders the workspace is in.
    """

    def __init__(
        self,
        allowed: Iterable[Sequence[str]] = (),
        above: Sequence[str] = (),
        own: Iterable[Sequence[str]] = (),
        closed: str | None = None,
    ) -> None:
        self._allowed = frozenset(map(tuple, allowed))
        self._above = list(above)
        self._own = frozenset(map(tuple, own))
        self.closed = GIT_WORD if closed is None and ".git" in self._above else closed

    def describe(self) -> dict[str, list[list[str]] | list[str]]:
        """What another process needs to make the same rules."""
        return {
            "allowed": sorted(map(list, self._allowed)),
            "above": self._above,
            "own": sorted(map(list, self._own)),
        }

    def explain_refusal(self, steps: Sequence[str], *, entering: bool = False) -> str | None:
        """Why a path (its steps from the workspace on) must not be written, or entered to write; None when it may be.

        A step that a Windows file system would take for several counts as several.
        """
        names = [fold_name(part) for step in steps for part in step.split("\\")]
        if self.closed is not None and names:
            return None if self.is_allowed(steps) else self.closed
        for end in range(1, len(names) + 1):
            found = _OWN if self._is_own(names[:end]) else _find_row([*self._above, *names[:end]])
            if found is not None and (names[end - 1] != _HEAD or (end == len(names) and not entering)):
                return None if self.is_allowed(steps) else found
        return None

    def may_hold(self, name: str) -> bool:
        """A quick look at one name in a folder: False when it cannot be protected."""
        return may_be_protected(name) or any(_is(fold_name(name), path[-1]) for path in self._own)

    def is_own(self, steps: Sequence[str]) -> bool:
        """True for glidepath's own files and folders, which it may change at any time."""
        return self._is_own([fold_name(step) for step in steps])

    def _is_own(self, names: Sequence[str]) -> bool:
        return any(tuple(names[:-1]) == path[:-1] and _is(names[-1], path[-1]) for path in self._own)

    def is_allowed(self, steps: Sequence[str]) -> bool:
        """True when a person allowed this path, or a folder above it, by name."""
        names = tuple(fold_name(step) for step in steps)
        return any(names[:end] in self._allowed for end in range(1, len(names) + 1))

    def list_allowed_below(self, steps: Sequence[str]) -> list[str]:
        """What is allowed below a protected folder."""
        names = tuple(fold_name(step) for step in steps)
        return ["/".join(path[len(names) :]) for path in sorted(self._allowed) if path[: len(names)] == names != path]

    def list_protected_below(self, steps: Sequence[str]) -> list[tuple[tuple[str, ...], str]]:
        """What would be protected below this path, and why: what is left of the rows that it is the beginning of."""
        names = [*self._above, *(fold_name(step) for step in steps)]
        return [
            (path[length:], why)
            for path, why in _PATHS.items()
            for length in range(1, len(path))
            if tuple(names[-length:]) == path[:length]
        ]


def _is(name: str, own: str) -> bool:
    return name == own or name.startswith(f"{own}-")  # SQLite keeps more beside a file: x.db-wal


def _find_row(names: list[str]) -> str | None:
    """Why the last of these names is protected."""
    for length in range(1, min(len(names), _LONGEST) + 1):
        found = _PATHS.get(tuple(names[-length:]))
        if found is not None:
            return found
    for ending, why in _ENDINGS.items():
        if names[-1].endswith(ending):
            return why
    return None
