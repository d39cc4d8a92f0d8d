"""The sandbox: what a command in it sees, what it can write, and whether there is one on this machine.

It is bubblewrap with our own filter for system calls. Inside there is no network and no UNIX socket, the
workspace is the only place that can be written, and folders where people and services keep secrets are empty.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from glidepath._wire import Value
from glidepath.values import ToolError
from glidepath.workspace import _warden
from glidepath.workspace.guarded_calls import CALLS
from glidepath.workspace.protected_names import NameRules
from glidepath.workspace.seccomp import MACHINES, filter_program

search_path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where to look for programs."""

BOXED_HOME = ".glidepath-home"
_TMP_SIZE = 1 << 30
_SHARED_SIZE = 1 << 28
_HIDDEN_FOLDERS = (
    # people
    "/home", "/root", "/Users", "/mnt", "/media", "/srv", "/var/mail", "/var/spool", "/var/backups", "/var/log",
    # services, with their sockets and secrets
    "/run", "/var/run", "/var/lib/docker", "/var/lib/containerd", "/var/lib/kubelet", "/var/lib/rancher",
    "/var/lib/secrets", "/var/lib/private", "/var/lib/postgresql", "/var/lib/mysql",
    # keys
    "/etc/ssh", "/etc/ssl/private", "/etc/pki/tls/private", "/etc/letsencrypt", "/etc/kubernetes", "/etc/rancher",
    "/etc/docker", "/etc/containers", "/etc/wireguard", "/etc/openvpn", "/etc/ipsec.d", "/etc/sudoers.d",
    "/etc/NetworkManager/system-connections", "/etc/credstore", "/etc/credstore.encrypted", "/etc/secrets", "/secrets",
)  # fmt: skip
_HIDDEN_FILES = (
    "/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/sudoers", "/etc/krb5.keytab",
    "/etc/security/opasswd", "/etc/docker.env", "/.dockerenv", "/swapfile",
)  # fmt: skip
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/dev", "/proc", "/sys", "/opt", "/var", "/tmp", "/")  # noqa: S108
_NAMESPACED_PROCESSES = (5, 14)
_GUARDED = "mkdir plain .vscode && [ -d plain ] && [ ! -e .vscode ] && [ -d .vscode.set-aside ]"
_PROBE = 'while read -r key value; do [ "$key$value" = Seccomp:2 ] && exit 0; done </proc/self/status; exit 9'


class Bubblewrap(Value, frozen=True):
    """The sandbox program of this machine, tried out. A `glidepath.sandbox.Sandbox` says exactly what to allow."""

    program: str

    def wrap(
        self,
        command: str,
        root: Path,
        *,
        fixed: Iterable[str] = (),
        readonly: Iterable[str] = (),
        writable: Iterable[str] = (),
        home: str | None = None,
        processes: int = 0,
    ) -> list[str]:
        """The command line that runs `command` inside; it reads the filter for system calls from descriptor 9.

        In the workspace, `fixed` folders cannot be moved away, `readonly` paths cannot be changed, and `writable` paths
        in those can. `home` is shown read-only; without it HOME is empty.
        """
        refuse_whole_system(root)
        words = [self.program, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
        words += ["--size", str(_SHARED_SIZE), "--tmpfs", "/dev/shm"]  # noqa: S108
        for place in ("/tmp", "/var/tmp"):  # noqa: S108
            if os.path.isdir(place) and not os.path.islink(place):  # noqa: PTH112, PTH114
                words += ["--size", str(_TMP_SIZE), "--tmpfs", place]
        folders = _find_folders_to_hide(root)
        around = [place for place in folders if root.is_relative_to(place)]
        for place in around:
            words += ["--tmpfs", place]
        words += ["--bind", str(root), str(root)]
        for place in folders:
            if place not in around:
                words += ["--tmpfs", place, "--remount-ro", place]
        for place in _HIDDEN_FILES:
            if os.path.lexists(place) and not os.path.islink(place):  # noqa: PTH114
                words += ["--ro-bind", "/dev/null", place]
        if home is None:
            home = f"{'/dev/shm' if root == Path('/tmp') else '/tmp'}/{BOXED_HOME}"  # noqa: S108
            words += ["--perms", "0700", "--dir", home]
        elif not Path(home).is_relative_to(root):
            words += ["--ro-bind", home, home]
        for option, paths in (("--bind-try", fixed), ("--ro-bind-try", readonly), ("--bind-try", writable)):
            for path in paths:
                words += [option, path, path]
        # Only now, because mount points had to be made in them. /proc, because root may write /proc/sys, and there the
        # name of a program that the kernel runs outside, even without any capability.
        for place in (*around, "/dev", "/proc"):
            words += ["--remount-ro", place]
        words += ["--chdir", str(root), "--setenv", "HOME", home, "--seccomp", str(_warden.FILTER_FD)]
        words += ["--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
        return [*words, "--", "/bin/sh", "-c", _make_limiting_shell(processes), "sh", command]


def _make_limiting_shell(processes: int) -> str:
    """A shell that becomes the command, with a limit on processes if that counts only the sandbox's own.

    The limit must be set inside: outside it would count all processes of the user, as Linux before 5.14 always does.
    """
    # The guard of names begins with the first of them, which is ours: no name at all, and never the command's.
    become = ': >/dev/null; exec /bin/sh -c "$1"'
    version = tuple(int(part) for part in platform.release().split(".")[:2] if part.isdigit())
    if not processes or version < _NAMESPACED_PROCESSES:
        return become
    return f"ulimit -u {processes} 2>/dev/null || ulimit -p {processes} 2>/dev/null; {become}"


def _find_folders_to_hide(root: Path) -> list[str]:
    """Folders to show empty, with links resolved, none inside another, and never the workspace itself."""
    places = {os.path.realpath(place) for place in (*_HIDDEN_FOLDERS, _home_to_hide())}
    kept: list[str] = []
    for place in sorted(places):
        inside = any(place.startswith(f"{other}/") for other in kept)
        if place not in _SYSTEM and place != str(root) and os.path.isdir(place) and not inside:  # noqa: PTH112
            kept.append(place)
    return kept


def _home_to_hide() -> str:
    """The user's home; "/" if it is in a system folder, which cannot be hidden."""
    try:
        import pwd  # which Windows does not have

        home = os.path.realpath(pwd.getpwuid(os.getuid()).pw_dir or "/")
    except KeyError:
        return "/"
    system = any(home.startswith(f"{place}/") for place in _SYSTEM if place not in ("/", "/var", "/opt"))
    return "/" if system else home


def find_sandbox() -> Bubblewrap | None:
    """The sandbox of this machine, tried out; None if it has none, or none that works."""
    return try_sandbox()[0]


def try_sandbox() -> tuple[Bubblewrap | None, str]:
    """The sandbox of this machine, tried out, or None and the reason."""
    program = shutil.which("bwrap", path=search_path)
    if program is None:
        return None, "bubblewrap is not installed"
    machine = platform.machine()
    filters = filter_program(machine)
    if filters is None:
        known = ", ".join(MACHINES)
        return None, f"there is no filter for system calls on {machine or 'this machine'}, only on {known}"
    sandbox = Bubblewrap(program)
    try:
        report, said = _try_out(sandbox.wrap(_PROBE, Path("/usr")), filters)
    except (OSError, subprocess.SubprocessError) as error:
        return None, f"bubblewrap cannot be tried out: {error}"
    if report.get("status") == 0:
        return sandbox, ""
    why = said[0][:200] if said else f"status {report.get('status')}"
    return None, f"bubblewrap is installed, but does not work here ({why})"


def _try_out(
    words: list[str], filters: bytes, guard: dict[str, object] | None = None
) -> tuple[dict[str, Any], list[str]]:
    """Run a command as the shell would: what its warden reports, and what was printed. Raises `OSError` and others."""
    job = {
        "words": words,
        "cwd": "/",
        "env": {"PATH": search_path},
        "home": None,
        "filter": filters.hex(),
        "grace": 0,
        "limits": {"file_size": 1 << 20, "memory": 1 << 30, "disk": 1 << 40, "processes": 1000},
        "guard": guard,
    }
    read, write = os.pipe()
    with os.fdopen(read, "rb") as report:
        try:
            done = subprocess.run(  # noqa: S603 - the command is our own
                [sys.executable, "-I", "-S", _warden.__file__, str(write)],
                input=json.dumps(job).encode(),
                capture_output=True,
                timeout=20,
                check=False,
                pass_fds=(write,),
            )
        finally:
            os.close(write)
        found = json.loads(report.read() or b"{}")
    return found, (done.stderr + done.stdout).decode(errors="replace").strip().splitlines()


@cache
def guard_fault(program: str) -> str:
    """Why names cannot be guarded while a command runs in this sandbox, tried out once; empty when they can be."""
    machine = platform.machine()
    filters = filter_program(machine)
    if sys.platform != "linux" or machine not in CALLS or filters is None:
        return f"there is no guard of names on {sys.platform} with {machine or 'this machine'}"
    try:
        if os.stat(program).st_mode & stat.S_ISUID:  # noqa: PTH116
            return "bubblewrap is setuid here, and a process that is guarded cannot start it"
        with tempfile.TemporaryDirectory(prefix="glidepath-guard-") as folder:
            root = os.path.realpath(folder)
            guard: dict[str, object] = {"root": root, "machine": machine, "program": program}
            guard |= {"rules": NameRules().describe(), "known": [], "awaited": []}
            report, said = _try_out(Bubblewrap(program).wrap(_GUARDED, Path(root)), filters, guard)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return f"the guard of names cannot be tried out: {error}"
    failed = report.get("guard", {}).get("failed")
    if report.get("status") == 0 and not failed:
        return ""
    return f"the guard of names does not work here ({failed or (said[-1][:200] if said else report.get('status'))})"


def refuse_whole_system(root: Path) -> None:
    """Raise `ToolError` when the workspace is the root of the file system."""
    if root == Path("/"):
        raise ToolError("the workspace is the root of the file system, which cannot be sandboxed: use another folder")
