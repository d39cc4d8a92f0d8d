"""What a sandbox is to allow, and how a command is started in one."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from glidepath._wire import Value, replace, settle_field
from glidepath.tools.sandbox import _box
from glidepath.tools.sandbox.host_proxy import HostProxy, PortDoor, free_port, parse_hosts
from glidepath.tools.sandbox.syscall_filter import KNOWN_MACHINES, syscall_filter
from glidepath.values import ConfigurationError, ToolError

__all__ = ["MECHANISMS", "Boxed", "Sandbox", "SandboxError", "explain_unusable", "list_mechanisms"]

MECHANISMS = ("bubblewrap", "landlock", "none")
PROGRAMS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LAUNCHER = "/.glidepath-box.py"
PROXY = "/.glidepath-proxy"
DOOR = "/.glidepath-door"
TMP_SIZE = 1 << 28
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt")
_ETC = (
    "alternatives", "ca-certificates", "ca-certificates.conf", "crypto-policies", "debian_version", "fonts", "group",
    "hosts", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "magic", "mime.types", "nsswitch.conf",
    "os-release", "passwd", "pki/ca-trust", "pki/tls/certs", "protocols", "services", "ssl/certs", "ssl/openssl.cnf",
    "terminfo", "timezone",
)  # fmt: skip
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_NEVER_WRITTEN = (
    "/", "/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/dev", "/proc", "/sys", "/boot", "/var", "/run",
)  # fmt: skip
_NOTHING_WRITTEN_IN = (
    "/usr/", "/bin/", "/sbin/", "/lib/", "/lib32/", "/lib64/", "/etc/", "/boot/", "/proc/", "/sys/", "/dev/",
)  # fmt: skip
_LEAST_ABI = 6  # Linux 6.12: before that, signals and abstract sockets lead out


class SandboxError(ToolError):
    """The declared sandbox does not work here; the message says what is missing and what to do."""


class Sandbox(Value, frozen=True):
    """What a program may reach: `Sandbox(read=["data"], write=["out"], network=["api.example.com"])`.

    The program sees the system's programs and libraries, `read`, and `write`, which alone it can change, with a `/tmp`
    of its own. `network` is "none", "all", or a list of hosts that it reaches through a proxy of ours. Of the
    environment it gets PATH, HOME, LANG and what `env` names. `memory` (all its processes together), `processes`,
    `file_size` and `files` (open ones) are its limits. `by` are the mechanisms that will do, in order; "none" must be
    named for a program to run without any.
    """

    read: Sequence[str | os.PathLike[str]] = ()
    write: Sequence[str | os.PathLike[str]] = ()
    network: str | Sequence[str] = "none"
    env: Sequence[str] = ()
    memory: int = 2 << 30
    processes: int = 128
    file_size: int = 1 << 30
    files: int = 1024
    by: Sequence[str] = ("bubblewrap", "landlock")

    def __post_init__(self) -> None:
        settle_field(self, "read", _paths("read", self.read))
        settle_field(self, "write", _paths("write", self.write))
        settle_field(self, "network", _network(self.network))
        settle_field(self, "env", _variables(self.env))
        settle_field(self, "by", _names("by", self.by))
        _check(self)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts it may reach; empty where the network is all or nothing."""
        return () if isinstance(self.network, str) else tuple(self.network)

    @property
    def readable(self) -> tuple[str, ...]:
        """`read`, as absolute paths."""
        return tuple(map(str, self.read))

    @property
    def writable(self) -> tuple[str, ...]:
        """`write`, as absolute paths."""
        return tuple(map(str, self.write))

    def told(self) -> str:
        """The policy in a few words, for a person who decides."""
        network = {"none": "no network", "all": "the whole network"}.get(str(self.network))
        reach = network or f"network: {', '.join(self.hosts)}"
        return f"sandboxed: {reach}, writes only in {', '.join(self.writable) or 'its own folder'}"

    def mechanism(self) -> str:
        """The first of `by` that works here and can do all this; raises `SandboxError` when none does."""
        reasons = []
        for name in self.by:
            if name == "none":
                return name
            missing = explain_unusable(name)
            if not missing and name == "landlock":
                missing = self._explain_landlock_limits()
            if not missing:
                return name
            reasons.append(f"{name}: {missing}")
        raise SandboxError(
            f"no sandbox works here ({'; '.join(reasons)}). {self._advise_fix()}, or allow the program to run "
            "without a sandbox by naming it: Sandbox(by=['bubblewrap', 'landlock', 'none'])"
        )

    def _advise_fix(self) -> str:
        return "Install bubblewrap" if "bubblewrap" in self.by else "Add 'bubblewrap' to by"

    def _explain_landlock_limits(self) -> str:
        if self.hosts:
            return "a list of hosts needs bubblewrap: Landlock cannot tell one host from another"
        for place in self.readable:
            if place not in self.writable and any(Path(place).is_relative_to(above) for above in self.writable):
                return f"{place} is read-only inside a writable folder: that needs bubblewrap"
        return ""

    def enter(
        self,
        words: Sequence[str],
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        read: Iterable[str] = (),
        write: Iterable[str] = (),
        binds: Sequence[str] = (),
        pass_fds: Sequence[int] = (),
        doors: Sequence[int] = (),
    ) -> Boxed:
        """The command, to be started in the sandbox; `close` it when it has ended.

        `env` are variables on top; `read` and `write` is what the caller needs beside the policy, such as the folder of
        a script. `pass_fds` are descriptors that the program keeps. `binds` are more words for bubblewrap, which is
        needed then. `doors` are ports of 127.0.0.1 that the program reaches, whatever the network; for them, too.
        Raises `SandboxError`.
        """
        _check_command(words, cwd)
        policy = self
        if extra := tuple(write):
            policy = replace(self, write=(*self.writable, *extra))
        return Boxed(
            policy, list(words), cwd, dict(env or {}), tuple(read), tuple(binds), tuple(pass_fds), doors=tuple(doors)
        )


class Boxed:
    """A command line that starts a program in its sandbox, and what has to be cleaned up behind it."""

    def __init__(
        self,
        sandbox: Sandbox,
        words: list[str],
        cwd: str | os.PathLike[str] | None,
        env: dict[str, str],
        read: tuple[str, ...],
        binds: tuple[str, ...],
        keep: tuple[int, ...],
        *,
        doors: tuple[int, ...] = (),
    ) -> None:
        self.mechanism = sandbox.mechanism()
        if (binds or doors) and self.mechanism != "bubblewrap":
            raise SandboxError(
                f"this sandbox needs bubblewrap, and {explain_unusable('bubblewrap') or 'it is not among `by`'}"
            )
        self._binds = binds
        self._proxy: HostProxy | None = None
        self._doors = {port: PortDoor(port) for port in doors}
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._ends: list[int] = []
        self.words, self.env, self.pass_fds = words, env, keep
        place = os.path.realpath(cwd) if cwd is not None else None
        if self.mechanism == "none":
            self.env = {**_environment(sandbox, ""), **env}
            self.cwd = place
            return
        self.cwd = "/"
        job = _job(sandbox, words, place, env, keep, doors)
        try:
            if sandbox.hosts:
                self._proxy = HostProxy(sandbox.hosts)
                self._proxy.start()
                _through_proxy(job, free_port())
            for port, door in self._doors.items():
                door.start()
                job["doors"].append({"port": port, "socket": f"{DOOR}.{port}"})
            if self.mechanism == "bubblewrap":
                self._wrap(sandbox, job, read, place)
            else:
                self._restrict(sandbox, job, read, place)
        except BaseException:
            self.close()
            raise

    def _wrap(self, sandbox: Sandbox, job: dict[str, Any], read: tuple[str, ...], cwd: str | None) -> None:
        job["env"] = {**_environment(sandbox, "/tmp"), **job["env"]}  # noqa: S108 - its own
        job["cwd"] = cwd or "/tmp"  # noqa: S108
        around = bubblewrap_words(sandbox, (*read, *interpreter_paths()), cwd, self._proxy, self._doors)
        python = [os.path.realpath(sys.executable), "-I", "-S", LAUNCHER]
        at = around.index("--remount-ro")
        self.words = [*around[:at], *self._binds, *around[at:], "--", *python, str(self._send_job(job))]
        self.env = {"PATH": PROGRAMS}

    def _restrict(self, sandbox: Sandbox, job: dict[str, Any], read: tuple[str, ...], cwd: str | None) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="glidepath-box-")
        home = os.path.realpath(self._folder.name)
        job["env"] = {**_environment(sandbox, home), "TMPDIR": home, **job["env"]}
        job["cwd"] = cwd or home
        program = syscall_filter(job["machine"], "none" if sandbox.network == "none" else "inet", rights=False)
        job["filter"] = (program or b"").hex()
        job["landlock"] = {
            "abi": landlock_abi(),
            "read": [
                *_SYSTEM,
                *[f"/etc/{name}" for name in _ETC],
                *_resolver(sandbox),
                *interpreter_paths(),
                *sandbox.readable,
                *read,
            ],
            "write": [*sandbox.writable, home],
            "devices": list(_DEVICES),
            "network": sandbox.network == "all",
        }
        self.words = [os.path.realpath(sys.executable), "-I", "-S", _box.__file__, str(self._send_job(job))]
        self.env = {"PATH": PROGRAMS}

    def _send_job(self, job: dict[str, Any]) -> int:
        """The descriptor that the launcher reads its job from."""
        descriptor = os.memfd_create("glidepath-job", 0)
        self._ends.append(descriptor)
        os.write(descriptor, json.dumps(job).encode())
        os.lseek(descriptor, 0, os.SEEK_SET)
        self.pass_fds = (*self.pass_fds, descriptor)
        return descriptor

    @property
    def refused(self) -> tuple[str, ...]:
        """Hosts that it wanted to reach and that are not listed."""
        return () if self._proxy is None else tuple(self._proxy.refused)

    def close_start_files(self) -> None:
        """The program has been started: what was only for its start is closed."""
        for descriptor in self._ends:
            with suppress(OSError):
                os.close(descriptor)
        self._ends = []

    def close(self) -> None:
        """Clean up. It does not end the program."""
        self.close_start_files()
        for door in (self._proxy, *self._doors.values()):
            if door is not None:
                door.close()
        if self._folder is not None:
            with suppress(OSError):
                self._folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# --- what a sandbox consists of ---------------------------------------------------------------------------------


def _job(
    sandbox: Sandbox,
    words: list[str],
    cwd: str | None,
    env: dict[str, str],
    keep: tuple[int, ...],
    doors: tuple[int, ...],
) -> dict[str, Any]:
    machine = platform.machine()
    program = syscall_filter(machine, "none" if sandbox.network == "none" and not doors else "inet")
    return {
        "words": words,
        "cwd": cwd,
        "env": env,
        "keep": list(keep),
        "machine": machine,
        "filter": (program or b"").hex(),
        "landlock": None,
        "bridge": None,
        "doors": [],
        "limits": {name: getattr(sandbox, name) for name in ("memory", "processes", "file_size", "files")},
    }


def _through_proxy(job: dict[str, Any], port: int) -> None:
    address = f"http://127.0.0.1:{port}"
    job["bridge"] = {"port": port, "socket": PROXY}
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        job["env"][name] = job["env"][name.lower()] = address


def _environment(sandbox: Sandbox, home: str) -> dict[str, str]:
    """Nothing of ours except what was named: no keys, no tokens."""
    found = {"PATH": PROGRAMS, "HOME": home or "/", "LANG": "C.UTF-8", "TERM": "dumb"}
    for name in sandbox.env:
        if name in os.environ:  # named in code, where the sandbox is declared
            found[name] = os.environ[name]
    return found


def interpreter_paths() -> list[str]:
    """What the launcher needs: the interpreter and its library."""
    return sorted({os.path.realpath(sys.base_prefix), os.path.realpath(sys.base_exec_prefix)} - {"/usr", "/"})


def _resolver(sandbox: Sandbox) -> list[str]:
    return [] if sandbox.network == "none" else ["/etc/resolv.conf", "/etc/gai.conf", "/etc/host.conf"]


def bubblewrap_words(
    sandbox: Sandbox,
    read: Sequence[str],
    cwd: str | None,
    proxy: HostProxy | None,
    doors: Mapping[int, PortDoor] | None = None,
) -> list[str]:
    """The command line of bubblewrap for this policy, up to the command."""
    words = [shutil.which("bwrap", path=PROGRAMS) or "bwrap"]
    words += ["--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--hostname", "sandbox"]
    if sandbox.network == "all":
        words.append("--share-net")
    for place in _SYSTEM:
        words += ["--ro-bind-try", place, place]
    for name in _ETC:
        words += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    for place in _resolver(sandbox):
        words += ["--ro-bind-try", os.path.realpath(place), place]
    words += ["--dev", "/dev", "--proc", "/proc"]
    words += ["--size", str(TMP_SIZE), "--tmpfs", "/dev/shm", "--size", str(TMP_SIZE), "--tmpfs", "/tmp"]  # noqa: S108
    modes = dict.fromkeys(_existing_paths((*read, *sandbox.readable)), "--ro-bind") | dict.fromkeys(
        sandbox.writable, "--bind"
    )
    for place in sorted(modes):  # a folder before what is in it, which may be allowed less or more
        words += [modes[place], place, place]
    words += ["--ro-bind", _box.__file__, LAUNCHER]
    if proxy is not None:
        words += ["--bind", proxy.path, PROXY]
    for port, door in (doors or {}).items():
        words += ["--bind", door.path, f"{DOOR}.{port}"]
    shown = (*sandbox.readable, *sandbox.writable, *read)
    if cwd is not None and not any(Path(cwd).is_relative_to(place) for place in shown):
        words += ["--dir", cwd]
    for place in ("/dev", "/proc", "/"):
        words += ["--remount-ro", place]
    return words


def _existing_paths(paths: Iterable[str]) -> list[str]:
    """The paths that exist, as they really are."""
    return [os.path.realpath(path) for path in paths if os.path.lexists(path)]


# --- what there is on this machine ------------------------------------------------------------------------------


def landlock_abi() -> int:
    """The version of Landlock in this kernel; 0 when there is none."""
    if sys.platform != "linux":
        return 0
    import ctypes

    return max(0, int(ctypes.CDLL(None, use_errno=True).syscall(444, None, 0, 1)))


def explain_unusable(mechanism: str) -> str:
    """Why a mechanism cannot be used here; empty when it can. It is tested once, and the answer is cached."""
    known = _TRIED.get(mechanism)
    if known is None:
        known = _TRIED[mechanism] = _try_mechanism(mechanism)
    return known


_TRIED: dict[str, str] = {}


def list_mechanisms() -> tuple[str, ...]:
    """The mechanisms that work here, best first; "none" is not one."""
    return tuple(name for name in MECHANISMS[:2] if not explain_unusable(name))


def _try_mechanism(mechanism: str) -> str:
    missing = _explain_missing(mechanism)
    if missing:
        return missing
    try:
        _TRIED[mechanism] = ""  # so that it may be entered
        with Sandbox(by=(mechanism,)).enter(["/bin/sh", "-c", "exit 7"]) as boxed:
            done = subprocess.run(  # noqa: S603 - our own command
                boxed.words,
                env=boxed.env,
                cwd=boxed.cwd,
                pass_fds=boxed.pass_fds,
                capture_output=True,
                timeout=30,
                check=False,
            )
    except (OSError, subprocess.SubprocessError, SandboxError) as error:
        return f"it cannot be tested: {error}"
    finally:
        del _TRIED[mechanism]
    if done.returncode == 7:  # noqa: PLR2004
        return ""
    said = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
    return f"it does not work here ({said[-1][:200] if said else f'status {done.returncode}'})"


def _explain_missing(mechanism: str) -> str:
    """What is missing, known without trying."""
    if sys.platform != "linux":
        return f"it needs Linux, and this is {sys.platform}"
    if platform.machine() not in KNOWN_MACHINES:
        return f"there is no filter for system calls on {platform.machine()}, only on {', '.join(KNOWN_MACHINES)}"
    if mechanism == "bubblewrap":
        return "" if shutil.which("bwrap", path=PROGRAMS) else "bubblewrap is not installed"
    abi = landlock_abi()
    return "" if abi >= _LEAST_ABI else f"this kernel has Landlock version {abi}, but version {_LEAST_ABI} is needed"


# --- checks -----------------------------------------------------------------------------------------------------


def _paths(field: str, given: object) -> tuple[str, ...]:
    found = []
    for item in _check_list(field, given):
        if not isinstance(item, str | os.PathLike):
            raise ConfigurationError(f"Sandbox.{field} takes paths, not {item!r:.80}")
        text = os.fspath(item)
        if not isinstance(text, str) or not text or "\0" in text:
            raise ConfigurationError(f"Sandbox.{field}: {text!r:.80} is not a path")
        path = os.path.realpath(os.path.expanduser(text))  # noqa: PTH111
        if not os.path.exists(path):  # noqa: PTH110
            raise ConfigurationError(f"Sandbox.{field}: {text!r:.120} does not exist; make it first")
        if field == "write" and (path in _NEVER_WRITTEN or path.startswith(_NOTHING_WRITTEN_IN)):
            raise ConfigurationError(f"Sandbox.write: {text!r:.120} is part of the system; name your own folder")
        if field == "read" and path in ("/", "/proc", "/sys", "/dev"):
            raise ConfigurationError(f"Sandbox.read: {text!r:.120} is the whole system; name what the program needs")
        found.append(path)
    return tuple(dict.fromkeys(found))


def _names(field: str, given: object) -> tuple[str, ...]:
    found = tuple(_check_list(field, given))
    for item in found:
        if not isinstance(item, str) or not item:
            raise ConfigurationError(f"Sandbox.{field} takes names, not {item!r:.80}")
    return found


def _variables(given: object) -> tuple[str, ...]:
    found = _names("env", given)
    for name in found:
        if "=" in name:
            alone = name.partition("=")[0]
            raise ConfigurationError(f"Sandbox.env takes names of variables, not their values: write {alone!r:.80}")
    return found


def _check_command(words: object, cwd: str | os.PathLike[str] | None) -> None:
    fits = isinstance(words, Sequence) and not isinstance(words, str | bytes)
    if not fits or not words or not all(isinstance(word, str) and "\0" not in word for word in words):  # type: ignore[attr-defined]
        raise ConfigurationError(f"enter() takes a command as a list of words, such as ['ls', '-l'], not {words!r:.80}")
    if cwd is not None and not os.path.isdir(cwd):  # noqa: PTH112
        raise SandboxError(f"cwd={os.fspath(cwd)!r:.120} is not a folder; make it first")


def _check_list(field: str, given: object) -> list[Any]:
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise ConfigurationError(f"Sandbox.{field} takes a list, not {given!r:.80}")
    return list(given)


def _network(given: object) -> str | tuple[str, ...]:
    if isinstance(given, str):
        if given not in ("none", "all"):
            raise ConfigurationError(
                f"Sandbox.network={given!r:.80} is not a choice; use 'none', 'all' or a list of hosts"
            )
        return given
    hosts = _names("network", given)
    for word in ("none", "all"):
        if word in hosts:
            raise ConfigurationError(f"Sandbox.network: {word!r} is not a host; write network={word!r}, without a list")
    parse_hosts(hosts)
    return hosts or "none"


def _check(sandbox: Sandbox) -> None:
    for name, least in (("memory", 1 << 20), ("processes", 1), ("file_size", 0), ("files", 8)):
        value = getattr(sandbox, name)
        if type(value) is not int or value < least:
            raise ConfigurationError(f"Sandbox.{name} must be a whole number of at least {least}, not {value!r:.80}")
    if not sandbox.by or any(name not in MECHANISMS for name in sandbox.by):
        raise ConfigurationError(f"Sandbox.by={list(sandbox.by)!r:.80} must name some of {', '.join(MECHANISMS)}")
    if "none" in sandbox.by[:-1]:
        raise ConfigurationError(
            f"Sandbox.by={list(sandbox.by)!r:.80}: 'none' must come last: anything after it is never tried"
        )
