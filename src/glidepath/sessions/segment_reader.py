"""Reading a session out of its segments: from its last frame back to the first, or whatever is left of them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from typing import Self

from glidepath import _wire
from glidepath.sessions.frames import HEADER_SIZE, Frame, Kind, frame_at, needed_at, salt_of, scan
from glidepath.sessions.own_segment import segment_path
from glidepath.spi.sessions import Commit

_NEAR, _FAR = 1 << 16, 1 << 12  # bytes to read at a time, when frames of a session are close together or not
_COMMITS = (Kind.COMMIT, Kind.COPY)


class Broken(Exception):  # noqa: N818 - never leaves the store
    """The chain of a session does not lead back to its beginning."""


class SegmentReader:
    """Opens segments as they are needed; `close` closes them."""

    def __init__(self, folder: str, store: str) -> None:
        self._folder, self._store = folder, store
        self._open: dict[int, tuple[int, int]] = {}
        self._window: tuple[int, int, bytes] = (0, 0, b"")
        self._near = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for fd, _salt in self._open.values():
            with suppress(OSError):
                os.close(fd)
        self._open.clear()

    def _file(self, number: int) -> tuple[int, int]:
        found = self._open.get(number)
        if found is None:
            try:
                fd = os.open(segment_path(self._folder, number), os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
            except FileNotFoundError:
                raise Broken(f"segment {number} is missing") from None
            found = self._open[number] = (fd, salt_of(self._store, number))
        return found

    def frame(self, number: int, at: int) -> tuple[Frame, bytes]:
        """The frame at this place and its payload; raises `Broken`."""
        fd, salt = self._file(number)
        segment, start, data = self._window
        frame = frame_at(data, at - start, salt, start) if segment == number and at >= start else None
        if frame is None:
            self._near = segment != number or abs(start - at) < _NEAR
            start = max(0, at - _NEAR + _FAR) if self._near else at
            data = os.pread(fd, at - start + _FAR, start)
            frame = frame_at(data, at - start, salt, start)
            if frame is None:  # it is larger, or broken
                needed = needed_at(data, at - start, salt)
                data, start = os.pread(fd, needed, at) if needed else b"", at
                frame = frame_at(data, 0, salt, at)
            self._window = (number, start, data)
        if frame is None or not frame.sound:
            raise Broken(f"segment {number} is broken at byte {at}")
        first = at - start + HEADER_SIZE
        return frame, data[first : first + frame.size]

    def chain(self, key: int, place: tuple[int, int], head: int, since: int = 0) -> list[Commit]:
        """The commits after `since` up to `head`, in order; raises `Broken`."""
        found: list[Commit] = []
        visited: set[tuple[int, int]] = set()
        while head > since:
            if place == (0, 0) or place in visited:
                raise Broken(f"commit {head} is missing")
            frame, payload = self.frame(*place)
            if frame.key != key or frame.number != head:
                raise Broken(f"commit {head} is not where it should be")
            if frame.kind in _COMMITS:
                found.append(Commit(frame.number, payload[frame.extra :], frame.hash))
                head -= 1
            else:
                visited.add(place)
            place = frame.link
        found.reverse()
        return found

    def summary(self, key: int, place: tuple[int, int]) -> bytes | None:
        """The last summary that a session has; None when it has none. Raises `Broken`."""
        visited: set[tuple[int, int]] = set()
        while place != (0, 0) and place not in visited:
            visited.add(place)
            frame, payload = self.frame(*place)
            if frame.key != key:
                break
            if frame.kind in _COMMITS and frame.extra:
                return payload[: frame.extra]
            if frame.kind == Kind.CUT:
                said = _wire.loads(payload)
                return _wire.encode(said.get("summary", {})) if isinstance(said, dict) else None
            place = frame.link
        return None

    def place_of(self, key: int, place: tuple[int, int], head: int, wanted: int, digest: bytes) -> tuple[int, int]:
        """Where the commit with this number is; raises `Broken`."""
        if not wanted:
            return (0, 0)
        for _ in range(2 * head + 2 + 10**6):
            frame, _payload = self.frame(*place)
            if frame.key != key:
                break
            if frame.kind in _COMMITS and frame.number == wanted and frame.hash == digest:
                return place
            place = frame.link
            if place == (0, 0):
                break
        raise Broken(f"commit {wanted} is not where it should be")

    def gathered(self, key: int, segments: Iterable[int]) -> dict[int, tuple[Commit, tuple[int, int]]]:
        """Whatever is left of a session whose chain is broken: each commit and its place, by number."""
        bases: dict[int, int] = {}
        commits: dict[int, dict[int, tuple[Commit, tuple[int, int]]]] = {}
        for number in sorted(segments):
            try:
                fd, salt = self._file(number)
            except Broken:
                continue
            data = os.pread(fd, os.fstat(fd).st_size, 0)
            for item in scan(data, salt).found:
                if type(item) is not Frame or item.key != key:
                    continue
                if item.kind in (Kind.CLAIM, Kind.CUT) and item.sound:
                    bases[item.token] = item.number
                elif item.kind in _COMMITS:
                    start = item.at + HEADER_SIZE + item.extra
                    commit = Commit(item.number, data[start : item.end], item.hash)
                    token = item.token if item.kind == Kind.COMMIT else -item.token
                    commits.setdefault(token, {})[item.number] = (commit, (number, item.at))
        return _assembled(bases, commits)


def _assembled(
    bases: dict[int, int], commits: dict[int, dict[int, tuple[Commit, tuple[int, int]]]]
) -> dict[int, tuple[Commit, tuple[int, int]]]:
    """Owner after owner: each follows the commit that it found, and what came after that one does not count."""
    whole: dict[int, tuple[Commit, tuple[int, int]]] = {}
    for token in sorted({*bases, *(token for token in commits if token > 0)}):
        copies = commits.get(-token)
        if copies is not None and token in bases:
            whole = dict(copies)
        mine = commits.get(token, {})
        base = bases.get(token, min(mine, default=1) - 1)
        whole = {number: found for number, found in whole.items() if number <= base}
        whole.update(mine)
    return dict(sorted(whole.items()))
