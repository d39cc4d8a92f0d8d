"""The sandbox under attack: sockets, limits, secrets, and what can be planted in the workspace."""

import asyncio
import os
import shlex
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from glidepath import Agent, CancelToken, ConfigurationError, Limits
from glidepath.errors import ToolError
from glidepath.testing import ScriptedModel, call, say
from glidepath.workspace import (
    Bubblewrap,
    ShellLimits,
    Workspace,
    file_survey as survey_module,
    run_command,
    sandbox as sandbox_module,
    try_sandbox,
    workspace_tools,
)

pytestmark = pytest.mark.process

ME = "-c user.name=me -c user.email=me@example.org"


@pytest.fixture
def place(tmp_path):
    (tmp_path / "root").mkdir()
    return Workspace(tmp_path / "root")


@pytest.fixture
def repository(place):
    git(place.root, "init", "-q")
    (place.root / "a.txt").write_text("one\n")
    git(place.root, "add", ".")
    git(place.root, *ME.split(), "commit", "-qm", "first")
    return place


@pytest.fixture
def sh(sandbox):
    def run(place, command, seconds=30.0, **options):
        return asyncio.run(run_command(place, sandbox, command, seconds, **options))

    return run


def git(folder, *words):
    return subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True).stdout


def python(code):
    return f"python3 -c {shlex.quote(code)}"


def everything(place):
    return sorted(str(path.relative_to(place.root)) for path in place.root.rglob("*"))


# --- sockets and system calls -----------------------------------------------------------------------------------------


@pytest.fixture
def service():
    """A program of the same person with a socket in a place that the sandbox shows."""
    folder = Path("/opt") if os.access("/opt", os.W_OK) else None
    if folder is None:
        pytest.skip("needs a folder to write in that the sandbox shows, such as /opt, which this user may not write")
    where = folder / f"glidepath-test-{os.getpid()}.sock"
    heard = []
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(where))
        server.listen(5)
        server.settimeout(0.2)
        stop = threading.Event()

        def serve():
            while not stop.is_set():
                try:
                    heard.append(server.accept())
                except TimeoutError:
                    continue

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield where, heard
        finally:
            stop.set()
            thread.join()
            where.unlink()


def test_sockets_of_other_programs_cannot_be_reached(place, sh, service):
    where, heard = service
    text = sh(place, f"ls {where}; " + python(f"import socket; socket.socket(socket.AF_UNIX).connect('{where}')"))
    assert text.startswith(str(where)), "the test shows nothing if the socket is hidden anyway"
    assert "Operation not permitted" in text
    assert heard == []


def test_an_abstract_socket_cannot_be_reached(place, sh):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0glidepath-test-{os.getpid()}")
        server.listen()
        code = f"import socket; socket.socket(socket.AF_UNIX).connect('\\0glidepath-test-{os.getpid()}')"
        assert "Operation not permitted" in sh(place, python(code))


def test_a_pair_of_connected_sockets_works(place, sh):
    code = "import socket; a, b = socket.socketpair(); a.send(b'hi'); print(b.recv(9).decode())"
    assert sh(place, python(code)) == "hi"


def test_a_pair_of_datagram_sockets_is_refused_because_it_could_send_anywhere(place, sh):
    code = "import socket; socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)"
    assert "Operation not permitted" in sh(place, python(code))


@pytest.mark.parametrize("family", ["AF_VSOCK", "AF_ALG", "AF_PACKET"])
def test_other_kinds_of_sockets_are_refused(place, sh, family):
    code = f"import socket; socket.socket(socket.{family}, socket.SOCK_STREAM)"
    assert "Operation not permitted" in sh(place, python(code))


def test_servers_on_the_sandboxs_own_loopback_work(place, sh):
    code = (
        "import socket; s = socket.create_server(('127.0.0.1', 0)); "
        "c = socket.create_connection(s.getsockname()); print('connected')"
    )
    assert sh(place, python(code)) == "connected"


SYSCALL = (
    "import ctypes, os; system = ctypes.CDLL(None, use_errno=True); "
    "print(system.syscall({}), os.strerror(ctypes.get_errno()))"
)


def test_io_uring_is_not_there(place, sh):
    assert (
        sh(place, python(SYSCALL.format("425, 8, ctypes.create_string_buffer(256)"))) == "-1 Function not implemented"
    )


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="needs an x86_64 machine")
def test_system_calls_of_the_x32_kind_are_not_there(place, sh):
    assert sh(place, python(SYSCALL.format("0x40000000 + 41, 1, 1, 0"))) == "-1 Function not implemented"


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="needs an x86_64 machine")
def test_a_system_call_of_the_32_bit_kind_kills(place, sh):
    code = (
        "import ctypes, mmap\n"
        "m = mmap.mmap(-1, 4096, prot=7)\n"
        "m.write(bytes.fromhex('b814000000cd80c3'))  # mov eax, getpid; int 0x80; ret\n"
        "a = ctypes.addressof(ctypes.c_char.from_buffer(m))\n"
        "print('begun', flush=True)\n"
        "print('returned', ctypes.CFUNCTYPE(ctypes.c_int)(a)())\n"
    )
    text = sh(place, python(code))
    assert text.startswith("begun\n")
    assert "returned" not in text
    assert "exit status" in text


@pytest.mark.parametrize("command", ["unshare -Ur id", "unshare -U true"])
def test_no_new_user_namespace_can_be_made(place, sh, command):
    assert "Operation not permitted" in sh(place, command)


def test_threads_and_processes_still_work(place, sh):
    code = (
        "import subprocess, threading; t = threading.Thread(target=print, args=('thread',)); t.start(); t.join(); "
        "print(subprocess.check_output(['echo', 'process'], text=True), end='')"
    )
    assert sh(place, python(code)) == "thread\nprocess"


# --- limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("boxed", [True, False])
def test_a_fork_bomb_is_stopped(place, sandbox, boxed):
    mark = f"sleep {60_000 + os.getpid() + boxed}"
    limits = ShellLimits(processes=30)
    bomb = f"for i in $(seq 200); do setsid {mark} & done; wait"
    with pytest.raises(ToolError, match="stopped: it ran more than 30 processes at once"):
        asyncio.run(run_command(place, sandbox if boxed else None, bomb, 30, limits=limits))
    assert mark not in subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout


def test_a_process_cannot_have_more_memory_than_allowed(place, sh):
    text = sh(place, python("x = bytearray(600_000_000); print(len(x))"), limits=ShellLimits(memory=300_000_000))
    assert "MemoryError" in text


def test_memory_that_is_shared_counts_too(place, sh):
    code = (
        "import mmap, time; m = mmap.mmap(-1, 600_000_000); [m.write(b'x' * 1_000_000) for _ in range(600)]; "
        "time.sleep(20)"
    )
    with pytest.raises(ToolError, match="stopped: it used more than 300000000 bytes of memory"):
        sh(place, python(code), limits=ShellLimits(memory=300_000_000))


def test_many_processes_cannot_have_more_memory_together(place, sh):
    one = python("x = bytearray(120_000_000); import time; time.sleep(20)")
    with pytest.raises(ToolError, match="of memory"):
        sh(place, " & ".join([one] * 4) + " & wait", limits=ShellLimits(memory=300_000_000))


def test_a_file_cannot_be_larger_than_allowed(place, sh):
    sh(place, "head -c 5000000 /dev/zero > big", limits=ShellLimits(file_size=1_000_000))
    assert (place.root / "big").stat().st_size <= 1_000_000


def test_a_disk_that_fills_up_stops_the_command(place, sh):
    fill = "for i in $(seq 400); do head -c 1000000 /dev/urandom > f$i; done; sleep 20"
    with pytest.raises(ToolError, match="stopped: the disk lost more than 100000000 bytes"):
        sh(place, fill, limits=ShellLimits(disk=100_000_000))


@pytest.mark.parametrize("where", ["/tmp", "/var/tmp", "/dev/shm", "$HOME"])
def test_folders_in_memory_are_bounded(place, sh, where):
    text = sh(place, f"df -k --output=size {where} | tail -1")
    assert int(text) <= (1 << 30) // 1024


@pytest.mark.parametrize("where", ["/dev", "/run", "/home", "/srv", "/"])
def test_other_folders_in_memory_cannot_be_written(place, sh, where):
    if Path(where).is_dir():
        assert "exit status" in sh(place, f"echo x > {where}/glidepath-was-here")


@pytest.mark.parametrize("name", ["processes", "memory", "file_size", "disk"])
@pytest.mark.parametrize("wrong", [0, -1, 1.5, None, True, "1"])
def test_limits_are_whole_numbers(name, wrong):
    with pytest.raises(ConfigurationError, match=name):
        ShellLimits(**{name: wrong})


# --- secrets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/etc/shadow", "/etc/sudoers", "/etc/gshadow"])
def test_files_with_secrets_are_empty_or_unreadable(place, sh, path):
    text = sh(place, f"cat {path} 2>/dev/null; true")
    assert text == "(no output)"


@pytest.mark.parametrize(
    "path", ["/root", "/home", "/run", "/var/run", "/run/secrets", "/srv", "/mnt", "/media", "/etc/ssh", "/var/log"]
)
def test_folders_with_secrets_are_empty(place, sh, path):
    shown = sh(place, f"ls -A {path} 2>/dev/null; true")
    assert shown == "(no output)" or place.root.is_relative_to(Path(path) / shown)


def test_the_kernel_cannot_be_set_up_even_by_root(place, sh):
    for path in ("/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/sys/kernel/uevent_helper"):
        if Path(path).exists():  # opened for writing, and nothing written: it is this machine's own kernel
            assert "exit status" in sh(place, f": >> {path}"), path


def test_the_whole_system_is_refused_before_it_is_read(sandbox, monkeypatch):
    monkeypatch.setattr(
        "glidepath.workspace.shell.find_protected_entries", lambda workspace: pytest.fail("the disk was read")
    )
    with pytest.raises(ToolError, match="root of the file system"):
        asyncio.run(run_command(Workspace("/"), sandbox, "true", 5))


# --- HOME -------------------------------------------------------------------------------------------------------------


def homes(folder):
    return [path for path in Path(folder).iterdir() if path.name.startswith("glidepath-home-")]


@pytest.mark.parametrize("boxed", [True, False])
def test_home_is_an_empty_folder_that_is_gone_afterwards(place, sandbox, boxed, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    command = "echo $HOME; stat -c %a $HOME; ls -A $HOME; mkdir $HOME/d; touch $HOME/d/f; chmod 0 $HOME/d"
    home, mode = asyncio.run(run_command(place, sandbox if boxed else None, command, 20)).split()
    assert mode == "700"
    assert not Path(home).exists()
    assert not Path(home).is_relative_to(place.root)
    assert homes(tmp_path) == []


@pytest.mark.parametrize("boxed", [True, False])
def test_dot_files_of_the_repository_are_not_the_persons(repository, sandbox, boxed):
    (repository.root / ".gitconfig").write_text("[core]\n\tfsmonitor = \"sh -c 'echo RAN >&2; false'\"\n")
    command = "git status -s; git config --global --list; true"
    assert "RAN" not in asyncio.run(run_command(repository, sandbox if boxed else None, command, 20))


def test_another_home_can_be_named_and_is_read_only_in_the_sandbox(place, sandbox, tmp_path):
    home = tmp_path / "me"
    home.mkdir()
    (home / ".gitconfig").write_text("[user]\n\tname = Somebody\n")
    command = "echo $HOME; git config --global user.name; touch $HOME/x"
    text = asyncio.run(run_command(place, sandbox, command, 20, home=home))
    assert text.startswith(f"{home}\nSomebody\n")
    assert "Read-only" in text


@pytest.mark.parametrize("wrong", ["/no/such/folder", "/", __file__, 3])
def test_a_home_is_a_folder(place, wrong):
    with pytest.raises(ConfigurationError, match="shell_home"):
        workspace_tools(place, ["shell"], sandbox="off", shell_home=wrong)


# --- git --------------------------------------------------------------------------------------------------------------


def test_git_works(repository, sh):
    command = (
        f"echo two >> a.txt; git status -s; git add a.txt; git {ME} commit -qm second; git checkout -q -b topic; "
        f"git {ME} commit -q --allow-empty -m third; git stash list; git branch; git log --oneline | wc -l"
    )
    assert sh(repository, command).split() == ["M", "a.txt", "master", "*", "topic", "3"] or "topic" in git(
        repository.root, "branch"
    )
    assert git(repository.root, "log", "--format=%s").split() == ["third", "second", "first"]


@pytest.mark.parametrize(
    "attack",
    [
        "git config core.fsmonitor evil",
        "echo evil >> .git/config",
        "echo evil > .git/hooks/pre-commit",
        "rm -rf .git/hooks",
        "mv .git/hooks .git/other",
        "rm .git/config",
        "mv .git other",
        "mv .git other; mkdir .git; cp -r other/* .git",
        "ln .git/config twin && echo evil >> twin",
        "echo '* filter=evil' > .git/info/attributes",
        "mount --bind /tmp .git/hooks",
        "umount .git/config",
        "mount -o remount,rw .git/config",
    ],
)
def test_nothing_can_be_planted_in_a_repository(repository, sh, attack):
    before = everything(repository)
    config = (repository.root / ".git/config").read_text()
    assert "exit status" in sh(repository, attack)
    assert (repository.root / ".git/config").read_text() == config
    assert everything(repository) == before


def test_where_the_configuration_takes_hooks_from_is_read_only(repository, sh):
    git(repository.root, "config", "core.hooksPath", "scripts/hooks")
    git(repository.root, "config", "include.path", "../extra.cfg")
    (repository.root / "scripts/hooks").mkdir(parents=True)
    assert "exit status" in sh(repository, "echo evil > scripts/hooks/pre-commit")
    with pytest.raises(ToolError, match=r"'extra\.cfg' is protected"):
        sh(repository, "echo evil > extra.cfg")
    assert not (repository.root / "extra.cfg").exists()


def test_a_nested_repository_and_a_gitfile_are_read_only_too(repository, sh):
    git(repository.root, "init", "-q", "sub/deep")
    git(repository.root, "worktree", "add", "-q", "tree")
    before = everything(repository)
    for attack in (
        "git -C sub/deep config core.fsmonitor evil",
        "echo evil > sub/deep/.git/hooks/pre-commit",
        "echo 'gitdir: /tmp' > tree/.git",
        "rm tree/.git",
        "echo /tmp > .git/worktrees/tree/commondir",
        "echo /tmp > .git/worktrees/tree/gitdir",
    ):
        assert "exit status" in sh(repository, attack), attack
    assert everything(repository) == before


SET_ASIDE = [
    ("echo evil > .envrc", ".envrc"),
    ("mkdir .vscode; echo '{}' > .vscode/tasks.json", ".vscode"),
    ("echo evil > glidepath.toml", "glidepath.toml"),
    ("mkdir -p a/b; echo evil > a/b/.BashRC", "a/b/.BashRC"),
    ("mkdir -p new/.git/hooks; echo evil > new/.git/hooks/pre-commit", "new/.git"),
    ("git init -q new; git -C new config core.fsmonitor evil", "new/.git"),
    ("git init -q new; echo evil > new/.git/hooks/pre-commit", "new/.git"),
    ("git init -q new; git -C new config remote.origin.url 'ext::sh -c evil'", "new/.git"),
    ("git init -q new; git -C new config include.path /tmp/x", "new/.git"),
    ("git init -q new; printf '[core]\\n\\tfile\\\\\\nmode = x\\n' >> new/.git/config", "new/.git"),
    ("ln -s /tmp new.git; ln -s new.git .git", ".git"),
    ("echo 'gitdir: /tmp/x' > .git", ".git"),
    ("ln -s a.txt AGENTS.md", "AGENTS.md"),
    ("mkdir -p .config/fish; echo evil > .config/fish/config.fish", ".config/fish"),
]


@pytest.mark.parametrize(("attack", "planted"), SET_ASIDE)
def test_what_is_planted_is_set_aside_and_told(place, sh, attack, planted):
    with pytest.raises(ToolError, match=r"is protected .* was renamed to .*allow_protected"):
        sh(place, attack)
    assert not os.path.lexists(place.root / planted)
    assert os.path.lexists(place.root / f"{planted}.set-aside")


def test_a_bare_repository_that_names_a_command_is_no_repository_afterwards(place, sh):
    with pytest.raises(ToolError, match="its HEAD was renamed"):
        sh(place, "git init -q --bare x; git -C x config core.fsmonitor evil")
    with pytest.raises(ToolError, match="its HEAD was renamed"):
        sh(place, "mv x/HEAD.set-aside x/HEAD")  # in two steps
    assert subprocess.run(["git", "rev-parse"], cwd=place.root / "x", capture_output=True, check=False).returncode


def test_a_git_folder_without_hooks_gets_none(repository, sh):
    for name in ("hooks", "info"):
        subprocess.run(["rm", "-r", repository.root / ".git" / name], check=True)
    with pytest.raises(ToolError, match=r"'\.git/hooks' is protected"):
        sh(repository, "mkdir .git/hooks; echo evil > .git/hooks/post-checkout")
    with pytest.raises(ToolError, match=r"'\.git/commondir' is protected"):
        sh(repository, "echo ../evil > .git/commondir")
    assert not (repository.root / ".git/hooks").exists()
    git(repository.root, "status")


def test_a_repository_that_was_moved_away_and_made_anew_is_noticed(place, sh):
    git(place.root, "init", "-q", "sub")
    with pytest.raises(ToolError, match=r"'sub/\.git' is protected"):
        sh(
            place,
            "mv sub old; mkdir -p sub/.git; cp -r old/.git/* sub/.git; echo '[core]\nfsmonitor = x' >> sub/.git/config",
        )
    assert not (place.root / "sub/.git").exists()
    assert (place.root / "old/.git/HEAD").exists()


def test_moving_a_folder_with_a_repository_is_honest_work(place, sh):
    git(place.root, "init", "-q", "sub")
    assert sh(place, "mv sub moved; ls -A moved") == ".git"
    assert sh(place, "git -C moved status -s") == "(no output)"


def test_making_and_cloning_repositories_is_honest_work(place, sh):
    make = f"git init -q new; git -C new {ME} commit -q --allow-empty -m x; git clone -q new copy; git init -q --bare b"
    assert sh(place, make) == "(no output)"
    assert git(place.root / "copy", "log", "--format=%s") == "x\n"
    assert "exit status" in sh(place, "git -C new config core.fsmonitor evil"), "and protected from then on"


def test_protected_files_that_exist_are_read_only(place, sh):
    names = [".envrc", "AGENTS.md", "glidepath.toml", "sub/.npmrc", ".vscode/tasks.json"]
    for name in names:
        (place.root / name).parent.mkdir(exist_ok=True)
        (place.root / name).write_text("mine")
    (place.root / "rc").write_text("mine")
    (place.root / ".bashrc").symlink_to("rc")
    before = everything(place)
    for name in [*names, ".bashrc", "rc"]:
        assert "exit status" in sh(place, f"echo evil > {name}"), name
    for name in names:
        assert "exit status" in sh(place, f"rm -f {name} || rm -rf .vscode"), name
    assert everything(place) == before
    assert (place.root / "rc").read_text() == "mine"


def test_a_link_that_is_swapped_is_set_aside(place, sh):
    (place.root / "rc").write_text("mine")
    (place.root / ".bashrc").symlink_to("rc")
    with pytest.raises(ToolError, match=r"'\.bashrc' is protected"):
        sh(place, "rm .bashrc; echo evil > .bashrc")
    assert not (place.root / ".bashrc").exists()


def test_what_is_allowed_by_name_can_be_written(tmp_path, sh):
    (tmp_path / ".vscode").mkdir()
    (tmp_path / ".vscode/tasks.json").write_text("old")
    (tmp_path / ".vscode/settings.json").write_text("old")
    place = Workspace(tmp_path, allow_protected=[".vscode/tasks.json", ".envrc", "new/.git"])
    assert sh(place, "echo new > .vscode/tasks.json; echo new > .envrc") == "(no output)"
    assert (tmp_path / ".vscode/tasks.json").read_text() == "new\n"
    assert "exit status" in sh(place, "echo new > .vscode/settings.json")
    assert sh(place, "git init -q new; git -C new config core.fsmonitor wanted") == "(no output)"


def test_what_a_person_changes_meanwhile_is_left_alone(repository, sandbox):
    async def both():
        running = asyncio.ensure_future(
            run_command(repository, sandbox, "touch begun; while [ ! -e over ]; do :; done", 30)
        )
        while not (repository.root / "begun").exists():  # noqa: ASYNC110 - a real process in real time
            await asyncio.sleep(0.02)
        git(repository.root, "config", "user.name", "Somebody")
        (repository.root / "over").touch()
        return await running

    with pytest.raises(ToolError, match="changed from outside the sandbox"):
        asyncio.run(both())
    assert git(repository.root, "config", "user.name") == "Somebody\n"


def test_a_command_that_is_cancelled_plants_nothing(place, sandbox):
    async def fly():
        tools = workspace_tools(place, ["shell"], sandbox=sandbox, shell_approval=False)
        model = ScriptedModel([call("shell", command="echo evil > .envrc; touch begun; sleep 1000")])
        token = CancelToken()
        agent = Agent(model=model, tools=tools, limits=Limits(max_iterations=3))
        task = asyncio.create_task(agent.run("go", cancel=token))
        while not (place.root / "begun").exists():  # noqa: ASYNC110 - a real process in real time
            await asyncio.sleep(0.02)
        token.cancel()
        await task

    asyncio.run(fly())
    assert everything(place) == [".envrc.set-aside", "begun"]


def test_a_very_large_workspace_is_checked_as_far_as_possible_and_that_is_told(place, sh, monkeypatch):
    for number in range(20):
        (place.root / f"d{number}" / ".vscode").mkdir(parents=True)
    monkeypatch.setattr(survey_module, "MOST_ENTRIES", 25)
    text = sh(place, "rm -r d1 d2 d3; echo done")
    assert text.startswith("done\n[only ")
    assert (place.root / "d19/.vscode").is_dir()
    with pytest.raises(ToolError, match=r"'\.envrc' is protected"):
        sh(place, "echo evil > .envrc")


def test_nothing_is_left_in_the_workspace(repository, sh):
    before = everything(repository)
    sh(repository, "true")
    assert everything(repository) == before


# --- whether there is one ---------------------------------------------------------------------------------------------


def test_no_filter_means_no_sandbox(monkeypatch, place):
    monkeypatch.setattr(sandbox_module.shutil, "which", lambda *_, **__: "/usr/bin/bwrap")
    monkeypatch.setattr(sandbox_module.platform, "machine", lambda: "sparc64")
    assert try_sandbox() == (None, "there is no filter for system calls on sparc64, only on x86_64, aarch64")
    with pytest.raises(ConfigurationError, match="no filter for system calls on sparc64"):
        workspace_tools(place, ["shell"], sandbox="require")
    with pytest.raises(ToolError, match="no sandbox can be used here"):
        asyncio.run(run_command(place, Bubblewrap("/usr/bin/bwrap"), "true", 5))


PROBE = "from glidepath.workspace.sandbox import try_sandbox; print(try_sandbox())"


def interpreter_for_everybody():
    """A Python that users other than root may run, with what it needs to import."""
    import msgspec

    folders = [Path(sandbox_module.__file__).parents[2], Path(msgspec.__file__).parents[1]]
    for program in (sys.executable, "/usr/bin/python3"):
        words = [
            "setpriv",
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            program,
            "-c",
            "import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', 'import msgspec, glidepath']))",
        ]
        environment = {
            "PYTHONPATH": ":".join(map(str, folders)),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PATH": os.environ["PATH"],
        }
        if subprocess.run(words, env=environment, capture_output=True, check=False).returncode == 0:
            return words[:-2], environment
    pytest.skip("needs a Python 3.11 or newer that the user nobody may run")
    return None


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become somebody else")
def test_it_works_for_somebody_who_is_not_root(sandbox, tmp_path):
    words, environment = interpreter_for_everybody()
    code = (
        "import asyncio, tempfile\n"
        "from glidepath.workspace import *\n"
        "from glidepath.workspace.sandbox import find_sandbox\n"
        "from glidepath.workspace.shell import run_command\n"
        "place = Workspace(tempfile.mkdtemp())\n"
        "command = 'id -u; git init -q; echo $HOME; ls -A; unshare -U true'\n"
        "print(asyncio.run(run_command(place, find_sandbox(), command, 20)))\n"
        "import shutil; shutil.rmtree(place.root)"
    )
    done = subprocess.run([*words, "-c", code], env=environment, capture_output=True, text=True, check=False, cwd="/")
    assert done.stdout.split("\n")[:3] == ["65534", "/tmp/.glidepath-home", ".git"], done.stderr
    assert "Operation not permitted" in done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become somebody else")
def test_without_user_namespaces_the_reason_is_told(sandbox):
    words, environment = interpreter_for_everybody()
    barred = [
        "unshare",
        "-Ur",
        "sh",
        "-c",
        'echo 0 > /proc/sys/user/max_user_namespaces; exec setpriv --bounding-set=-all "$@"',
        "sh",
    ]
    done = subprocess.run(
        [*words[:4], *barred, *words[4:], "-c", PROBE],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
    )
    assert "bubblewrap is installed, but does not work here (bwrap: " in done.stdout, done.stderr


def test_the_person_who_is_asked_is_told_whether_there_is_a_sandbox(place, sandbox):
    for choice, told in (("off", "no sandbox: the command runs as you"), (sandbox, "sandboxed: no network")):
        tools = workspace_tools(place, ["shell"], sandbox=choice)
        agent = Agent(
            model=ScriptedModel([call("shell", command="true"), say("?")]), tools=tools, limits=Limits(max_iterations=3)
        )
        assert agent.run_sync("go").pending[0].reason.startswith(told)
