"""Commands as argv: which ones do one thing only, and which may do another thing than they seem to.

A command is matched by its words and never as a string. One with operators, substitution, redirection, globs or
newlines, and one that starts another program (sh, python, env, sudo, npx, make ...) is covered by no *allow* rule and
no *always*: what it runs cannot be told from its first word.
"""

from __future__ import annotations

import re
import shlex
from contextlib import suppress
from itertools import pairwise
from pathlib import PurePosixPath

from glidepath.run import escape_invisible

__all__ = [
    "fetches_code",
    "has_subcommands",
    "list_hidden_words",
    "list_pairs",
    "simple_words",
    "starts_other_programs",
]

_OPERATORS = frozenset(";&|<>()$`\\{}[]*?~!#\n\r\t\v\f")
_RUNNERS = frozenset(
    str.split(
        "sh bash dash zsh ksh mksh fish csh tcsh ash rbash busybox toybox perl ruby node nodejs deno bun php lua "
        "luajit tclsh wish java jshell osascript pwsh powershell cmd wsl env sudo doas su runuser pkexec nohup "
        "nice ionice chrt taskset timeout time xargs parallel find fd fdfind ssh mosh scp sftp rsync docker podman "
        "nerdctl kubectl npx pnpx bunx uvx pipx corepack eval exec command builtin source . watch setsid stdbuf "
        "strace ltrace gdb lldb script expect chroot unshare nsenter flock systemd-run at batch crontab awk gawk "
        "mawk nawk sed ed ex vi vim nvim emacs emacsclient nano less more man info tmux screen xterm rscript r "
        "octave julia ghci irb groovy scala kotlin tsx ts-node guile racket erl elixir iex swipl m4 make gmake "
        "bmake just rake ninja cmake bazel tox nox invoke fab doit pre-commit ansible ansible-playbook vagrant tar "
        "bsdtar zip sqlite3 mysql psql socat nc ncat netcat telnet bwrap firejail fakeroot proot valgrind perf "
        "hyperfine entr watchexec nodemon direnv mise asdf nix nix-shell nix-build conda mamba unbuffer rlwrap "
        "torsocks proxychains setpriv prlimit setarch linux32 linux64 start-stop-daemon run-parts dbus-run-session "
        "xvfb-run xdg-open open gio trap alias enable bind complete compgen mapfile readarray coproc fc hash let "
        "declare typeset local export readonly sg newgrp chpst envdir envsubst if then elif else fi for while "
        "until do done case esac select function in cross-env dotenv concurrently npm-run-all run-s run-p "
        "caffeinate gosu su-exec tini dumb-init apptainer singularity lxc machinectl nsjail runc crun runcon capsh "
        "cgexec numactl mpirun mpiexec srun sbatch torchrun accelerate ipython bpython ptpython jython micropython "
        "xonsh nu elvish osh ysh psql duckdb mongo mongosh gnuplot dc cscript wscript mshta rundll32 msiexec "
        "launchctl chronic ifne faketime eatmydata ld.so ldd forever pm2 supervisord foreman honcho overmind "
        "inotifywait watchman-make"
    )
)
_VERSIONED = (
    "python",
    "ipython",
    "pypy",
    "ruby",
    "perl",
    "php",
    "lua",
    "node",
    "guile",
    "tclsh",
    "bash",
    "sh",
    "zsh",
    "ksh",
)
_WITH_SUBCOMMANDS = frozenset(
    str.split(
        "git hg svn npm pnpm yarn cargo go pip pip3 uv poetry hatch bundle gem composer mvn gradle "
        "dotnet gh glab terraform brew apt apt-get dnf systemctl"
    )
)
_LITERAL = frozenset(  # subcommands whose words name code to fetch or to run, or a place to send things to
    str.split(
        "install i add ci run run-script rx push pull fetch clone remote config submodule publish bisect "
        "rebase filter-branch difftool mergetool daemon send-email api apply destroy get start stop restart link"
    )
)
_STARTING = frozenset(  # subcommands that start another program, whichever follows
    [
        *((program, word) for program in ("npm", "pnpm", "yarn") for word in ("exec", "x", "dlx", "explore")),
        *((program, word) for program in ("uv", "poetry", "hatch") for word in ("run", "tool", "shell", "env")),
        *((program, word) for program in ("bundle", "gem") for word in ("exec",)),
        ("go", "tool"),
        ("dotnet", "exec"),
        ("gh", "extension"),
        ("git", "difftool"),
        ("git", "mergetool"),
        ("git", "filter-branch"),
    ]
)
_NAMING = frozenset(  # the same for one program each; npm takes its own misspellings
    [
        *((program, word) for program in ("npm", "pnpm", "yarn") for word in str.split(
            "init create innit in ins inst insta instal isnt isnta isntal isntall it cit ic install-test "
            "install-ci-test clean-install install-clean isntall-clean rum urn"
        )),
        *((program, word) for program in ("pip", "pip3") for word in ("wheel", "download")),
        *(("composer", word) for word in ("require", "create-project", "global")),
        *(("brew", word) for word in ("reinstall", "upgrade", "tap")),
        *(("git", word) for word in ("ls-remote", "hook", "remote-ext", "remote-fd", "instaweb", "web--browse")),
        *(("systemctl", word) for word in ("enable", "edit")),
        ("uv", "pip"),
        ("go", "generate"),
    ]
)  # fmt: skip
_RUNNING = frozenset(("run", "exec", "execute", "eval", "shell", "ssh", "repl", "console", "runner"))  # of any program
_FREE = frozenset(  # whose words name files, tests or models
    {("git", "add"), ("hg", "add"), ("svn", "add"), ("vitest", "run"), ("cypress", "run"), ("dbt", "run")}
)
_VERSION = ("--version", "-V")
_CRUDE = re.compile(r"[^\w./=+@:%,-]+")


def simple_words(command: object) -> tuple[str, ...] | None:
    """The words of a command that does one thing; None for one that can do another thing than it seems to."""
    if not isinstance(command, str) or _OPERATORS & set(command) or escape_invisible(command) != command:
        return None
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    # A shell would read the first word as an assignment, or find the program somewhere else.
    if not words or not words[0] or words[0].startswith("-") or "=" in words[0] or "/" in words[0]:
        return None
    return None if starts_other_programs(words) else tuple(words)


def starts_other_programs(words: list[str] | tuple[str, ...]) -> bool:
    """True for an interpreter, a wrapper, or a subcommand that is one: what it runs is not its first word."""
    program = PurePosixPath(words[0]).name.lower().removesuffix(".exe")
    if program in _RUNNERS or program.rstrip("0123456789.-") in _VERSIONED:
        return True
    if program not in _WITH_SUBCOMMANDS or len(words) == 1:
        return False
    first = words[1]
    if first.startswith("-"):  # `git -c alias.x=...`, `npm --prefix elsewhere`: what follows is another program's word
        return len(words) > 2 or first not in _VERSION  # noqa: PLR2004 - the program and its only word
    return (program, first) in _STARTING


def has_subcommands(words: list[str] | tuple[str, ...]) -> bool:
    """True for a program whose first word says which of its commands is meant, such as `git status`."""
    return words[0] in _WITH_SUBCOMMANDS and len(words) > 1 and not words[1].startswith("-")


def fetches_code(words: list[str] | tuple[str, ...]) -> bool:
    """True where each word decides what code is fetched or run: only a rule that spells them all out covers it."""
    pair = (words[0], words[1]) if len(words) > 1 else ("", "")
    if pair in _FREE:
        return False
    if not _RUNNING.isdisjoint(_list_first_words(words)):
        return True
    return has_subcommands(words) and (pair[1] in _LITERAL or pair in _NAMING)


def _list_first_words(words: list[str] | tuple[str, ...]) -> tuple[str, ...]:
    """The words that may be the subcommand: the first one, also behind options, each of which may have a value."""
    found: list[str] = []
    for before, word in pairwise(words):
        if not word.startswith("-"):
            found.append(word)
            if not before.startswith("-") or "=" in before:
                break
    return tuple(found)


def lacks_subcommand(words: list[str] | tuple[str, ...]) -> bool:
    """True for `git *`: it would be any subcommand, by any of its names, and any alias that a folder defines."""
    return has_subcommands(words) and "*" in words[1]


def brings_options(word: str) -> bool:
    """True for `@file`, which compilers, test runners and others read more options from."""
    return len(word) > 1 and word[0] == "@"


def list_hidden_words(command: str) -> list[tuple[str, ...]]:
    """Every list of words that may be a command inside this one, read as widely as possible: for what forbids."""
    bare = re.sub(r"[\\'\"]", "", command.replace("\\\n", ""))
    found = [tuple(word for word in _CRUDE.split(bare) if word)]
    with suppress(ValueError):
        found.append(tuple(shlex.split(command)))
    return [words for words in found if words]


def list_pairs(words: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Every option with the word behind it, which may be its value."""
    return tuple((one, two) for one, two in pairwise(words) if one.startswith("-") and not two.startswith("-"))
