"""A PostgreSQL server for the tests: started from the installed binaries, as a user that is not root."""

import atexit
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path

SETTINGS = ("fsync=off", "full_page_writes=off", "max_connections=200", "listen_addresses=", "shared_buffers=32MB")


def binaries() -> Path:
    """Where `initdb` and `postgres` are; they are installed when they are nowhere."""
    for attempt in range(2):
        found = [*sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb")), *Path("/usr/local/bin").glob("initdb")]
        on_path = shutil.which("initdb")
        if found or on_path:
            return (found or [Path(on_path)])[-1].parent
        if not attempt:
            subprocess.run(["apt-get", "install", "-y", "-qq", "postgresql"], check=True, capture_output=True)
    raise RuntimeError("no PostgreSQL found or installed")


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
    keywords["env"] = {**os.environ, "HOME": str(home), "LC_ALL": "C.UTF-8"}
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
    log = (home / "log").open("wb")
    server = subprocess.Popen(
        [tools / "postgres", "-D", data, "-k", home, *options],
        cwd=home,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        **keywords,
    )
    owner = os.getpid()

    def stop():
        if os.getpid() == owner:
            server.send_signal(signal.SIGINT)  # at once, whoever is connected
            server.wait(20)
            log.close()
            shutil.rmtree(home, ignore_errors=True)

    atexit.register(stop)
    until = time.monotonic() + 60
    while b"ready to accept connections" not in (home / "log").read_bytes():
        if server.poll() is not None or time.monotonic() > until:
            raise RuntimeError((home / "log").read_text())
        time.sleep(0.05)
    return f"postgresql://postgres@/postgres?host={home}"


def fresh_database() -> str:
    """The address of an empty database on that server."""
    import asyncio

    import asyncpg

    name = f"t{os.urandom(6).hex()}"

    async def create():
        connection = await asyncpg.connect(dsn())
        await connection.execute(f"CREATE DATABASE {name} TEMPLATE template0")
        await connection.close()

    asyncio.run(create())
    return dsn().replace("/postgres?", f"/{name}?")
