"""The contract of a sandbox, first part: what is visible and what can be changed inside. Every clause is an attempt.

An attempt is a small Python program that runs inside and tries to do something forbidden. The sandbox holds if the
attempt fails and nothing outside has changed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from glidepath._wire import Record
from glidepath.testing.conformance.contract import Contract, missing
from glidepath.tools.sandbox import Sandbox

if TYPE_CHECKING:
    from typing import IO

SECRET = "glidepath-secret-7f3a"  # noqa: S105 - to be found in what is printed
SECONDS = 60


class Scene(Record):
    """The folders around one attempt."""

    inside: Path
    """It may write here."""
    given: Path
    """It may read here; `note` is a file in it, and `way_out` a link that leads outside."""
    outside: Path
    """It may do nothing here; `secret` is a file in it."""


@contextmanager
def scene_around() -> Iterator[Scene]:
    """Folders for one attempt, removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="glidepath-attempt-") as folder:
        top = Path(os.path.realpath(folder))
        scene = Scene(top / "inside", top / "given", top / "outside")
        for place in (scene.inside, scene.given, scene.outside):
            place.mkdir()
        (scene.given / "note").write_text("a note")
        (scene.outside / "secret").write_text(SECRET)
        (scene.given / "way_out").symlink_to(scene.outside / "secret")
        yield scene


class SandboxFiles(Contract):
    """Files, links, devices and the environment."""

    lacks: frozenset[str] = frozenset()
    """The clauses that this mechanism cannot keep: they are skipped with a message."""

    def make_sandbox(self, **policy: object) -> Sandbox:
        """A sandbox with this policy, by the mechanism under test; skip if that is missing."""
        raise NotImplementedError(missing(self, "make_sandbox"))

    # --- making an attempt ------------------------------------------------------------------------------------

    def run_inside(
        self,
        code: str,
        scene: Scene | None = None,
        *,
        words: Sequence[str] = (),
        stdin: int | IO[Any] = subprocess.DEVNULL,
        **policy: object,
    ) -> subprocess.CompletedProcess[str]:
        """Run this code inside; returns what it printed and how it ended."""
        if scene is None:
            with scene_around() as own:
                return self.run_inside(code, own, words=words, stdin=stdin, **policy)
        policy = {"read": [scene.given], "write": [scene.inside], **policy}
        python = [os.path.realpath(sys.executable), "-I", "-S", "-c", textwrap.dedent(code), *words]
        with self.make_sandbox(**policy).enter(python, cwd=scene.inside) as boxed:
            return subprocess.run(  # noqa: S603 - our own attempt
                boxed.words,
                env=boxed.env,
                cwd=boxed.cwd,
                pass_fds=boxed.pass_fds,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=SECONDS,
                check=False,
            )

    def assert_contained_program(
        self,
        number: str,
        code: str,
        *words: object,
        scene: Scene | None = None,
        stdin: int | IO[Any] = subprocess.DEVNULL,
        **policy: object,
    ) -> str:
        """Make an attempt that must fail inside; returns what it printed.

        In `words`, `{inside}`, `{given}` and `{outside}` are the folders of the scene.
        """
        if number in self.lacks:
            pytest.skip(f"{number}: this mechanism cannot keep it")
        if scene is None:
            with scene_around() as own:
                return self.assert_contained_program(number, code, *words, scene=own, stdin=stdin, **policy)
        body = textwrap.indent(textwrap.dedent(code).strip(), "    ")
        whole = f"import ctypes, os, socket, sys\nlibc = ctypes.CDLL(None, use_errno=True)\n{CALL}try:\n{body}\n"
        whole += "except BaseException as error:\n    print('HELD', type(error).__name__, error)\n"
        whole += "else:\n    print('ESCAPED')\n"
        named = [str(word) for word in words]
        for folder in (scene.inside, scene.given, scene.outside):
            named = [word.replace(f"{{{folder.name}}}", str(folder)) for word in named]
        done = self.run_inside(whole, scene, words=named, stdin=stdin, **policy)
        assert "ESCAPED" not in done.stdout, f"{number}: {done.stdout[-2000:]}"
        assert SECRET not in done.stdout, f"{number}: the secret was read: {done.stdout[-2000:]}"
        assert "HELD" in done.stdout, (
            f"{number}: the attempt could not be made ({done.returncode}): {done.stdout[-2000:]}"
        )
        assert (scene.outside / "secret").read_text() == SECRET, f"{number}: something outside was changed"
        assert (scene.given / "note").read_text() == "a note", f"{number}: what may only be read was changed"
        assert sorted(os.listdir(scene.outside)) == ["secret"], f"{number}: something outside was made or moved"  # noqa: PTH208
        return done.stdout

    # --- ordinary work ----------------------------------------------------------------------------------------

    def test_sbx_1_it_can_work(self) -> None:
        """SBX-1: inside, the program reads what it may read, writes what it may write, and its output comes back."""
        with scene_around() as scene:
            code = "import sys; open('made', 'w').write(open(sys.argv[1]).read().upper()); print('done')"
            done = self.run_inside(code, scene, words=[str(scene.given / "note")])
            assert done.stdout == "done\n", done.stdout
            assert (scene.inside / "made").read_text() == "A NOTE"

    def test_sbx_2_status_and_programs(self) -> None:
        """SBX-2: programs of the system can be started, and the exit status is the program's own."""
        done = self.run_inside("import os, sys; sys.exit(os.waitstatus_to_exitcode(os.system('exit 5')))")
        assert done.returncode == 5, (done.returncode, done.stdout)

    def test_sbx_3_temporary_files(self) -> None:
        """SBX-3: there is a folder for temporary files, which nobody else sees."""
        code = "import os, tempfile; f = tempfile.NamedTemporaryFile(delete=False); f.write(b'x'); print(f.name)"
        with scene_around() as scene:
            name = self.run_inside(code, scene).stdout.strip()
            assert name.startswith("/"), name
            assert not os.path.exists(name)  # noqa: PTH110 - while the folders of the scene are still there

    # --- reading ----------------------------------------------------------------------------------------------

    def test_sbx_4_reads_nothing_outside(self) -> None:
        """SBX-4: a file outside cannot be read."""
        self.assert_contained_program("SBX-4", "print(open(sys.argv[1]).read())", "{outside}/secret")

    def test_sbx_5_lists_nothing_outside(self) -> None:
        """SBX-5: a folder outside cannot be listed."""
        self.assert_contained_program("SBX-5", "print(os.listdir(sys.argv[1]))", "{outside}")

    def test_sbx_6_dots(self) -> None:
        """SBX-6: `..` does not lead out."""
        self.assert_contained_program("SBX-6", "print(open('../outside/secret').read())")

    def test_sbx_7_a_link_made_inside(self) -> None:
        """SBX-7: a symbolic link made inside does not lead out."""
        self.assert_contained_program(
            "SBX-7", "os.symlink(sys.argv[1], 'link'); print(open('link').read())", "{outside}/secret"
        )

    def test_sbx_8_a_link_that_is_there(self) -> None:
        """SBX-8: a symbolic link in a folder that may be read does not lead out."""
        self.assert_contained_program("SBX-8", "print(open(sys.argv[1]).read())", "{given}/way_out")

    def test_sbx_9_the_root_of_processes(self) -> None:
        """SBX-9: /proc/PID/root and /proc/PID/cwd do not lead out, no matter whose they are."""
        code = """
            for pid in ("self", "1", str(os.getppid())):
                for way in ("root", "cwd"):
                    try:
                        print(open(f"/proc/{pid}/{way}" + sys.argv[1]).read())
                    except OSError:
                        pass
            raise OSError("none of them")
        """
        self.assert_contained_program("SBX-9", code, "{outside}/secret")

    def test_sbx_10_passwords(self) -> None:
        """SBX-10: the system's passwords cannot be read."""
        self.assert_contained_program("SBX-10", "print(len(open('/etc/shadow').read()))")

    def test_sbx_11_the_home_folder(self) -> None:
        """SBX-11: nothing in the person's home is shown except what was named and the interpreter."""
        import pwd  # which Windows does not have

        home = os.path.realpath(pwd.getpwuid(os.getuid()).pw_dir)
        own = os.path.realpath(sys.base_prefix)
        names = [f"{home}/{name}" for name in os.listdir(home) if not own.startswith(f"{home}/{name}")]  # noqa: PTH208
        read = "lambda place: os.listdir(place) if os.path.isdir(place) else open(place, 'rb').read(1)"
        self.assert_contained_program("SBX-11", f"print(once({read}, sys.argv[1:]))", *names)

    def test_sbx_12_hard_links(self) -> None:
        """SBX-12: a file outside cannot be linked to inside."""
        self.assert_contained_program(
            "SBX-12", "os.link(sys.argv[1], 'link'); print(open('link').read())", "{outside}/secret"
        )

    def test_sbx_13_file_handles(self) -> None:
        """SBX-13: files cannot be opened by handle, bypassing all folders."""
        self.assert_contained_program("SBX-13", "call('open_by_handle_at', -100, bytes(128), 0)")

    # --- writing ----------------------------------------------------------------------------------------------

    def test_sbx_14_writes_nothing_outside(self) -> None:
        """SBX-14: nothing can be created outside."""
        self.assert_contained_program("SBX-14", "open(sys.argv[1] + '/new', 'w').write('x')", "{outside}")

    def test_sbx_15_changes_nothing_outside(self) -> None:
        """SBX-15: a file outside cannot be changed, removed or replaced."""
        for code in ("open(sys.argv[1], 'r+').write('x')", "os.unlink(sys.argv[1])", "os.truncate(sys.argv[1], 0)"):
            self.assert_contained_program("SBX-15", code, "{outside}/secret")

    def test_sbx_16_what_may_be_read(self) -> None:
        """SBX-16: read-only files cannot be written, truncated or removed."""
        for code in ("open(sys.argv[1], 'a').write('x')", "os.truncate(sys.argv[1], 0)", "os.unlink(sys.argv[1])"):
            self.assert_contained_program("SBX-16", code, "{given}/note")

    def test_sbx_17_moving(self) -> None:
        """SBX-17: files cannot be moved in from a folder that may be read, nor out of the sandbox."""
        self.assert_contained_program("SBX-17", "os.rename(sys.argv[1], 'mine')", "{given}/note")
        self.assert_contained_program(
            "SBX-17", "open('mine', 'w').write('x'); os.rename('mine', sys.argv[1])", "{outside}/mine"
        )

    def test_sbx_18_moving_folders(self) -> None:
        """SBX-18: the folder that may be written cannot be moved away, so that something else takes its place."""
        with scene_around() as scene:
            self.assert_contained_program(
                "SBX-18", "os.rename(sys.argv[1], sys.argv[1] + '2')", scene.inside, scene=scene
            )
            assert scene.inside.is_dir()

    def test_sbx_19_rights_of_files(self) -> None:
        """SBX-19: the permissions and owners of read-only files cannot be changed."""
        with scene_around() as scene:
            before = (scene.given / "note").stat().st_mode
            self.assert_contained_program("SBX-19", "os.chmod(sys.argv[1], 0o777)", scene.given / "note", scene=scene)
            assert (scene.given / "note").stat().st_mode == before

    def test_sbx_20_the_system(self) -> None:
        """SBX-20: nothing in the system can be changed."""
        for place in ("/usr", "/etc", "/usr/local/bin", "/var", "/opt", "/"):
            self.assert_contained_program("SBX-20", "open(sys.argv[1] + '/glidepath-was-here', 'w')", place)
            assert not os.path.exists(f"{place}/glidepath-was-here")  # noqa: PTH110

    def test_sbx_21_swapping_a_link(self) -> None:
        """SBX-21: a folder that becomes a link while it is written through does not lead out."""
        code = """
            import threading
            os.mkdir("place")
            def swap():
                for _ in range(3000):
                    try:
                        os.rename("place", "other"); os.symlink(sys.argv[1], "place")
                        os.unlink("place"); os.rename("other", "place")
                    except OSError:
                        pass
            swapping = threading.Thread(target=swap); swapping.start()
            while swapping.is_alive():
                try:
                    open("place/mark", "w").close()
                except OSError:
                    pass
            raise OSError("tried")
        """
        self.assert_contained_program("SBX-21", code, "{outside}")

    # --- devices and the kernel's files -----------------------------------------------------------------------

    def test_sbx_22_devices(self) -> None:
        """SBX-22: memory, disks and virtual machines cannot be opened as devices."""
        names = "'mem kmem port kvm sda vda nvme0n1 fuse loop-control mapper/control kmsg'.split()"
        self.assert_contained_program("SBX-22", f"once(lambda name: os.open('/dev/' + name, os.O_RDWR), {names})")

    def test_sbx_23_device_nodes(self) -> None:
        """SBX-23: device nodes cannot be created."""
        code = "import stat; os.mknod('disk', 0o600 | stat.S_IFBLK, os.makedev(8, 0)); os.open('disk', os.O_RDONLY)"
        self.assert_contained_program("SBX-23", code)

    def test_sbx_24_kernel_settings(self) -> None:
        """SBX-24: kernel settings cannot be written, least of all its crash handler."""
        for path in ("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sysrq-trigger"):
            self.assert_contained_program("SBX-24", "open(sys.argv[1], 'w').write('|/bin/true')", path)

    def test_sbx_25_sysfs(self) -> None:
        """SBX-25: /sys and control groups cannot be written."""
        self.assert_contained_program("SBX-25", "once(os.mkdir, ['/sys/fs/cgroup/glidepath', '/sys/kernel/glidepath'])")
        self.assert_contained_program("SBX-25", "open('/sys/kernel/uevent_helper', 'w').write('/bin/true')")

    # --- environment and descriptors --------------------------------------------------------------------------

    def test_sbx_26_the_environment(self) -> None:
        """SBX-26: the caller's variables, keys above all, are missing inside, except those that were named."""
        os.environ["GLIDEPATH_TEST_KEY"] = SECRET
        try:
            self.assert_contained_program("SBX-26", "print(os.environ['GLIDEPATH_TEST_KEY'])")
            done = self.run_inside(
                "import os; print(len(os.environ['GLIDEPATH_TEST_KEY']))", env=["GLIDEPATH_TEST_KEY"]
            )
            assert done.stdout == f"{len(SECRET)}\n", done.stdout
        finally:
            del os.environ["GLIDEPATH_TEST_KEY"]

    def test_sbx_27_the_environment_of_others(self) -> None:
        """SBX-27: nor can variables be read from other processes."""
        code = """
            for pid in [name for name in os.listdir("/proc") if name.isdigit()]:
                try:
                    print(open(f"/proc/{pid}/environ").read())
                except OSError:
                    pass
            raise OSError("read all there are")
        """
        words = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(300)"]
        other = subprocess.Popen(words, env={"GLIDEPATH_TEST_KEY": SECRET})  # noqa: S603 - our own
        try:
            self.assert_contained_program("SBX-27", code)
        finally:
            other.kill()
            other.wait()

    def test_sbx_28_descriptors(self) -> None:
        """SBX-28: descriptors that the caller left open are closed inside."""
        with scene_around() as scene, (scene.outside / "secret").open() as file:
            os.set_inheritable(file.fileno(), True)
            code = "print(once(lambda number: os.lseek(number, 0, 0) or os.read(number, 100), range(3, 200)))"
            self.assert_contained_program("SBX-28", code, scene=scene)


CALL = '''
NUMBERS = {
    "x86_64": {"ptrace": 101, "mount": 165, "chroot": 161, "reboot": 169, "keyctl": 250, "perf_event_open": 298,
        "open_by_handle_at": 304, "setns": 308, "process_vm_readv": 310, "bpf": 321, "userfaultfd": 323,
        "init_module": 175, "unshare": 272, "clock_settime": 227, "io_uring_setup": 425, "pivot_root": 155,
        "pidfd_open": 434, "pidfd_send_signal": 424, "sethostname": 170, "fsopen": 430, "capset": 126},
    "aarch64": {"ptrace": 117, "mount": 40, "chroot": 51, "reboot": 142, "keyctl": 219, "perf_event_open": 241,
        "open_by_handle_at": 265, "setns": 268, "process_vm_readv": 270, "bpf": 280, "userfaultfd": 282,
        "init_module": 105, "unshare": 97, "clock_settime": 112, "io_uring_setup": 425, "pivot_root": 41,
        "pidfd_open": 434, "pidfd_send_signal": 424, "sethostname": 161, "fsopen": 430, "capset": 91},
}
def call(name, *args):
    """A system call by name; raises OSError when it fails."""
    answer = libc.syscall(NUMBERS[os.uname().machine][name], *args)
    if answer < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return answer
def once(act, things):
    """Do this with one after the other, until it succeeds; raises OSError when it never does."""
    for thing in things:
        try:
            return act(thing)
        except OSError:
            pass
    raise OSError("with none of them")
'''
