"""The folder of a segment store: its contents, who may use it, and how its index is rebuilt."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from glidepath import _wire
from glidepath.errors import StoreError
from glidepath.sessions.chain import other_layout
from glidepath.sessions.frames import HEADER_SIZE, frame_at, salt_of
from glidepath.sessions.lease_table import private_file
from glidepath.sessions.own_segment import disk_error
from glidepath.sessions.segment_catchup import discover
from glidepath.sessions.segment_index import LAYOUT, Foreign, SegmentIndex
from glidepath.sessions.sqlite_says import code_of

FORMAT = "glidepath segments"
_MARKER = "STORE"
_OURS = ("segments", "leases", "lock")
_BEGIN = (f"{_MARKER}.", _MARKER, "index.db", "wallets.db")  # and whatever SQLite keeps beside its files
_OTHERS = stat.S_IRWXO
_CORRUPT = (1, 11, 26)  # no such table; the file is damaged; it is not a database


def is_segment_folder(path: str | os.PathLike[str]) -> bool:
    """True when there is a segment store at this path."""
    return Path(path, _MARKER).is_file() or Path(path, "segments").is_dir()


class SegmentFolder:
    """A folder that is, or becomes, a segment store."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.store = ""
        self.writable = True
        self._lock = -1

    def exists(self) -> bool:
        """True when a store is there."""
        return is_segment_folder(self.path)

    # --- coming in --------------------------------------------------------------------------------------------

    def enter(self, *, view: bool = False) -> None:
        """Make sure that this is a segment store of a version that we know; made when there is nothing yet.

        `view`: nothing is written, whether that would be possible or not.
        """
        try:
            self._enter(view=view)
        except OSError as error:
            raise disk_error(error, self.path) from error

    def _enter(self, *, view: bool) -> None:
        if os.path.exists(self.path) and not os.path.isdir(self.path):  # noqa: PTH110, PTH112
            raise StoreError(f"{self.path} is a file, not the folder of a segment store", kind="damaged")
        self.writable = not view and (
            not os.path.isdir(self.path) or os.access(self.path, os.W_OK | os.X_OK)  # noqa: PTH112
        )
        marker = self._marker()
        if marker is None:
            marker = self._made()
        self.store = self._checked(marker)
        if self.writable:
            _made_folder(Path(self.path, "segments"))
            self._close_to_others()
            if self._lock < 0:
                self._lock = private_file(f"{self.path}/lock")

    def refuse_other_layouts(self) -> None:
        """Raise `StoreError` when a store is here that another version made."""
        marker = self._marker()
        if marker is not None:
            self._checked(marker)

    def _checked(self, marker: Mapping[str, Any]) -> str:
        """The id of the store, if it is one that we know."""
        layout, store = marker.get("layout"), marker.get("store")
        if marker.get("format") != FORMAT or type(layout) is not int or type(store) is not str:
            raise StoreError(f"{self.path}/{_MARKER} is damaged: it does not describe a segment store", kind="damaged")
        if layout != LAYOUT:
            raise other_layout(f"{self.path} has", layout, LAYOUT)
        return store

    def _marker(self) -> dict[str, Any] | None:
        try:
            found = _wire.loads(Path(self.path, _MARKER).read_bytes())
        except FileNotFoundError:
            return None
        except (_wire.WireError, ValueError):
            found = None
        return found if isinstance(found, dict) else {}

    def _made(self) -> dict[str, Any]:
        """A new store, in a folder that is new or empty; or an old one that has lost its marker."""
        folder = Path(self.path)
        if not self.writable:
            raise StoreError(f"there is no session store in {self.path}, and it is read-only", kind="read_only")
        if folder.is_dir():
            names = [entry.name for entry in folder.iterdir()]
            strange = sorted(name for name in names if name not in _OURS and not name.startswith(_BEGIN))
            if strange:
                what = f"{self.path} is not the folder of a store ({strange[0]!r:.80}): choose another folder"
                raise StoreError(what, kind="damaged")
        _made_folder(folder)
        _made_folder(folder / "segments")
        said = {"format": FORMAT, "layout": LAYOUT, "store": self._told_by_segments() or os.urandom(8).hex()}
        made = folder / f"{_MARKER}.{os.urandom(4).hex()}"
        fd = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.fchmod(fd, 0o600)
            os.write(fd, _wire.encode(said) + b"\n")
            os.fsync(fd)
        finally:
            os.close(fd)
        try:
            os.link(made, folder / _MARKER)  # the first one to get here decides
        except FileExistsError:
            pass
        finally:
            made.unlink()
        return self._marker() or {}

    def _told_by_segments(self) -> str:
        """The store's own number, as its segments have it; empty when there are none."""
        for path in sorted(Path(self.path, "segments").glob("*.seg")):
            with suppress(OSError, ValueError, _wire.WireError, AttributeError, TypeError):
                data = path.read_bytes()[:4096]
                start = data.index(b"{", HEADER_SIZE)
                store = _wire.loads(data[start : data.index(b"}", start) + 1]).get("store")
                if frame_at(data, 0, salt_of(store, int(path.stem))) is not None:
                    return str(store)
        return ""

    def _close_to_others(self) -> None:
        mode = os.stat(self.path).st_mode  # noqa: PTH116
        if mode & _OTHERS:
            with suppress(OSError):
                os.chmod(self.path, mode & (0o770 if mode & stat.S_IWGRP else 0o700))  # noqa: PTH101

    # --- the lock ---------------------------------------------------------------------------------------------

    @contextmanager
    def locked(self, *, alone: bool = False) -> Iterator[None]:
        """Keep others from rebuilding the index; `alone`: from changing it. Raises `StoreError` (`locked`)."""
        if not self.writable:
            yield
            return
        import fcntl

        try:
            fcntl.flock(self._lock, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except OSError as error:
            raise StoreError(f"the session store {self.path} is locked by another process", kind="locked") from error
        try:
            yield
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    # --- the index --------------------------------------------------------------------------------------------

    def index(self, wait: int) -> SegmentIndex:
        """The index, rebuilt when it is lost, damaged or foreign."""
        if not self.writable:
            return self.view()
        import sqlite3

        if self._has_index():
            with suppress(Foreign), self.locked():
                try:
                    with closed_on_failure(SegmentIndex(self.path, self.store, wait=wait)) as found:
                        if found.strange():
                            with found.writing():
                                discover(found)
                    return found
                except sqlite3.DatabaseError as error:
                    if not is_corrupt(error):
                        raise
        return self._rebuilt(wait)

    def _has_index(self) -> bool:
        try:
            return os.stat(f"{self.path}/index.db").st_size > 0  # noqa: PTH116
        except OSError:
            return False

    def _rebuilt(self, wait: int) -> SegmentIndex:
        import sqlite3

        with self.locked(alone=True):
            if self._has_index():  # another process may have made it meanwhile
                try:
                    with closed_on_failure(SegmentIndex(self.path, self.store, wait=wait)) as found:
                        found.db.execute("SELECT count(*) FROM sessions").fetchone()
                        found.strange()
                    return found
                except (sqlite3.DatabaseError, Foreign) as error:
                    if isinstance(error, sqlite3.DatabaseError) and not is_corrupt(error):
                        raise
            self.lose_index()
            with closed_on_failure(SegmentIndex(self.path, self.store, wait=wait)) as made, made.writing():
                discover(made)
            return made

    def lose_index(self) -> None:
        """Put the index aside; the next process to open the store makes a new one."""
        path = f"{self.path}/index.db"
        with suppress(FileNotFoundError):
            os.replace(path, f"{path}.lost")  # noqa: PTH105
        for more in ("-wal", "-shm"):
            with suppress(FileNotFoundError):
                os.unlink(path + more)  # noqa: PTH108

    def view(self) -> SegmentIndex:
        """An index in memory that knows everything: for a folder that cannot be written, or a disk that is full."""
        with closed_on_failure(SegmentIndex(self.path, self.store, wait=0, writable=False)) as found, found.writing():
            for number in found.files():
                found.db.execute("INSERT OR IGNORE INTO segments(number) VALUES(?)", (number,))
                found.db.execute("UPDATE segments SET writer = coalesce(writer, '') WHERE number = ?", (number,))
            discover(found)
        return found

    def leave(self) -> None:
        """Close the lock."""
        fd, self._lock = self._lock, -1
        if fd >= 0:
            with suppress(OSError):
                os.close(fd)


@contextmanager
def closed_on_failure(index: SegmentIndex) -> Iterator[SegmentIndex]:
    """The index, which is closed when the block fails: on a full disk it is opened again and again."""
    try:
        yield index
    except BaseException:
        index.close()
        raise


def _made_folder(path: Path) -> None:
    if not path.is_dir():
        with suppress(FileExistsError):
            path.mkdir(mode=0o700)
            path.chmod(0o700)  # whatever the umask


def is_corrupt(error: BaseException) -> bool:
    """True when SQLite says that its file is damaged, or not a database."""
    return code_of(error) in _CORRUPT
