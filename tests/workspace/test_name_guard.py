"""A protected name never appears while a sandboxed command runs: the guard makes every name that the command asks for.

Attacks that try to make it appear, honest work that must not notice the guard, and what happens when it fails.
"""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from glidepath.errors import ToolError
from glidepath.sandbox import Sandbox
from glidepath.workspace import (
    Workspace,
    _warden,
    name_guard,
    run_command,
    sandbox as sandbox_module,
    shell as shell_module,
)
from glidepath.workspace.sandbox import guard_fault

from .test_plants import PLANTS, rounds

pytestmark = pytest.mark.process
ME = "-c user.name=me -c user.email=me@example.org"
EVIL = "[core]\\n\\tfsmonitor = evil\\n"


@pytest.fixture
def place(tmp_path, sandbox):
    if sandbox is None or guard_fault(sandbox.program):
        pytest.skip("names cannot be guarded here")
    (tmp_path / "root").mkdir()
    return Workspace(tmp_path / "root")


def run(place, sandbox, command, seconds=60.0):
    return asyncio.run(run_command(place, sandbox, command, seconds))


def python(place, sandbox, code, seconds=60.0):
    (place.root / "attack.py").write_text(textwrap.dedent(code))
    try:
        return run(place, sandbox, "python3 attack.py", seconds)
    except ToolError as error:
        return str(error)


class Outside:
    """Somebody outside who looks at a folder without a pause, and notes what ought never to be there."""

    def __init__(self, folder, *names, content=b"evil"):
        self.folder, self.names, self.content = folder, names, content
        self.seen = []
        self.looks = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def _look(self):
        while not self._over.is_set():
            self.looks += 1
            for name in self.names:
                with contextlib.suppress(OSError):
                    if self.content is None:
                        os.lstat(self.folder / name)
                        self.seen.append(name)
                    elif self.content in (self.folder / name).read_bytes():
                        self.seen.append(name)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()


@pytest.mark.parametrize("plant", PLANTS)
def test_nobody_outside_ever_sees_it(place, sandbox, plant):
    (place.root / "lib").mkdir()
    files = ("CLAUDE.md", ".envrc", "claude.MD", ".vscode/tasks.json", ".git/hooks/post-checkout")
    command = PLANTS[plant].replace("mkdir lib &&", "").replace("&& mv y/a/b/lib .", "&& mv y/a/b/lib/.git lib/")
    configs = (".git/config", ".git.set-aside/HEAD")
    with (
        Outside(place.root / "lib", *files, content=None) as names,
        Outside(place.root / "lib", configs[0], content=b"fsmonitor") as contents,
        pytest.raises(ToolError, match="is protected"),
    ):
        run(place, sandbox, f"{command}; sleep 0.2")
    assert names.seen == contents.seen == []
    assert names.looks > 100
    left = subprocess.run(["git", "-C", "lib", "rev-parse"], cwd=place.root, capture_output=True, check=False)
    assert left.returncode


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_hundred_rounds_of_every_plant_show_nothing(tmp_path, sandbox):
    for number in range(100):
        root = tmp_path / str(number)
        (root / "lib").mkdir(parents=True)
        plant = list(PLANTS.values())[number % len(PLANTS)]
        command = plant.replace("mkdir lib &&", "").replace("&& mv y/a/b/lib .", "&& mv y/a/b/lib/.git lib/")
        with (
            Outside(root / "lib", ".envrc", "CLAUDE.md", ".vscode", content=None) as names,
            Outside(root / "lib", ".git/config", content=b"fsmonitor") as contents,
            pytest.raises(ToolError),
        ):
            run(Workspace(root), sandbox, command)
        assert names.seen == contents.seen == [], (number, plant)
    assert not any(rounds(tmp_path / "prompts", sandbox, 100))


# --- what an attacker tries who has read it ---------------------------------------------------------------------------


def test_a_path_that_is_changed_while_the_kernel_looks_makes_nothing(place, sandbox):
    """The oldest trick against such guards: another thread swaps the path between the look and the deed."""
    code = """
    import ctypes, os, threading, time
    libc = ctypes.CDLL(None)
    path = ctypes.create_string_buffer(b"plainn", 16)
    end = time.time() + 3

    def swap():
        while time.time() < end:
            path.raw = b".envrc".ljust(16, b"\\0")
            path.raw = b"plainn".ljust(16, b"\\0")

    threading.Thread(target=swap).start()
    tries = 0
    while time.time() < end:
        for flags in (os.O_CREAT | os.O_WRONLY,):
            fd = libc.open(path, flags, 0o644)
            if fd >= 0:
                os.close(fd)
        libc.mkdir(path, 0o755)
        libc.symlink(b"x", path)
        libc.rename(b"plainn", path)
        tries += 1
        for name in ("plainn", ".envrc.set-aside"):
            try:
                os.unlink(name)
            except OSError:
                try:
                    os.rmdir(name)
                except OSError:
                    pass
    print(tries)
    """
    with Outside(place.root, ".envrc", content=None) as names:
        said = python(place, sandbox, code)
    assert names.seen == []
    assert int(said.split()[0]) > 50, said


CONFIGS = {
    "kept open and moved": """
        file = open("x/.git/config.lock", "w"); file.write("[core]\\n\\tbare = false\\n"); file.flush()
        os.rename("x/.git/config.lock", "x/.git/config")
        file.write(EVIL); file.flush()
        """,
    "kept open": """
        file = open("x/.git/config", "w"); file.write("[core]\\n\\tbare = false\\n"); file.flush()
        time.sleep(0.3); file.write(EVIL); file.flush(); time.sleep(0.3)
        """,
    "by another name": """
        try:
            os.link("x/.git/config", "twin")
        except OSError:
            pass
        else:
            open("twin", "a").write(EVIL)
        """,
    "opened again by its descriptor": """
        read = os.open("x/.git/config", os.O_RDONLY)
        try:
            os.write(os.open(f"/proc/self/fd/{read}", os.O_WRONLY | os.O_APPEND), EVIL.encode())
        except OSError:
            pass
        """,
    "by another name of its descriptor": """
        read = os.open("x/.git/config", os.O_RDONLY)
        try:
            os.link(f"/proc/self/fd/{read}", "twin", follow_symlinks=True)
        except OSError:
            pass
        else:
            open("twin", "a").write(EVIL)
        """,
    "by a way through other folders": """
        os.mkdir("x/d"); os.symlink("../.git", "x/d/l")
        open("x/d/l/config", "a").write(EVIL); time.sleep(0.1)
        open("x/d/../.git/../.git/config", "a").write(EVIL)
        """,
    "under construction": """
        subprocess.run("rm -rf x; mkdir x", shell=True)
        os.mkdir("x/made"); file = open("x/made/config", "w"); file.write("[core]\\n\\tbare = false\\n"); file.flush()
        shutil.copytree("y/.git", "x/made", dirs_exist_ok=True, ignore=lambda *_: ["config"])
        os.rename("x/made", "x/.git")
        file.write(EVIL); file.flush()
        """,
    "through the folder's descriptor": """
        folder = os.open("x/.git", os.O_RDONLY)
        os.rename("x/.git", "x/other")
        new = os.open("config", os.O_WRONLY | os.O_APPEND, dir_fd=folder)
        os.write(new, EVIL.encode()); os.close(new); time.sleep(0.1)
        os.rename("x/other", "x/.git")
        """,
    "through a link": """
        os.symlink(".git/config", "x/innocent")
        open("x/innocent", "a").write(EVIL)
        """,
    "exchanged": """
        import ctypes
        open("x/evil", "w").write(EVIL)
        ctypes.CDLL(None).renameat2(-100, b"x/evil", -100, b"x/.git/config", 2)
        """,
    "as a hook that waits": """
        os.rename("x/.git/hooks", "x/.git/away")
        open("x/.git/away/post-checkout", "w").write("fsmonitor")
        os.rename("x/.git/away", "x/.git/hooks")
        """,
    "as a hook behind a link": """
        shutil.rmtree("x/.git/hooks"); os.mkdir("x/scripts"); open("x/scripts/post-checkout", "w").write("fsmonitor")
        os.symlink("../scripts", "x/.git/hooks")
        """,
}


@pytest.mark.parametrize("how", CONFIGS)
def test_a_configuration_cannot_be_changed_behind_the_guards_back(place, sandbox, how):
    code = (
        f"import os, shutil, subprocess, time\nEVIL = {'[core]' + chr(10) + chr(9) + 'fsmonitor = evil' + chr(10)!r}\n"
    )
    code += 'subprocess.run("git init -q x; git init -q y", shell=True)\n' + textwrap.dedent(CONFIGS[how])
    code += "time.sleep(0.3)\n"
    files = (".git/config", ".git/hooks/post-checkout")
    with Outside(place.root / "x", *files, content=b"fsmonitor") as contents:
        python(place, sandbox, code)
    assert contents.seen == []
    for file in files:
        with contextlib.suppress(OSError):
            assert b"fsmonitor" not in (place.root / "x" / file).read_bytes()


OTHER_WAYS = {
    "a file without a name": (
        "fd = os.open('.', os.O_TMPFILE | os.O_WRONLY)\nos.link(f'/proc/self/fd/{fd}', '.envrc', follow_symlinks=True)",
        ".envrc",
    ),
    "a pipe": ("os.mkfifo('.envrc')", ".envrc"),
    "a twin": ("open('a', 'w').close(); os.link('a', '.envrc')", ".envrc"),
    "a folder that brings it": ("os.makedirs('c/fish'); os.rename('c', '.config')", ".config/fish"),
    "a link that leads to it": ("os.makedirs('c/fish'); os.symlink('c', '.config')", ".config/fish"),
    "from below": ("os.mkdir('d'); os.chdir('d'); open('../.envrc', 'w').close()", ".envrc"),
    "by a long way": ("os.mkdir('d'); open('d/../d/.././.envrc', 'w').close()", ".envrc"),
    "by an absolute path": ("open(os.getcwd() + '/.envrc', 'w').close()", ".envrc"),
    "through a link to here": ("os.symlink('.', 'l'); open('l/.envrc', 'w').close()", ".envrc"),
    "through a dangling link": ("os.symlink('.envrc', 'l'); open('l', 'w').close()", ".envrc"),
    "through its own process": ("open('/proc/self/cwd/.envrc', 'w').close()", ".envrc"),
    "through its own root": ("open('/proc/self/root' + os.getcwd() + '/.envrc', 'w').close()", ".envrc"),
    "through an open folder": ("fd = os.open('.', os.O_RDONLY)\nopen(f'/dev/fd/{fd}/.envrc', 'w').close()", ".envrc"),
    "another spelling": ("open('.Envrc', 'w').close()", ".Envrc"),
    "a socket": (
        "import socket\na, b = socket.socketpair()\na.bind('.envrc')",
        ".envrc",
    ),
    "a process of another kind": (
        "import ctypes\nctypes.CDLL(None).syscall(437, -100, b'.envrc', bytes([65]) + bytes(23), 24)",
        ".envrc",
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", OTHER_WAYS)
def test_no_other_way_makes_the_name(place, sandbox, way):
    code, name = OTHER_WAYS[way]
    with Outside(place.root, name, content=None) as names:
        python(place, sandbox, f"import os\n{code}")
    assert names.seen == []
    assert not os.path.lexists(place.root / name)


HEAD = "echo 'ref: refs/heads/m' > x/HEAD"
BARE = {
    "its HEAD last": "mkdir -p x/objects x/refs; printf '{evil}' > x/config; {head}",
    "its configuration last": "mkdir -p x/objects x/refs; {head}; printf '{evil}' > x/config",
    "its objects last": "mkdir -p x/refs; {head}; printf '{evil}' > x/config; mkdir x/objects",
    "moved together": "mkdir -p a x/refs; {head}; printf '{evil}' > x/config; mv a x/objects",
    "made by git": "git init -q --bare x; git -C x config core.fsmonitor evil",
    "a common folder": "mkdir x; {head}; echo /tmp > x/commondir",
}


@pytest.mark.parametrize("order", BARE)
def test_a_folder_never_becomes_a_repository_that_names_a_command(place, sandbox, order):
    (place.root / "x").mkdir()
    asked = []

    def ask():
        while not over.is_set():
            git = ["git", "-C", str(place.root / "x"), "config", "--local", "core.fsmonitor"]
            asked.append(subprocess.run(git, capture_output=True, check=False).stdout)

    over = threading.Event()
    thread = threading.Thread(target=ask)
    thread.start()
    try:
        with pytest.raises(ToolError, match="its HEAD was renamed"):
            run(place, sandbox, BARE[order].format(evil=EVIL, head=HEAD) + "; sleep 0.2")
    finally:
        over.set()
        thread.join()
    assert not any(asked)
    assert not (place.root / "x/HEAD").exists()


# --- honest work ------------------------------------------------------------------------------------------------------


COMMIT = f"{ME} commit -q --allow-empty -m x"
CONFIG = "a/.git/config"
SOCKET = "import socket; s = socket.create_server(('127.0.0.1', 0)); print('ok')"
THREADS = """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(8) as pool:
    list(pool.map(lambda i: open(f'f{i}', 'w').write('x'), range(200)))
"""
HONEST = {
    "modes": ("umask 027; echo a > f; mkdir d; stat -c %a f d; install -m 600 f g; stat -c %a g", "640\n750\n600"),
    "streams": ("echo a > /dev/stdout; echo b >/dev/stderr; echo c > /dev/fd/1; echo d >/dev/null; true", "a\nb\nc"),
    "appending": ("echo a > f; echo b >> f; cat f", "a\nb"),
    "links": ("ln -s f l; echo a > l; cat f; ln f h; ls -i f h | awk '{print $1}' | uniq | wc -l", "a\n1"),
    "pipes with names": ("mkfifo p; (sleep 0.1; cat p) & echo through > p; wait", "through"),
    "temporary files": ("f=$(mktemp ./x.XXX); echo a > $f; mv $f y; cat y; mktemp -d ./d.XXX | wc -w", "a\n1"),
    "errors": ("mkdir a; mkdir a; echo x > a; echo x > no/such; ln -s a b; ln -s a b; mv no a; true", None),
    "no clobber": ("set -C; echo a > f; echo b > f; cat f", "/bin/sh: 1: cannot create f: File exists\na"),
    "folders that move": ("mkdir -p a/b/c; echo x > a/b/c/f; mv a z; cat z/b/c/f; rm -r z; ls", "x"),
    "names of all kinds": ("touch 'a b' 'ü' '-' $(printf 'new\\nline'); ls | wc -l", "4"),
    "descriptors": ("exec 3> f; echo a >&3; exec 3>&-; cat f", "a"),
    "an archive": ("mkdir d; echo a > d/f; tar cf t.tar d; rm -r d; tar xf t.tar; cat d/f", "a"),
    "a repository that is copied": (f"git init -q a; git -C a {COMMIT}; cp -r a b; git -C b log --format=%s", "x"),
    "a configuration": (f"git init -q a; sed -i s,a,a, {CONFIG}; echo '#' >> {CONFIG}; sleep 1; tail -1 {CONFIG}", "#"),
    "settings": (f"git init -q a; cd a; git config user.name you; git {COMMIT}; git config user.name", "you"),
    "branches": (f"git init -q a; cd a; git {COMMIT}; git checkout -qb b; git branch | wc -l", "2"),
    "many at once": ("for i in $(seq 200); do echo $i > f$i & done; wait; cat f* | sort -n | tail -1", "200"),
    "sockets on this machine": (f'python3 -c "{SOCKET}"', "ok"),
    "threads": (f'python3 -c "{THREADS}"; ls | wc -l', "200"),
}  # fmt: skip


@pytest.mark.parametrize("work", HONEST)
def test_honest_work_does_not_notice(place, sandbox, monkeypatch, work):
    command, wanted = HONEST[work]
    guarded = run(place, sandbox, command)
    if wanted is not None:
        assert guarded == wanted
    shutil.rmtree(place.root)
    place.root.mkdir()
    monkeypatch.setattr(shell_module, "guard_fault", lambda _: "not now")
    assert run(place, sandbox, command) == guarded


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to somebody else")
def test_a_command_gains_no_rights_by_asking_the_guard(place, sandbox):
    """The guard was root, and knows the whole system. What the command may not open it may not open through it."""
    theirs = place.root / "theirs"
    theirs.mkdir()
    (theirs / "secret").write_text("mine")
    for path in (theirs / "secret", theirs):
        os.chown(path, 65534, 65534)
        path.chmod(0o600 if path.is_file() else 0o755)
    outside = place.root.parent / "outside"
    outside.mkdir()
    (place.root / "way").symlink_to(outside)
    code = f"""
    import errno, os
    tries = [
        lambda: open("theirs/secret", "a"), lambda: open("theirs/new", "w"), lambda: os.mkdir("theirs/d"),
        lambda: os.rename("theirs/secret", "mine"), lambda: open("/etc/x", "w"), lambda: os.mkdir("/x"),
        lambda: open("/etc/shadow", "r+"), lambda: open("/proc/sys/kernel/hostname", "w"),
        lambda: os.mknod("disk", 0o60600, 0x800), lambda: open("way/x", "w"), lambda: os.open("/proc/1/mem", os.O_RDWR),
        lambda: open("{outside}/x", "w"),
    ]
    for number, one in enumerate(tries):
        try:
            one()
            print(number, "DONE")
        except OSError as error:
            print(number, errno.errorcode[error.errno])
    """
    said = python(place, sandbox, code).splitlines()
    allowed = {"EACCES", "EPERM", "EROFS", "ENOENT"}
    assert len(said) == 12
    assert {line.split()[1] for line in said} <= allowed, said
    assert (theirs / "secret").read_text() == "mine"
    assert not list(outside.iterdir())


# --- when there is no guard -------------------------------------------------------------------------------------------


def mounts_of(pid):
    """Which view of the file system a process has; None for one that is over, or not ours to look at."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/ns/mnt").stat().st_ino
    return None


def find_own_guard():
    """The guard of the command that this test runs: nobody's descendant, and in the view of what is our descendant.

    Other tests run commands at the same time, on this machine and in other processes; their guards are none of ours.
    """
    here = mounts_of("self")
    inside = {mounts_of(pid) for pid in _warden.list_descendants(os.getpid())} - {here, None}
    found = []
    for pid in _warden.list_processes():
        with contextlib.suppress(OSError):
            is_warden = b"_warden.py" in Path(f"/proc/{pid}/cmdline").read_bytes()
            if is_warden and mounts_of(pid) in inside and os.getsid(pid) == pid:
                found.append(pid)
    [guard] = found
    return guard


async def run_and_find_guard(place, sandbox, act):
    """Run a command for a while, and do something with the process that guards it."""
    command = "touch begun; sleep 1.5; echo x > .envrc; echo x > plain; mkdir .vscode; ls -A"
    running = asyncio.ensure_future(run_command(place, sandbox, command, 60))
    while not (place.root / "begun").exists():  # noqa: ASYNC110 - a real process in real time
        await asyncio.sleep(0.02)
    act(find_own_guard())
    return await running


def test_a_guard_that_is_killed_lets_nothing_pass(place, sandbox):
    with pytest.raises(ToolError, match=r"the guard of protected names failed \(it ended before the command") as caught:
        asyncio.run(run_and_find_guard(place, sandbox, lambda pid: os.kill(pid, signal.SIGKILL)))
    assert "Function not implemented" in str(caught.value)
    assert [path.name for path in place.root.iterdir()] == ["begun"]


def test_a_command_that_cannot_be_guarded_is_not_started(place, sandbox, monkeypatch):
    from glidepath.workspace.file_survey import FileSurvey

    real = FileSurvey.describe_guard
    monkeypatch.setattr(FileSurvey, "describe_guard", lambda self, _, machine: real(self, "/no/such/program", machine))
    with pytest.raises(ToolError, match="the guard of protected names failed"):
        run(place, sandbox, "touch begun")
    assert not (place.root / "begun").exists()


def test_without_a_guard_names_are_watched(place, sandbox, monkeypatch):
    monkeypatch.setattr(shell_module, "guard_fault", lambda _: "not now")
    with pytest.raises(ToolError, match="at once"):
        run(place, sandbox, "echo x > .envrc; sleep 0.5")


def test_why_there_is_no_guard_is_told(tmp_path, monkeypatch):
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o4755)
    assert "setuid" in guard_fault(str(program))
    other = tmp_path / "other"
    other.write_text("#!/bin/sh\nexit 3\n")
    other.chmod(0o755)
    assert "does not work here" in guard_fault(str(other))
    monkeypatch.setattr(sandbox_module.platform, "machine", lambda: "sparc")
    assert "no guard of names" in guard_fault(str(tmp_path / "third"))


def test_a_declared_sandbox_is_guarded_as_well(place, sandbox):
    box = Sandbox(write=[place.root], read=[], by=["bubblewrap"])
    with (
        Outside(place.root, ".envrc", content=None) as names,
        pytest.raises(ToolError, match=r"'\.envrc' is protected"),
    ):
        run(place, box, "echo x > .envrc; echo y > plain; sleep 0.2")
    assert names.seen == []
    assert (place.root / "plain").read_text() == "y\n"


@pytest.mark.skipif(os.geteuid() != 0 or not Path("/usr/bin/python3").exists(), reason="needs root and another user")
def test_it_holds_for_an_ordinary_user(tmp_path, place):
    """The guard enters the command's namespaces; what root may do there anyway, others may as their owner only."""
    version = subprocess.run(
        ["/usr/bin/python3", "-c", "import sys; print(sys.version_info[:2])"],
        capture_output=True,
        text=True,
        check=False,
    )
    if version.stdout.strip() != str(sys.version_info[:2]):
        pytest.skip("the system has another Python")
    root = Path("/var/tmp") / f"glidepath-guard-{os.getpid()}"
    root.mkdir()
    code = (
        "import asyncio, os, pathlib, sys\nos.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "from glidepath.workspace import Workspace\nfrom glidepath.workspace.sandbox import find_sandbox, guard_fault\n"
        "from glidepath.workspace.shell import run_command\n"
        "box = find_sandbox()\nprint('fault', guard_fault(box.program))\n"
        f"command = 'id -u; echo x > .envrc; echo y > plain; ls -A; cat plain'\n"
        f"print(asyncio.run(run_command(Workspace(pathlib.Path({str(root)!r})), box, command, 60)))\n"
    )
    places = [str(Path(shell_module.__file__).parents[2]), *[one for one in sys.path if "site-packages" in one]]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(places), "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/"}
    try:
        os.chown(root, 65534, 65534)
        done = subprocess.run(
            ["/usr/bin/python3", "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
            timeout=60,
        )
    finally:
        names = sorted(path.name for path in root.iterdir())
        shutil.rmtree(root)
    assert "fault \n" in done.stdout, done.stdout + done.stderr
    assert names == [".envrc.set-aside", "plain"]
    assert "'.envrc' is protected" in done.stderr


def test_nothing_is_left_running(place, sandbox):
    guards = []
    with pytest.raises(ToolError, match="is protected"):
        asyncio.run(run_and_find_guard(place, sandbox, guards.append))
    [pid] = guards
    end = time.monotonic() + 30
    while Path(f"/proc/{pid}").exists() and time.monotonic() < end:
        time.sleep(0.05)
    assert not Path(f"/proc/{pid}").exists()


def test_a_command_that_is_stopped_before_it_begins_is_no_failure_of_its_guard(tmp_path, monkeypatch):
    """Its end of the line is closed when the guard says that it is ready."""

    class Ready:
        said = ()

        def __init__(self, job, listener):
            os.close(listener)
            near.close()

        def serve(self):
            pass

    near, far = socket.socketpair()
    monkeypatch.setattr(name_guard, "NameGuard", Ready)
    socket.send_fds(near, [b"."], [os.open(tmp_path, os.O_RDONLY)])
    read, write = os.pipe()
    name_guard.guard(far, write, {})
    assert json.loads(os.read(read, 1000)) == {"planted": [], "failed": ""}
    os.close(read)
    os.close(write)
