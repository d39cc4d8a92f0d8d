"""The contract of a sandbox, second part: processes, the kernel, the terminal, the network, and what may be used."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from glidepath.testing.conformance.sandboxes import SandboxFiles, scene_around

_MARK = "glidepath-left-behind"


@contextmanager
def _start_victim() -> Iterator[int]:
    """A process outside, which must still be alive at the end."""
    words = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(300)"]
    process = subprocess.Popen(words, start_new_session=True)  # noqa: S603 - our own
    try:
        yield process.pid
        assert process.poll() is None, "a process outside was ended"
    finally:
        process.kill()
        process.wait()


@contextmanager
def _start_listener(family: int, kind: int, address: object) -> Iterator[tuple[socket.socket, list[bytes]]]:
    """A socket outside, and what reached it."""
    heard: list[bytes] = []
    listening = socket.socket(family, kind)
    listening.bind(address)  # type: ignore[arg-type]
    listening.settimeout(0.1)
    stop = threading.Event()
    if kind == socket.SOCK_STREAM:
        listening.listen(8)

    def hear() -> None:
        while not stop.is_set():
            with suppress(OSError):
                if kind == socket.SOCK_STREAM:
                    connection, _ = listening.accept()
                    with connection:
                        connection.settimeout(2)
                        heard.append(connection.recv(1000))
                        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
                else:
                    heard.append(listening.recv(1000))

    thread = threading.Thread(target=hear, daemon=True)
    thread.start()
    try:
        yield listening, heard
    finally:
        stop.set()
        thread.join()
        listening.close()


class SandboxContract(SandboxFiles):
    """Subclass this and provide `make_sandbox`: more than fifty attempts to get out of it, each of which must fail.

    `lacks` names clauses that a mechanism cannot keep.
    """

    # --- processes outside ------------------------------------------------------------------------------------

    def test_sbx_29_killing(self) -> None:
        """SBX-29: processes outside get no signals from inside."""
        with _start_victim() as pid:
            self.assert_contained_program("SBX-29", "os.kill(int(sys.argv[1]), 9)", pid)

    def test_sbx_30_killing_groups(self) -> None:
        """SBX-30: nor do groups of processes outside."""
        with _start_victim() as pid:
            self.assert_contained_program("SBX-30", "os.killpg(int(sys.argv[1]), 9)", pid)

    def test_sbx_31_seeing_processes(self) -> None:
        """SBX-31: processes outside are invisible."""
        with _start_victim() as pid:
            self.assert_contained_program("SBX-31", "print(open(f'/proc/{sys.argv[1]}/cmdline').read())", pid)

    def test_sbx_32_tracing(self) -> None:
        """SBX-32: processes outside cannot be traced."""
        with _start_victim() as pid:
            self.assert_contained_program("SBX-32", "call('ptrace', 16, int(sys.argv[1]), 0, 0)", pid)

    def test_sbx_33_tracing_inside(self) -> None:
        """SBX-33: nor can anything else be traced: a tracer gets around filters."""
        self.assert_contained_program("SBX-33", "call('ptrace', 0, 0, 0, 0)")

    def test_sbx_34_memory_of_others(self) -> None:
        """SBX-34: the memory of other processes cannot be read."""
        with _start_victim() as pid:
            self.assert_contained_program(
                "SBX-34", "call('process_vm_readv', int(sys.argv[1]), None, 0, None, 0, 0)", pid
            )
            self.assert_contained_program("SBX-34", "open(f'/proc/{sys.argv[1]}/mem', 'rb').read(1)", pid)

    def test_sbx_35_handles_of_processes(self) -> None:
        """SBX-35: a handle of a process outside cannot be used to signal it."""
        code = "call('pidfd_send_signal', call('pidfd_open', int(sys.argv[1]), 0), 9, None, 0)"
        with _start_victim() as pid:
            self.assert_contained_program("SBX-35", code, pid)

    # --- privileges -------------------------------------------------------------------------------------------

    def test_sbx_36_no_new_rights(self) -> None:
        """SBX-36: programs that grant rights (setuid) grant none here."""
        done = self.run_inside("import ctypes; print(ctypes.CDLL(None).prctl(39, 0, 0, 0, 0))")
        assert done.stdout == "1\n", done.stdout

    def test_sbx_37_no_capabilities(self) -> None:
        """SBX-37: no matter who runs it, the program has no capability, and cannot become another user."""
        self.assert_contained_program("SBX-37", "os.setuid(12345); os.setuid(0)")
        self.assert_contained_program("SBX-37", "os.setgroups([0, 1, 2])")
        self.assert_contained_program("SBX-37", "os.chown('.', 12345, 12345)")

    def test_sbx_38_mounting(self) -> None:
        """SBX-38: nothing can be mounted, the old way or the new."""
        self.assert_contained_program("SBX-38", "call('mount', b'none', os.getcwd().encode(), b'tmpfs', 0, None)")
        self.assert_contained_program("SBX-38", "call('fsopen', b'tmpfs', 0)")

    def test_sbx_39_changing_the_root(self) -> None:
        """SBX-39: the root cannot be changed."""
        self.assert_contained_program("SBX-39", "os.chroot('.')")
        self.assert_contained_program("SBX-39", "call('pivot_root', b'.', b'.')")

    def test_sbx_40_namespaces(self) -> None:
        """SBX-40: no namespaces can be created, in which the program would be root."""
        for flag in (0x10000000, 0x00020000, 0x40000000, 0x20000000):
            self.assert_contained_program("SBX-40", "call('unshare', int(sys.argv[1]))", flag)

    def test_sbx_41_joining_namespaces(self) -> None:
        """SBX-41: namespaces of others cannot be joined."""
        code = "call('setns', os.open('/proc/1/ns/mnt', os.O_RDONLY), 0)"
        self.assert_contained_program("SBX-41", code)

    @pytest.mark.parametrize(
        ("name", "args"),
        [
            ("bpf", "0, None, 0"),
            ("perf_event_open", "bytes(128), 0, -1, -1, 0"),
            ("keyctl", "0, -3, 1"),
            ("io_uring_setup", "8, bytes(120)"),
            ("userfaultfd", "0"),
            ("init_module", "b'', 0, b''"),
            ("reboot", "0xfee1dead, 672274793, 0, 0"),
            ("clock_settime", "0, bytes(16)"),
            ("sethostname", "b'x', 1"),
        ],
        ids=lambda value: value if isinstance(value, str) and value.isidentifier() else "",
    )
    def test_sbx_42_the_kernel(self, name: str, args: str) -> None:
        """SBX-42: kernel interfaces that no tool needs are closed: bpf, perf, keys, io_uring, modules, clocks."""
        self.assert_contained_program("SBX-42", f"call({name!r}, {args})")

    # --- the terminal -----------------------------------------------------------------------------------------

    def test_sbx_43_typing_into_the_terminal(self) -> None:
        """SBX-43: nothing can be typed into the terminal of the person who started it."""
        import pty  # which Windows does not have

        above, below = pty.openpty()
        try:
            self.assert_contained_program("SBX-43", "import fcntl; fcntl.ioctl(0, 0x5412, b'x')", stdin=below)
        finally:
            os.close(above)
            os.close(below)

    def test_sbx_44_the_controlling_terminal(self) -> None:
        """SBX-44: there is no controlling terminal to take over."""
        self.assert_contained_program("SBX-44", "os.open('/dev/tty', os.O_RDWR)")

    # --- the network ------------------------------------------------------------------------------------------

    def test_sbx_45_no_connections(self) -> None:
        """SBX-45: without a network nothing outside is reached, this machine included."""
        with _start_listener(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)) as (one, heard):
            code = "socket.create_connection(('127.0.0.1', int(sys.argv[1])), 3).sendall(b'out')"
            self.assert_contained_program("SBX-45", code, one.getsockname()[1])
            assert heard == []

    def test_sbx_46_no_datagrams(self) -> None:
        """SBX-46: no datagram gets out."""
        with _start_listener(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)) as (one, heard):
            code = """
                socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'out', ('127.0.0.1', int(sys.argv[1])))
                raise OSError("whether it arrived is seen outside")
            """
            self.assert_contained_program("SBX-46", code, one.getsockname()[1])
            time.sleep(0.15)
            assert heard == []

    def test_sbx_47_no_names(self) -> None:
        """SBX-47: no name is looked up, which would carry data out as well."""
        self.assert_contained_program("SBX-47", "print(socket.getaddrinfo('secret.example.com', 80))")

    def test_sbx_48_raw_sockets(self) -> None:
        """SBX-48: there are no raw or packet sockets, even with the network open."""
        for network in ("none", "all"):
            self.assert_contained_program(
                "SBX-48", "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)", network=network
            )
            self.assert_contained_program("SBX-48", "socket.socket(17, socket.SOCK_RAW, 3)", network=network)

    def test_sbx_49_sockets_in_files(self) -> None:
        """SBX-49: sockets of services cannot be used, even in a writable folder."""
        for network in ("none", "all"):
            with scene_around() as scene:
                address = str(scene.inside / "service")
                with _start_listener(socket.AF_UNIX, socket.SOCK_STREAM, address) as (_, heard):
                    code = "s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.sendall(b'out')"
                    self.assert_contained_program("SBX-49", code, address, scene=scene, network=network)
                    assert heard == []

    def test_sbx_50_abstract_sockets(self) -> None:
        """SBX-50: nor can sockets without a file."""
        for network in ("none", "all"):
            name = f"\0glidepath-{os.getpid()}-{network}"
            with _start_listener(socket.AF_UNIX, socket.SOCK_STREAM, name) as (_, heard):
                code = "s = socket.socket(socket.AF_UNIX); s.connect(chr(0) + sys.argv[1]); s.sendall(b'out')"
                self.assert_contained_program("SBX-50", code, name[1:], network=network)
                assert heard == []

    def test_sbx_51_other_families(self) -> None:
        """SBX-51: other socket families are closed: virtual machines, Bluetooth, the kernel's ciphers."""
        streams = "once(lambda family: socket.socket(family, socket.SOCK_STREAM), (40, 31, 15, 29, 43, 44))"
        self.assert_contained_program("SBX-51", streams)
        self.assert_contained_program("SBX-51", "socket.socket(38, 5)")

    def test_sbx_52_the_whole_network(self) -> None:
        """SBX-52: with network="all" the program reaches what the machine does."""
        with _start_listener(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)) as (one, heard):
            code = "import socket, sys\ns = socket.create_connection(('127.0.0.1', int(sys.argv[1])), 5)\n"
            code += "s.sendall(b'out')\ns.recv(9)"
            done = self.run_inside(code, words=[str(one.getsockname()[1])], network="all")
            assert heard == [b"out"], done.stdout

    def test_sbx_53_a_list_of_hosts(self) -> None:
        """SBX-53: with a list of hosts the program reaches those through the proxy, and nothing directly."""
        if "SBX-53" in self.lacks:
            pytest.skip("SBX-53: this mechanism cannot keep it")
        code = """
            import os, sys
            from urllib.request import urlopen
            from urllib.error import HTTPError
            print(urlopen(f"http://127.0.0.1:{sys.argv[1]}/", timeout=10).read())
            for url in (f"http://127.0.0.1:{sys.argv[2]}/", "http://example.com/", f"http://localhost:{sys.argv[1]}/"):
                try:
                    print("REACHED", urlopen(url, timeout=10).read())
                except HTTPError as error:
                    print(error.code)
        """
        tcp = (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0))
        with _start_listener(*tcp) as (listed, _), _start_listener(*tcp) as (other, heard):
            ports = [str(one.getsockname()[1]) for one in (listed, other)]
            done = self.run_inside(code, words=ports, network=[f"127.0.0.1:{ports[0]}"])
            assert done.stdout == "b'hello'\n403\n403\n403\n", done.stdout
            direct = "socket.create_connection(('127.0.0.1', int(sys.argv[1])), 3)"
            self.assert_contained_program("SBX-53", direct, ports[1], network=[f"127.0.0.1:{ports[0]}"])
            assert heard == []

    # --- resource limits --------------------------------------------------------------------------------------

    def test_sbx_54_fork_bombs(self) -> None:
        """SBX-54: a program that starts processes endlessly is stopped, and all of them with it."""
        code = f"""
            import os, time
            for number in range(400):
                if not os.fork():
                    os.environ["X"] = "{_MARK}"
                    time.sleep(60); os._exit(0)
                time.sleep(0.002)
            print("ALL OF THEM"); time.sleep(60)
        """
        began = time.monotonic()
        done = self.run_inside(code, processes=25)
        assert "ALL OF THEM" not in done.stdout
        assert done.returncode != 0
        assert time.monotonic() - began < 30

    def test_sbx_55_memory(self) -> None:
        """SBX-55: a program that asks for too much memory does not get it, or is stopped."""
        code = "x = bytearray(b'x') * (600 << 20); print('TA' + 'KEN', len(x))"  # an error may quote the code
        done = self.run_inside(code, memory=200 << 20)
        assert "TAKEN" not in done.stdout
        assert done.returncode != 0

    def test_sbx_56_memory_in_pieces(self) -> None:
        """SBX-56: nor can several processes take it together."""
        code = """
            import os, time
            for number in range(6):
                if not os.fork():
                    x = bytearray(b'x') * (100 << 20); time.sleep(60); os._exit(0)
            time.sleep(20); print("TAKEN")
        """
        done = self.run_inside(code, memory=250 << 20)
        assert "TAKEN" not in done.stdout
        assert done.returncode != 0

    def test_sbx_57_large_files(self) -> None:
        """SBX-57: no file grows beyond its limit."""
        with scene_around() as scene:
            code = "f = open('big', 'wb')\nfor _ in range(64): f.write(bytes(1 << 20)); f.flush()"
            self.assert_contained_program(
                "SBX-57",
                f"import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n{code}",
                scene=scene,
                file_size=8 << 20,
            )
            assert (scene.inside / "big").stat().st_size <= 8 << 20

    def test_sbx_58_open_files(self) -> None:
        """SBX-58: the number of open files is limited."""
        self.assert_contained_program("SBX-58", "kept = [open('/dev/null') for _ in range(500)]", files=64)

    def test_sbx_59_nothing_is_left(self) -> None:
        """SBX-59: what the program left running, in its own session, ends with it."""
        code = f"""
            import os, sys, time
            if not os.fork():
                os.setsid()
                if not os.fork():
                    words = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(120)", "{_MARK}"]
                    os.execv(sys.executable, words)
                os._exit(0)
            time.sleep(0.5)
        """
        self.run_inside(code)
        time.sleep(0.1)
        assert _find_survivors() == []

    def test_sbx_60_core_dumps(self) -> None:
        """SBX-60: a crash leaves no core dump."""
        with scene_around() as scene:
            self.run_inside("import os; os.abort()", scene)
            assert [name for name in os.listdir(scene.inside) if "core" in name] == []  # noqa: PTH208


def _find_survivors() -> list[str]:
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208
        with suppress(OSError), open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            words = file.read().split("\0")
            if _MARK in words:
                found.append(pid)
    return found
