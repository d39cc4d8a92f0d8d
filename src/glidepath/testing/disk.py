"""A model of a disk that loses power: what a store may find in its files after a cut, by seed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from random import Random
from typing import TypeAlias

from glidepath._wire import Value
from glidepath.values import ConfigurationError

MODES = ("lost", "prefix", "torn", "reordered", "older_names")
LYING = "lying"
_BLOCKS = (4096, 512)  # what file systems and disks write at once
_ON_MARKS = 0.6  # of the cuts: a promise was just made
_KEPT = 0.75  # of the blocks of a torn write
_NAMING = frozenset({"create", "mkdir", "rename", "link", "unlink"})
_CHANGING = frozenset({"write", "append", "truncate", "extend"})


class DiskOperation(Value, frozen=True, kw_only=True):
    """One thing that a process did to the files of a store. Paths are relative to its folder.

    `kind` is one of create, mkdir, rename, link, unlink, write, append, truncate, extend, map, sync, sync_all, mark.
    """

    kind: str
    path: str = ""
    """The file or folder; empty for the store's own folder. For a mark, its text."""
    target: str = ""
    """The new name, of a rename or a link."""
    offset: int = 0
    """Where a write begins; the new size, for truncate and extend."""
    data: bytes = b""
    began: int | None = None
    """For a sync: how many operations were over when it began. It promises nothing about later ones."""


class PowerCut(Value, frozen=True, kw_only=True):
    """A power cut: after this many operations, in one of `MODES`, or `lying`; `seed` decides what exactly is left.

    Its repr is the program that makes it again.
    """

    at: int
    mode: str
    seed: int
    loses: tuple[int, ...] | None = None
    """The numbers of the operations that may be lost, as `shrink` has found them; None: all that nobody synced."""

    def spares(self, number: int) -> bool:
        """Whether this operation is on the disk, whatever the mode says."""
        return self.loses is not None and number not in self.loses


class SimulatedDisk:
    """Records what processes do to a store's files, and makes up what a power cut at any moment may leave of them.

    `folder` holds every file of the store; what is in it now counts as safely on the disk. `marks` is a file outside of
    the folder: every line that a process appends to it is an acknowledgement, in its place between the operations.

        disk = SimulatedDisk(folder, marks=tmp_path / "acknowledged")
        disk.record([sys.executable, "workload.py"])
        for cut in disk.cuts(200, seed=1):
            left = disk.leave(cut, tmp_path / "after")      # a folder as it may be found when the power is back
            promised = disk.marks(cut)                      # what had been acknowledged by then

    What was synced is always there. What was not is decided by the mode of the cut: `lost` keeps none of it; `prefix`
    keeps, in each file, the first so many writes; `torn` breaks such writes into blocks of 4 kB or sectors of 512 bytes
    and loses some; `reordered` keeps any of the writes, older or newer; `older_names` also forgets that files were
    made, renamed or removed since their folder was last synced. A file that was mapped into memory for
    writing holds noise. `lying`, which has to be asked for, is a disk that says from some moment on that it has synced,
    and has not: nothing can be promised then, but that a store notices.

    Operations can also be given by hand: `create`, `write`, `sync` and the other methods below.
    """

    def __init__(self, folder: str | Path, *, marks: str | Path | None = None) -> None:
        self.folder = Path(folder).absolute()
        self.marks_file = None if marks is None else Path(marks).absolute()
        if self.marks_file is not None and self.marks_file.is_relative_to(self.folder):
            raise ConfigurationError(f"marks={str(marks)!r} is inside {folder}: acknowledgements survive a power cut")
        self.operations: list[DiskOperation] = []
        self._before: dict[str, bytes | None] = {}
        if self.folder.is_dir():
            for path in sorted(self.folder.rglob("*")):
                name = path.relative_to(self.folder).as_posix()
                self._before[name] = path.read_bytes() if path.is_file() else None

    # --- operations -----------------------------------------------------------------------------------------------

    def create(self, path: str) -> None:
        """A new, empty file; nothing happens if it exists."""
        self.operations.append(DiskOperation(kind="create", path=path))

    def make_folder(self, path: str) -> None:
        """A new folder."""
        self.operations.append(DiskOperation(kind="mkdir", path=path))

    def write(self, path: str, offset: int, data: bytes) -> None:
        """Write at a place in a file."""
        self.operations.append(DiskOperation(kind="write", path=path, offset=offset, data=data))

    def append(self, path: str, data: bytes) -> None:
        """Write at the end of a file."""
        self.operations.append(DiskOperation(kind="append", path=path, data=data))

    def truncate(self, path: str, size: int) -> None:
        """Cut a file, or fill it up with zeros, to this size."""
        self.operations.append(DiskOperation(kind="truncate", path=path, offset=size))

    def extend(self, path: str, size: int) -> None:
        """Fill a file up with zeros to at least this size."""
        self.operations.append(DiskOperation(kind="extend", path=path, offset=size))

    def map(self, path: str) -> None:
        """A file is mapped into memory for writing: from now on nobody knows what it holds."""
        self.operations.append(DiskOperation(kind="map", path=path))

    def rename(self, path: str, target: str) -> None:
        """Give a file or folder another name, in place of whatever has it."""
        self.operations.append(DiskOperation(kind="rename", path=path, target=target))

    def link(self, path: str, target: str) -> None:
        """Give a file a second name."""
        self.operations.append(DiskOperation(kind="link", path=path, target=target))

    def unlink(self, path: str) -> None:
        """Remove a file or an empty folder."""
        self.operations.append(DiskOperation(kind="unlink", path=path))

    def sync(self, path: str = "", *, began: int | None = None) -> None:
        """Everything written to this file, or every name in this folder, is on the disk now.

        `began` is how many operations were over when the sync began, where that is not all of them.
        """
        self.operations.append(DiskOperation(kind="sync", path=path, began=began))

    def sync_all(self, *, began: int | None = None) -> None:
        """Everything is on the disk now."""
        self.operations.append(DiskOperation(kind="sync_all", began=began))

    def mark(self, text: str) -> None:
        """Something was acknowledged: from here on it has to be there."""
        self.operations.append(DiskOperation(kind="mark", path=text))

    def record(
        self, command: Sequence[str], *, timeout: float = 120.0, full_after: int | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a program with `strace`, add its operations to these, and return its exit code and what it printed.

        Processes that it starts are recorded with it; run several programs one after the other for several lives of a
        store. With `full_after`, the disk is full after this many writes of each thread, as far as they are made with
        `pwrite`, as those of SQLite are.

        Raises `ConfigurationError` when strace is missing or may not trace, or for something the model lacks.
        """
        from glidepath.testing.disk_recording import trace

        return trace(self, command, timeout, full_after)

    # --- cuts -----------------------------------------------------------------------------------------------------

    def marks(self, cut: PowerCut | None = None) -> list[str]:
        """What had been acknowledged before the cut; without one, everything."""
        until = len(self.operations) if cut is None else cut.at
        return [one.path for one in self.operations[:until] if one.kind == "mark"]

    def cuts(self, count: int, *, seed: int = 0, modes: Sequence[str] = MODES) -> Iterator[PowerCut]:
        """So many cuts: most right after an acknowledgement, the others anywhere; the modes take turns."""
        chance = Random(seed)  # noqa: S311 - chosen by seed, not secret
        after = [number + 1 for number, one in enumerate(self.operations) if one.kind == "mark"]
        for number in range(count):
            is_promised = bool(after) and chance.random() < _ON_MARKS
            at = chance.choice(after) if is_promised else chance.randint(0, len(self.operations))
            yield PowerCut(at=at, mode=modes[number % len(modes)], seed=chance.getrandbits(32))

    def files(self, cut: PowerCut) -> Mapping[str, bytes | None]:
        """What is left: the content of every file by its path, and None for each folder."""
        if cut.mode not in (*MODES, LYING):
            raise ConfigurationError(f"mode={cut.mode!r} is not one of {', '.join((*MODES, LYING))}")
        return self._state_at(cut).files_after(cut)

    def _state_at(self, cut: PowerCut) -> _State:
        state, honest = _State(self._before), cut.at
        if cut.mode == LYING:
            honest = Random(f"lies {cut.seed}").randint(0, cut.at)  # noqa: S311 - chosen by seed, not secret
        for number, operation in enumerate(self.operations[: cut.at]):
            if number < honest or operation.kind not in ("sync", "sync_all"):
                state.apply(number, operation)
        return state

    def leave(self, cut: PowerCut, target: str | Path) -> Path:
        """Make a folder as the store finds it when the power is back; whatever is at `target` is removed first."""
        target = Path(target)
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        for path, content in self.files(cut).items():
            place = target / path
            if content is None:
                place.mkdir(exist_ok=True)
            else:
                place.write_bytes(content)
        return target

    def shrink(self, cut: PowerCut, is_harmed: Callable[[PowerCut], object]) -> PowerCut:
        """The smallest cut of this mode that is found to do harm, too: as early, and with as few operations lost.

        `is_harmed` is asked about each that is tried; about `cut` itself it has said yes. What is left tells which
        operations a store has to sync before it promises anything: their numbers are in `loses`.
        """
        step = cut.at // 2
        while step:
            earlier = PowerCut(at=cut.at - step, mode=cut.mode, seed=cut.seed)
            if cut.at > step and is_harmed(earlier):
                cut = earlier
            else:
                step //= 2
        loses = self._state_at(cut).list_unsynced()
        size = len(loses)
        while size:
            place = 0
            while place < len(loses):
                fewer = (*loses[:place], *loses[place + size :])
                if is_harmed(PowerCut(at=cut.at, mode=cut.mode, seed=cut.seed, loses=fewer)):
                    loses = fewer
                else:
                    place += size
            size //= 2
        return PowerCut(at=cut.at, mode=cut.mode, seed=cut.seed, loses=loses)


_Numbered: TypeAlias = tuple[int, DiskOperation]


class _Inode:
    """A file, whatever its names: what is on the disk, and what was written since."""

    def __init__(self, content: bytes | None = b"") -> None:
        self.is_folder = content is None
        self.content = bytearray(content or b"")
        self.size = len(self.content)
        self.unsynced: list[_Numbered] = []
        self.is_mapped = False

    def change(self, number: int, operation: DiskOperation) -> None:
        if operation.kind == "append":  # the place is known now, and not when some of the writes are lost
            operation = DiskOperation(kind="write", path=operation.path, offset=self.size, data=operation.data)
        end = operation.offset + len(operation.data)
        self.size = operation.offset if operation.kind == "truncate" else max(self.size, end)
        self.unsynced.append((number, operation))

    def sync(self, began: int) -> None:
        safe = [one for number, one in self.unsynced if number < began]
        self.unsynced = self.unsynced[len(safe) :]
        _write_all(self.content, safe)

    def content_after(self, cut: PowerCut, chance: Random) -> bytes:
        if self.is_mapped:
            return chance.randbytes(self.size)
        content = bytearray(self.content)
        kept = _choose_survivors(self.unsynced, cut.mode, chance)
        if cut.loses is not None:  # after the choice, which must stay the same whatever is spared
            kept = [one for one in kept if not cut.spares(one[0])]
            kept += [one for one in self.unsynced if cut.spares(one[0])]
            kept.sort(key=lambda one: one[0])
        _write_all(content, [one for _, one in kept])
        return bytes(content)


def _choose_survivors(unsynced: list[_Numbered], mode: str, chance: Random) -> list[_Numbered]:
    """Which of the operations that nobody synced are on the disk."""
    if mode == "lost" or not unsynced:
        return []
    if mode in ("reordered", LYING):
        share = chance.random()
        return [one for one in unsynced if chance.random() < share]
    first = unsynced[: chance.randint(0, len(unsynced))]
    if mode == "torn":
        block = chance.choice(_BLOCKS)
        return [(number, piece) for number, one in first for piece in _pieces(one, block) if chance.random() < _KEPT]
    return first


def _pieces(operation: DiskOperation, block: int) -> Iterator[DiskOperation]:
    """A write, block by block; anything else is one piece."""
    if operation.kind != "write":
        yield operation
        return
    start, end = operation.offset, operation.offset + len(operation.data)
    while start < end:
        stop = min((start // block + 1) * block, end)
        data = operation.data[start - operation.offset : stop - operation.offset]
        yield DiskOperation(kind="write", path=operation.path, offset=start, data=data)
        start = stop


def _write_all(content: bytearray, operations: Sequence[DiskOperation]) -> None:
    for one in operations:
        end = one.offset + len(one.data)
        if one.kind == "truncate":
            del content[one.offset :]
        content.extend(bytes(max(0, end - len(content))))
        if one.kind == "write":
            content[one.offset : end] = one.data


class _State:
    """The files at some moment: the names that processes see, and those that are on the disk."""

    def __init__(self, before: Mapping[str, bytes | None]) -> None:
        self.names = {path: _Inode(content) for path, content in before.items()}
        self.safe = dict(self.names)
        self.unsynced: list[tuple[int, DiskOperation, _Inode]] = []  # changes of names

    def apply(self, number: int, operation: DiskOperation) -> None:
        kind, path = operation.kind, operation.path
        if kind in _CHANGING:
            if path in self.names:
                self.names[path].change(number, operation)
        elif kind == "map":
            if path in self.names:
                self.names[path].is_mapped = True
        elif kind in _NAMING:
            self._name(number, operation)
        elif kind in ("sync", "sync_all"):
            self._sync(operation, number if operation.began is None else operation.began)

    def _name(self, number: int, operation: DiskOperation) -> None:
        is_new = operation.kind in ("create", "mkdir")
        if (operation.path in self.names) is is_new:
            return  # it exists already, or never did
        inode = _Inode(None if operation.kind == "mkdir" else b"") if is_new else self.names[operation.path]
        _rename(self.names, operation, inode)
        self.unsynced.append((number, operation, inode))

    def _sync(self, operation: DiskOperation, began: int) -> None:
        inode = self.names.get(operation.path)
        if operation.kind == "sync_all":
            for one in self.names.values():
                one.sync(began)
        elif inode is not None and not inode.is_folder:
            inode.sync(began)
            return
        later = []
        for number, change, named in self.unsynced:
            place = PurePosixPath(change.target or change.path).parent.as_posix().removeprefix(".")
            if number < began and (operation.kind == "sync_all" or place == operation.path):
                _rename(self.safe, change, named)
            else:
                later.append((number, change, named))
        self.unsynced = later

    def list_unsynced(self) -> tuple[int, ...]:
        """The numbers of the operations that a cut may lose now."""
        inodes = {id(one): one for one in (*self.names.values(), *self.safe.values())}
        contents = [number for inode in inodes.values() for number, _ in inode.unsynced]
        return tuple(sorted({*contents, *[number for number, *_ in self.unsynced]}))

    def files_after(self, cut: PowerCut) -> dict[str, bytes | None]:
        chance = Random(cut.seed)  # noqa: S311 - chosen by seed, not secret
        names = dict(self.safe)
        kept = len(self.unsynced) if cut.mode != "older_names" else chance.randint(0, len(self.unsynced))
        for place, (number, change, inode) in enumerate(self.unsynced):  # in order, as a file system's journal has them
            if place < kept or cut.spares(number):
                _rename(names, change, inode)
        found: dict[str, bytes | None] = {}
        for path in sorted(names):
            folder = PurePosixPath(path).parent.as_posix()
            if folder == "." or found.get(folder, b"") is None:  # a file in a folder that is gone is gone, too
                found[path] = None if names[path].is_folder else names[path].content_after(cut, chance)
        return found


def _rename(names: dict[str, _Inode], operation: DiskOperation, inode: _Inode) -> None:
    """Change the names as the operation says; whatever is in a renamed folder moves with it."""
    path, target = operation.path, operation.target
    if operation.kind in ("unlink", "rename"):
        names.pop(path, None)
    if operation.kind != "unlink":
        names[target or path] = inode
    if operation.kind == "rename" and inode.is_folder:
        for inside in [name for name in names if name.startswith(f"{path}/")]:
            names[target + inside[len(path) :]] = names.pop(inside)
