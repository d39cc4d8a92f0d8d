"""Webhooks: tell another program when a run waits, fails or comes near a limit.

A run is never held up: its events put a delivery in a bounded queue, which a separate task empties. What a receiver
does with it, or does not do, is known only there.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
import tomllib
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from glidepath import _wire
from glidepath._wire import Value
from glidepath.apps.server.client_tools import is_client_call
from glidepath.apps.server.run_feed import RunFeed
from glidepath.apps.server.webhook_post import HookAddress, PostFailed, post_signed, read_key
from glidepath.run import question_rows
from glidepath.values import (
    BudgetSettled,
    ConfigurationError,
    Event,
    LoopOutcome,
    RunEnded,
    RunResult,
    TurnStarted,
    describe_error,
)

__all__ = ["Webhook", "Webhooks", "read_webhooks"]

_log = logging.getLogger("glidepath.serve")
WAITS, FAILS, NEAR = "waits", "fails", "near_limit"
RULES = (WAITS, FAILS, NEAR)
PAUSES = (1.0, 4.0, 15.0, 60.0, 300.0)
"""Seconds before each further attempt; then the delivery is given up."""
MOST_WAITING = 1_000  # deliveries of one webhook; the oldest go first
KEPT = 200  # deliveries that are remembered
FAREWELL = 2.0  # seconds for what is left when the server ends
_LEAST_SECRET = 16
_LEAST_KEY = 8
_MOST_RUNS = 10_000
_MOST_TEXT = 4_000  # characters of an answer, where content is sent


class Webhook(Value, frozen=True, kw_only=True):
    """Whom to tell of what. `on` has `waits`, `fails` and `near_limit`; without `agents` it is about all of them.

    `secret` signs each delivery. Prompts, arguments and texts are left out unless `content` is True. `private` allows
    an address in your own network. `near` is the part of a limit at which `near_limit` is sent, once a run and limit.
    """

    url: str
    secret: str
    on: tuple[str, ...] = RULES
    agents: tuple[str, ...] = ()
    near: float = 0.8
    content: bool = False
    private: bool = False

    def __post_init__(self) -> None:
        self.address  # noqa: B018 - which checks it
        if not isinstance(self.secret, str) or len(self.secret) < _LEAST_SECRET:
            raise ConfigurationError(f"a webhook's secret must have at least {_LEAST_SECRET} characters")
        try:
            is_short = len(read_key(self.secret)) < _LEAST_KEY
        except ValueError:
            is_short = True
        if is_short:
            raise ConfigurationError(
                f"a webhook's secret that begins with whsec_ must be base64 behind that, of {_LEAST_KEY} bytes or more"
            )
        if not self.on or not set(self.on) <= set(RULES):
            raise ConfigurationError(f"a webhook's on must have some of {', '.join(RULES)}, not {self.on!r:.80}")
        if isinstance(self.near, bool) or not isinstance(self.near, int | float) or not 0 < self.near <= 1:
            raise ConfigurationError(f"a webhook's near must be above 0 and at most 1, not {self.near!r:.40}")

    def __repr__(self) -> str:
        return f"<Webhook {self.where} on {', '.join(self.on)}>"

    @property
    def address(self) -> HookAddress:
        """Where it goes."""
        return HookAddress.read(self.url, private=self.private)

    @property
    def where(self) -> str:
        """Its address without what may be a secret."""
        address = self.address
        return f"{'https' if address.tls else 'http'}://{address.host}:{address.port}"


class Delivery(Value, frozen=True, kw_only=True):
    """What happened to one delivery, for the operator."""

    id: str
    url: str
    kind: str
    run_id: str
    time: float
    attempts: int
    status: str
    """delivered, retried, given up, or dropped."""
    why: str = ""


class Webhooks:
    """Watches the feeds of a hub and tells the receivers."""

    def __init__(
        self,
        hooks: Sequence[Webhook],
        watchers: list[Callable[[RunFeed, Sequence[Event]], None]],
        *,
        pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._lines = [_Line(hook, self._note, pause) for hook in hooks]
        if hooks:
            watchers.append(self.watch)
        self.deliveries: deque[Delivery] = deque(maxlen=KEPT)
        """The latest, oldest first."""
        self._told: OrderedDict[str, set[str]] = OrderedDict()

    def watch(self, feed: RunFeed, events: Sequence[Event]) -> None:
        """Something happened in a run. Never raises, and never waits."""
        if feed.head.parent is not None:
            return
        try:
            for event in events:
                if isinstance(event, RunEnded):
                    self._tell_end(feed, event.result)
                elif isinstance(event, BudgetSettled | TurnStarted):
                    self._tell_gauges(feed)
        except Exception as error:
            _log.error("a webhook for run %s could not be written: %s", feed.run_id, describe_error(error))

    def _tell_end(self, feed: RunFeed, result: RunResult[Any]) -> None:
        waiting = [one for one in result.pending if not is_client_call(one)]
        if waiting:
            calls = [{"id": one.call.id, "tool": one.call.name, "digest": one.digest} for one in waiting]
            shown = [question_rows(one) for one in waiting]
            self._tell(feed, WAITS, {"pending": calls}, {"shown": shown})
        elif result.outcome is LoopOutcome.FAILED:
            cause = result.cause
            known = {"outcome": result.outcome.value, "source": None if cause is None else cause.source}
            content = {"reason": "" if cause is None else cause.reason, "text": result.text[:_MOST_TEXT]}
            self._tell(feed, FAILS, known, content)
        if result.outcome is not LoopOutcome.PAUSED:
            self._told.pop(feed.run_id, None)

    def _tell_gauges(self, feed: RunFeed) -> None:
        lines = [line for line in self._lines if NEAR in line.hook.on]
        if not lines:
            return
        told = self._told.setdefault(feed.run_id, set())
        while len(self._told) > _MOST_RUNS:
            self._told.popitem(last=False)
        for gauge in feed.card.gauges(time.time(), feed.meter):
            part = 0.0 if not gauge.limit else gauge.used / gauge.limit
            for place, line in enumerate(lines):
                key = f"{gauge.kind} {place}"
                if part >= line.hook.near and key not in told:
                    told.add(key)
                    figures = {"kind": gauge.kind, "used": gauge.used, "limit": gauge.limit}
                    self._tell(feed, NEAR, {"limit": figures}, {}, [line])

    def _tell(
        self,
        feed: RunFeed,
        rule: str,
        known: Mapping[str, Any],
        content: Mapping[str, Any],
        lines: Sequence[_Line] | None = None,
    ) -> None:
        head = feed.head
        about = {"run_id": feed.run_id, "session_id": head.session_id, "agent": head.agent, "foreign": feed.foreign}
        for line in self._lines if lines is None else lines:
            hook = line.hook
            if rule in hook.on and (not hook.agents or head.agent in hook.agents):
                more = {**content, "task": feed.card.task} if hook.content else {}
                said = {"type": f"run.{rule}", "time": round(time.time(), 3), **about, **known, **more}
                line.put(rule, feed.run_id, _wire.encode(said))

    def _note(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)
        level = logging.INFO if delivery.status == "delivered" else logging.WARNING
        said = f": {delivery.why}" if delivery.why else ""
        about = (delivery.kind, delivery.run_id, delivery.url, delivery.status, said)
        _log.log(level, "webhook %s of run %s to %s: %s%s", *about)

    def describe(self) -> dict[str, Any]:
        """What there is, for the operator: no secret, and no address beyond the host."""
        hooks = [{"url": line.hook.where, "on": line.hook.on, "waiting": len(line.queue)} for line in self._lines]
        return {"webhooks": hooks, "deliveries": list(self.deliveries)[::-1]}

    async def list_deliveries(self, _: object) -> dict[str, Any]:
        """The same, as the answer to a request."""
        return self.describe()

    async def close(self) -> None:
        """The server ends: a moment for what is left, then it is dropped."""
        await asyncio.gather(*[line.close() for line in self._lines])


class _Line:
    """One receiver, and what it has not been told yet. Its attempts come one after the other."""

    def __init__(
        self, hook: Webhook, note: Callable[[Delivery], None], pause: Callable[[float], Awaitable[object]]
    ) -> None:
        self.hook = hook
        self.queue: deque[tuple[str, str, str, bytes]] = deque()
        self._note = note
        self._pause = pause
        self._task: asyncio.Task[None] | None = None

    def put(self, rule: str, run_id: str, body: bytes) -> None:
        """Tell it soon."""
        self.queue.append((f"msg_{secrets.token_hex(12)}", rule, run_id, body))
        if len(self.queue) > MOST_WAITING:
            self._report(self.queue.popleft(), 0, "dropped", f"{MOST_WAITING} others wait")
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._work(), name="glidepath-serve-webhook")

    async def _work(self) -> None:
        while self.queue:
            item = self.queue[0]
            attempt = 1
            while not await self._try(item, attempt, last=attempt > len(PAUSES)):
                await self._pause(PAUSES[attempt - 1])
                attempt += 1
            if self.queue and self.queue[0] is item:  # else it was dropped meanwhile
                self.queue.popleft()

    async def _try(self, item: tuple[str, str, str, bytes], attempt: int, *, last: bool) -> bool:
        """Send it once; True when there is nothing more to try."""
        try:
            await post_signed(self.hook.address, self.hook.secret, item[0], item[3])
        except PostFailed as failed:
            over = last or not failed.again
            self._report(item, attempt, "given up" if over else "retried", str(failed))
            return over
        self._report(item, attempt, "delivered")
        return True

    def _report(self, item: tuple[str, str, str, bytes], attempts: int, status: str, why: str = "") -> None:
        name, rule, run_id, _ = item
        self._note(
            Delivery(
                id=name,
                url=self.hook.where,
                kind=rule,
                run_id=run_id,
                time=round(time.time(), 3),
                attempts=attempts,
                status=status,
                why=why,
            )
        )

    async def close(self) -> None:
        """Wait a moment for the rest, then give it up."""
        if self._task is None:
            return
        await asyncio.wait({self._task}, timeout=FAREWELL)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        while self.queue:
            self._report(self.queue.popleft(), 0, "dropped", "the server has ended")


# --- from a file ------------------------------------------------------------------------------------------------------


def read_webhooks(path: Path, environ: Mapping[str, str], read_secret: Callable[[Path], str]) -> tuple[Webhook, ...]:
    """The webhooks in a file that the operator has named; raises `ConfigurationError`."""
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"--webhooks: {path} cannot be read: {error}") from None
    entries = given.pop("webhook", [])
    if given or not isinstance(entries, list) or not entries:
        raise ConfigurationError(f"--webhooks: {path} must have [[webhook]] tables, and nothing else")
    return tuple(
        _read_webhook(f"--webhooks: {path}: webhook {place}", one, path, environ, read_secret)
        for place, one in enumerate(entries, 1)
    )


def _read_webhook(
    wrong: str, given: Any, path: Path, environ: Mapping[str, str], read_secret: Callable[[Path], str]
) -> Webhook:
    keys = Webhook.__struct_fields__
    unknown = sorted(set(given) - set(keys)) if isinstance(given, dict) else ["as it must be a table"]
    if unknown:
        raise ConfigurationError(f"{wrong} has no key {unknown[0]!r:.40}; there are {', '.join(keys)}")
    kind, _, where = str(given.get("secret", "")).partition(":")
    if kind == "env":
        secret = environ.get(where, "")
        if not secret:
            raise ConfigurationError(f"{wrong}: the variable {where!r:.80} of its secret is not set")
    elif kind == "file":
        secret = read_secret(path.parent / Path(where).expanduser())
    else:
        raise ConfigurationError(f'{wrong}: secret must be "env:NAME" or "file:PATH", never the secret itself')
    for name in ("on", "agents"):
        if name in given and (
            not isinstance(given[name], list) or not all(isinstance(one, str) for one in given[name])
        ):
            raise ConfigurationError(f"{wrong}: {name} must be a list of words, not {given[name]!r:.80}")
    for name in ("content", "private"):
        if not isinstance(given.get(name, False), bool):
            raise ConfigurationError(f"{wrong}: {name} must be true or false, not {given[name]!r:.80}")
    lists = {name: tuple(given[name]) for name in ("on", "agents") if name in given}
    try:
        return Webhook(**{**given, **lists, "url": given.get("url"), "secret": secret})
    except ConfigurationError as error:
        raise ConfigurationError(f"{wrong}: {error}") from None
