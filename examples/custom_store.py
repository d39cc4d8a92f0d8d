"""Your own store: journals as files in a folder, and the contract that says whether it is one.

A store keeps bytes, their order and who may write; what is in them is none of its business. `glidepath.conformance` has
the contract as a pytest class: derive from it, and every clause is a test.

    class TestFolderStore(SessionStoreContract):      # from glidepath.conformance.store_contract
        def make_store(self, *, lease=10.0):
            return FolderStore(tempfile.mkdtemp(), lease=lease)
"""

import asyncio
import fcntl
import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from glidepath import Agent, Limits, tool
from glidepath.errors import ConfigurationError, StoreError
from glidepath.sessions import is_claimable
from glidepath.spi import Commit, Entry, Lease, Sign
from glidepath.testing import ScriptedModel, call, say

LEASE = 10.0  # seconds an owner may be silent before another may take over


class FolderStore:
    """Keeps each session in its own folder: `entry.json`, and one file for each commit.

    Everything is done under a lock of the file system, so that processes on one machine can share a folder. A commit is
    written beside its place and then moved there: it is whole or it is not there. It is plain rather than quick.
    """

    def __init__(self, folder: str | Path, *, lease: float = LEASE) -> None:
        self.folder, self.lease = Path(folder), lease
        self.folder.mkdir(parents=True, exist_ok=True)

    # --- files ----------------------------------------------------------------------------------------------------

    @contextmanager
    def locked(self) -> Iterator[None]:
        try:
            with (self.folder / "lock").open("w") as file:
                fcntl.flock(file, fcntl.LOCK_EX)  # given back when the file is closed, also by a crash
                yield
        except OSError as error:  # a full disk, a name that is too long: a store raises StoreError and nothing else
            raise StoreError(f"{self.folder}: {error}", kind="unavailable") from error

    def home(self, session_id: str) -> Path:
        return self.folder / ("s-" + quote(session_id, safe=""))  # an id may hold anything, a file name may not

    def entry(self, session_id: str) -> dict[str, Any]:
        try:
            return json.loads((self.home(session_id) / "entry.json").read_text())
        except FileNotFoundError:
            raise StoreError(f"there is no session {session_id!r} in {self.folder}", kind="missing") from None

    def place(self, session_id: str, number: int) -> Path:
        return self.home(session_id) / f"{number:08}.commit"

    def put(self, path: Path, data: bytes) -> None:
        fresh = path.with_suffix(".new")
        fresh.write_bytes(data)
        os.replace(fresh, path)  # noqa: PTH105 - atomic, which is the point

    def save(self, session_id: str, entry: dict[str, Any]) -> None:
        self.put(self.home(session_id) / "entry.json", json.dumps(entry).encode())

    def held(self, lease: Lease) -> dict[str, Any]:
        entry = self.entry(lease.session_id)
        if entry["token"] != lease.token:  # somebody else has claimed it since: this owner is too late, forever
            raise StoreError(f"session {lease.session_id!r} was taken over", kind="fenced")
        return entry

    def unheld(self, session_id: str, entry: dict[str, Any]) -> None:
        if not is_claimable(entry["owner"], entry["expires"], time.time()):  # an owner that is dead is not waited for
            raise StoreError(f"session {session_id!r} has a run in flight", kind="busy")

    # --- the contract ---------------------------------------------------------------------------------------------

    async def claim(self, session_id: str, owner: str, *, create: bool = True) -> Lease:
        with self.locked():
            if create and not self.home(session_id).exists():
                self.home(session_id).mkdir()
                self.save(session_id, {"head": 0, "hash": "", "token": 0, "owner": None, "expires": 0.0})
            entry = self.entry(session_id)
            self.unheld(session_id, entry)
            expires = time.time() + self.lease
            entry |= {"token": entry["token"] + 1, "owner": owner, "expires": expires}
            self.save(session_id, entry)
        return Lease(session_id, entry["token"], owner, expires, entry["head"], bytes.fromhex(entry["hash"]))

    def append(
        self,
        lease: Lease,
        commit: Commit,
        *,
        summary: Mapping[str, Any] | None = None,
        durability: str = "sync",
    ) -> None:
        if durability not in ("sync", "full"):  # every commit is written before this returns, whichever it is
            raise ConfigurationError(f"durability={durability!r}: use 'sync' or 'full'")
        with self.locked():
            entry = self.held(lease)
            if commit.number != entry["head"] + 1:
                raise StoreError(f"commit {commit.number} does not follow head {entry['head']}", kind="conflict")
            # First the commit, then the head. What a crash leaves between the two is past the head, and not read.
            self.put(self.place(lease.session_id, commit.number), commit.hash.hex().encode() + b"\n" + commit.body)
            now = time.time()
            entry |= {"head": commit.number, "hash": commit.hash.hex(), "updated": now, "expires": now + self.lease}
            if summary is not None:
                entry["summary"] = dict(summary)
            self.save(lease.session_id, entry)

    async def beat(self, leases: Sequence[Lease], *, renew: bool) -> Sequence[Sign]:
        signs = []
        with self.locked():
            for lease in leases:
                try:
                    entry = self.held(lease)
                except StoreError:
                    signs.append(Sign(session_id=lease.session_id, lost=True))
                    continue
                if renew:
                    self.save(lease.session_id, entry | {"expires": time.time() + self.lease})
                if entry.get("flag") is not None:
                    signs.append(Sign(session_id=lease.session_id, stop=entry["flag"]))
        return signs

    async def release(self, lease: Lease) -> None:
        with self.locked():
            try:
                self.save(lease.session_id, self.held(lease) | {"owner": None, "expires": 0.0})
            except StoreError:
                return  # lost before: there is nothing to give back

    async def load(self, session_id: str) -> tuple[Entry, Sequence[Commit]]:
        with self.locked():
            entry = self.entry(session_id)
            commits = []
            for number in range(1, entry["head"] + 1):
                digest, _, body = self.place(session_id, number).read_bytes().partition(b"\n")
                commits.append(Commit(number, body, bytes.fromhex(digest.decode())))
            return shown(session_id, entry), commits

    async def entries(self, prefix: str = "") -> Sequence[Entry]:
        with self.locked():
            names = [unquote(folder.name[2:]) for folder in self.folder.glob("s-*")]
            found = [shown(name, self.entry(name)) for name in names if name.startswith(prefix)]
        return sorted(found, key=lambda entry: -entry.updated)

    async def flag(self, session_id: str, reason: str | None) -> None:
        with self.locked():
            self.save(session_id, self.entry(session_id) | {"flag": reason})

    async def cut(self, lease: Lease, head: int, hash_: bytes) -> None:
        with self.locked():
            entry = self.held(lease)
            for number in range(head + 1, entry["head"] + 1):
                self.place(lease.session_id, number).unlink()
            entry |= {"head": head, "hash": hash_.hex(), "token": lease.token + 1, "owner": None, "expires": 0.0}
            self.save(lease.session_id, entry)

    async def remove(self, session_id: str) -> None:
        with self.locked():
            self.unheld(session_id, self.entry(session_id))
            for file in self.home(session_id).iterdir():
                file.unlink()
            self.home(session_id).rmdir()

    async def close(self) -> None:
        """Nothing is kept open."""


def shown(session_id: str, entry: dict[str, Any]) -> Entry:
    known = {
        key: entry[key] for key in ("head", "token", "owner", "expires", "updated", "flag", "summary") if key in entry
    }
    return Entry(session_id=session_id, hash=bytes.fromhex(entry["hash"]), **known)


@tool
async def book(seat: str) -> str:
    """Book a seat."""
    return f"booked {seat}"


async def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        store = FolderStore(Path(name))
        agent = Agent(
            model=ScriptedModel([call("book", seat="4A"), say("Seat 4A is yours.")]),
            tools=[book],
            limits=Limits(max_iterations=5),
            store=store,
        )
        first = await agent.run("A window seat, please.", session="trip")
        print(first.text)
        print("resumed, nothing is booked again:", await agent.resume("trip") == first)
        print([(entry.session_id, entry.head, entry.summary["outcome"]) for entry in await store.entries()])


if __name__ == "__main__":
    asyncio.run(main())
