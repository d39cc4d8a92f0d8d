"""A PostgreSQL server for the tests: started from the installed binaries, as a user that is not root."""

import asyncio
import atexit
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from functools import cache
from pathlib import Path

import asyncpg

LOCALE = "en_US.UTF-8" if sys.platform == "darwin" else "C.UTF-8"
SETTINGS = ("fsync=off", "full_page_writes=off", "max_connections=200", "listen_addresses=", "shared_buffers=32MB")


def binaries() -> Path:
    """Where `initdb` and `postgres` are; they are installed when they are nowhere."""
    for attempt in range(2):
        found = [*sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb")), *Path("/usr/local/bin").glob("initdb")]
        on_path = shutil.which("initdb")
        if found or on_path:
            return (found or [Path(on_path)])[-1].parent
        if not attempt and shutil.which("apt-get"):
            subprocess.run(["apt-get", "install", "-y", "-qq", "postgresql"], check=True, capture_output=True)
    raise RuntimeError("no PostgreSQL: install it, and put the folder of its `initdb` into PATH")


def demote():
    """Who runs the server: `postgres`, or nobody, when the suite itself runs as root."""
    if os.getuid() != 0:
        return None
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    return names.get("postgres") or names["nobody"]


@cache
def dsn() -> str:
    """The address of a server that lives as long as this process."""
    home = Path(tempfile.mkdtemp(prefix="gp-pg-", dir="/tmp"))
    user = demote()
    keywords = {}
    if user is not None:
        os.chown(home, user.pw_uid, user.pw_gid)
        keywords = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    keywords["env"] = {**os.environ, "HOME": str(home), "LC_ALL": LOCALE}
    home.chmod(0o755)
    tools = binaries()
    data = home / "data"
    subprocess.run(
        [tools / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-N", "--no-instructions"],
        check=True,
        capture_output=True,
        cwd=home,
        **keywords,
    )
    options = [part for setting in SETTINGS for part in ("-c", setting)]
    log = home / "log"
    log.touch()
    ours, theirs = os.pipe()  # closed by whatever ends this process: then the server goes, too
    script = f"""exec 3<&0
      ( "$@" 3<&- </dev/null >>{log} 2>&1 & server=$!
      read _ <&3; kill -INT $server; wait $server; rm -rf {home} ) >/dev/null 2>&1 &"""
    command = [tools / "postgres", "-D", data, "-k", home, *options]
    if user is not None:
        os.chown(log, user.pw_uid, user.pw_gid)
    # not a child of this process: other tests count those
    subprocess.run(["sh", "-c", script, "sh", *command], cwd=home, check=True, stdin=ours, **keywords)
    os.close(ours)
    atexit.register(os.close, theirs)
    until = time.monotonic() + 60
    while b"ready to accept connections" not in log.read_bytes():
        if b"FATAL" in log.read_bytes() or time.monotonic() > until:
            raise RuntimeError(log.read_text())
        time.sleep(0.05)
    return f"postgresql://postgres@/postgres?host={home}"


def fresh_schema() -> str:
    """The address of an empty schema on that server."""
    name = f"t{os.urandom(6).hex()}"

    async def create() -> None:
        connection = await asyncpg.connect(dsn())
        await connection.execute(f"CREATE SCHEMA {name}")
        await connection.close()

    thread = threading.Thread(target=lambda: asyncio.run(create()))  # a loop may run in this one
    thread.start()
    thread.join()
    return f"{dsn()}&options=-csearch_path%3D{name}"


class Server:
    """A server of one's own, which can be restarted in the middle of things."""

    def __init__(self) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="gp-pg-", dir="/tmp"))
        user = demote()
        self.keywords = {"env": {**os.environ, "HOME": str(self.home), "LC_ALL": LOCALE}, "cwd": self.home}
        if user is not None:
            os.chown(self.home, user.pw_uid, user.pw_gid)
            self.keywords |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        self.home.chmod(0o755)
        self.tools = binaries()
        make = [self.tools / "initdb", "-D", self.home / "data", "-U", "postgres", "-A", "trust", "-N"]
        subprocess.run(make, check=True, capture_output=True, **self.keywords)
        self._control("start")
        self.dsn = f"postgresql://postgres@/postgres?host={self.home}"

    def _control(self, what: str, *more: str) -> None:
        options = " ".join(f"-c {setting}" for setting in SETTINGS)
        command = [self.tools / "pg_ctl", "-D", self.home / "data", "-l", self.home / "log", "-w", *more]
        command += ["-o", f"-k {self.home} {options}", what]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **self.keywords)

    def restart(self, mode: str) -> None:
        """`fast` ends every session and is done; `immediate` is as good as a crash."""
        self._control("restart", "-m", mode)

    def close(self) -> None:
        """Stop it, and leave nothing behind."""
        self._control("stop", "-m", "immediate")
        shutil.rmtree(self.home, ignore_errors=True)
