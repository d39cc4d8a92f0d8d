"""The kill switches of a server: kept with its store, so that a restart, another server or a worker finds them thrown.

In a fleet's PostgreSQL they are the fleet's own, and its workers obey them. Beside an embedded store they are a file
in the folder of its event log, which only grows: who threw and released them, when and why. Without a store they last
as long as the process.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from glidepath import _wire
from glidepath._wire import Value, WireError
from glidepath.apps.server.event_log import FolderLog, log_for
from glidepath.apps.server.shapes import SwitchShape
from glidepath.sessions import RedactingStore, redactor_of
from glidepath.values import StoreError

FILE = "kill-switch.journal"
_HERE = "SELECT to_regclass('glidepath_workers') IS NOT NULL"


class SwitchLine(Value, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the file: thrown, released, or which sessions were asked to stop."""

    action: str
    reason: str = ""
    who: str = ""
    time: float = 0.0
    sessions: Sequence[str] = ()


class Switchboard:
    """Throws, releases and looks at kill switches; raises `StoreError` when that cannot be kept or read."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self._hide = redactor_of(store)
        self._kept = store
        while isinstance(self._kept, RedactingStore):  # what it keeps elsewhere, a switch is kept beside
            self._kept = self._kept.store
        log = log_for(self._kept)
        self._path = log.folder / FILE if isinstance(log, FolderLog) else None
        self._lines: list[SwitchLine] = []
        self._stamp: tuple[int, int] | None = None
        self._ledger: Any = None

    async def ledger(self, *, make: bool = False) -> Any:
        """The ledger of the fleet in the store's database; None when there is none yet, and nobody asks to make it."""
        if self._ledger is None:
            from glidepath.sessions import PostgresStore

            if isinstance(self._kept, PostgresStore) and (make or await self._kept.asked(_HERE)):
                from glidepath.apps.fleet.fleet_ledger import FleetLedger

                self._ledger = FleetLedger(self._kept.dsn, connections=2)
        return self._ledger

    async def list_thrown_switches(self) -> list[SwitchShape]:
        """Every switch that is thrown."""
        ledger = await self.ledger()
        if ledger is None:
            on, _ = _fold_lines(self._read())
            return [] if on is None else [SwitchShape(scope="fleet", reason=on.reason, who=on.who, since=on.time)]
        from glidepath.apps.fleet.kill_switches import list_thrown_switches

        return [
            SwitchShape(scope=one.scope, id=one.name or None, reason=one.reason, who=one.who, since=one.since)
            for one in await list_thrown_switches(ledger)
        ]

    async def find_thrown_switch(self, session: str | None) -> str | None:
        """Why no run may start in this session, in a sentence; None when one may."""
        ledger = await self.ledger()
        if ledger is None:
            on, _ = _fold_lines(self._read())
            return None if on is None else f"the kill switch is thrown: {on.reason}"
        from glidepath.apps.fleet.kill_switches import find_thrown_switch

        return await find_thrown_switch(ledger, session)

    async def throw(self, tenant: str | None, reason: str, who: str) -> None:
        """Throw the switch of a tenant, or of everything."""
        reason = self._redact_reason(reason)
        ledger = await self.ledger(make=True)
        if ledger is not None:
            from glidepath.apps.fleet.kill_switches import throw

            await throw(ledger, tenant, reason, who)
        elif _fold_lines(self._read())[0] is None:
            self._write(SwitchLine(action="throw", reason=reason, who=who, time=time.time()))

    async def record_stop(self, tenant: str | None, sessions: Sequence[str]) -> None:
        """Remember which sessions were asked to stop."""
        ledger = await self.ledger()
        if ledger is not None:
            from glidepath.apps.fleet.kill_switches import record_stop

            await record_stop(ledger, tenant, sessions)
        else:
            self._write(SwitchLine(action="stop", sessions=tuple(sessions)))

    async def release(self, tenant: str | None, reason: str, who: str) -> bool:
        """Release a switch and take back the stops that nobody has obeyed yet; False when it was not thrown."""
        reason = self._redact_reason(reason)
        ledger = await self.ledger()
        if ledger is not None:
            from glidepath.apps.fleet.kill_switches import release

            return await release(ledger, tenant, reason, who)
        on, sessions = _fold_lines(self._read())
        if on is None:
            return False
        self._write(SwitchLine(action="release", reason=reason, who=who, time=time.time()))
        for session in sessions if self.store is not None else ():
            with suppress(StoreError):  # its session is gone
                await self.store.flag(session, None)
        return True

    def _redact_reason(self, reason: str) -> str:
        return reason if self._hide is None else self._hide.text(reason)

    async def close(self) -> None:
        """Close the connections."""
        if self._ledger is not None:
            await self._ledger.close()

    # --- the file ---------------------------------------------------------------------------------------------

    def _read(self) -> list[SwitchLine]:
        if self._path is None:
            return self._lines
        try:
            found = self._path.stat()
            stamp = (found.st_mtime_ns, found.st_size)
            if stamp != self._stamp:
                self._lines = _parse_lines(self._path.read_bytes())
                self._stamp = stamp
        except (FileNotFoundError, NotADirectoryError):
            self._lines, self._stamp = [], None
        except OSError as error:
            raise _make_unusable_error(self._path, "read", error) from None
        return self._lines

    def _write(self, line: SwitchLine) -> None:
        if self._path is None:
            self._lines.append(line)
            return
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0), 0o600)
            try:
                os.write(file, _wire.encode(line) + b"\n")
                os.fsync(file)
            finally:
                os.close(file)
        except OSError as error:
            raise _make_unusable_error(self._path, "written", error) from None


def _make_unusable_error(path: Path, what: str, error: OSError) -> StoreError:
    why = error.strerror or type(error).__name__
    return StoreError(
        f"the kill switch {path} cannot be {what} ({why}): nothing starts until it can", kind="unavailable"
    )


def _parse_lines(data: bytes) -> list[SwitchLine]:
    """The whole lines; one that a crash of the machine has torn is left out."""
    lines = []
    for line in data.splitlines():
        with suppress(WireError, ValueError):
            lines.append(_wire.decode(line, SwitchLine))
    return lines


def _fold_lines(lines: Sequence[SwitchLine]) -> tuple[SwitchLine | None, list[str]]:
    """The line that threw the switch, None when it is released; and the sessions that were asked to stop."""
    on: SwitchLine | None = None
    sessions: list[str] = []
    for line in lines:
        if line.action == "throw":
            on = on or line
        elif line.action == "release":
            on, sessions = None, []
        elif on is not None:
            sessions += line.sessions
    return on, sessions
