"""The card of a session: what a catalog finds it by, taken from its summary, and the checks on what people write."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from glidepath._wire import Value, WireError, loads, replace
from glidepath.spi import Entry, SessionPage, SessionQuery
from glidepath.values import EXACT, ConfigurationError

if TYPE_CHECKING:
    from glidepath.run import Run
    from glidepath.sessions.session import Session

UNFINISHED = "unfinished"
"""The outcome to ask for when a session's last run has none yet."""
IMPORTING = "importing"
"""In the summary of a copy until it is complete: without its last record it has authority."""
COPY = ".fork-"
"""In the ids of copies that nobody has named."""
LAST = chr(0x10FFFF)  # comes after every id that begins in the same way
MAX_PAGE = 10_000
_MAX_TAG, _MAX_TAGS, _MAX_TITLE = 64, 32, 200
_IN_TAGS = "-_.:/@+="
_TASK = 200


class SessionSummary(Value, frozen=True, kw_only=True):
    """What is known about a session without reading its journal."""

    root: bool = True
    state: str | None = None
    outcome: str | None = None
    agent: str | None = None
    user: str | None = None
    cost: float | None = None
    task: str = ""


def make_summary(summary: Mapping[str, Any]) -> SessionSummary:
    """The card for this summary, whatever it holds: an imported one may hold anything."""
    return SessionSummary(
        root=not summary.get("parent"),
        state=_word(summary.get("state") or summary.get("status")),
        outcome=_word(summary.get("outcome")),
        agent=_word(summary.get("agent") or summary.get("team")),
        user=_word(summary.get("user")),
        cost=_dollars(summary.get("cost")),
        task=str(summary.get("task") or "")[:_TASK],
    )


def summary_in(text: bytes | str) -> dict[str, Any]:
    """The summary that is written here; an empty one where there is none, whatever else is there."""
    try:
        found = loads(text)
    except (WireError, ValueError, TypeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def is_half_copy(entry: Entry) -> bool:
    """True for a copy that is not complete: somebody is making it, or died while making it."""
    return bool(entry.summary.get(IMPORTING)) or (not entry.head and COPY in entry.session_id)


def sum_session(past: Session | None, run: Run) -> dict[str, Any]:
    """What all runs of a session have used, for the summary of one that is not its first; empty for the first."""
    if past is None:
        return {}
    totals, last = past.totals, past.last
    leg = last if last is not None and last.run_id == run.run_id else None  # a resumed run is in the totals already
    earlier = totals.runs - (leg is not None)
    if not earlier:
        return {}
    own = run.cost()
    cost = None if own is None and totals.cost is None else EXACT.add(totals.cost or 0, own or 0)
    turns, tokens = totals.iterations + run.turn.iterations, run.meter.tokens - run.terms.carried.tokens
    tokens += totals.usage.total
    if leg is not None:
        turns, tokens = turns - leg.iterations, tokens - leg.usage.total
        cost = None if cost is None else cost - (leg.cost or 0)
    kept = {"runs": earlier + 1, "turns": turns, "tokens": tokens, "cost": None if cost is None else str(cost)}
    return {"session": kept}


def read_figures(summary: Mapping[str, Any]) -> Mapping[str, Any]:
    """The turns, tokens and cost of a whole session, from its summary; an imported one may hold anything."""
    whole = summary.get("session")
    last = {"turns": summary.get("iterations"), "tokens": summary.get("tokens"), "cost": summary.get("cost")}
    return whole if isinstance(whole, dict) else last


def is_child(entry: Entry) -> bool:
    """True for the session of a child: it belongs to its parent's."""
    return bool(entry.summary.get("parent"))


def is_team(entry: Entry) -> bool:
    """True for the journal of a team, whose members run in sessions of their own."""
    return entry.summary.get("kind") == "team"


def is_evaluation(entry: Entry) -> bool:
    """True for the journal of an evaluation, whose cases run in sessions of their own."""
    return entry.summary.get("kind") == "eval"


def is_group(entry: Entry) -> bool:
    """True for a journal that is of no run itself: its runs have sessions of their own."""
    return is_team(entry) or is_evaluation(entry)


def map_children(entries: Iterable[Entry]) -> dict[str, list[str]]:
    """The children of every session that has some, and theirs, in one pass."""
    found: dict[str, list[str]] = {}
    for entry in entries:
        above = entry.session_id
        while "/" in above and (is_child(entry) or not entry.head):
            above = above.rpartition("/")[0]
            found.setdefault(above, []).append(entry.session_id)
    return found


def _word(value: object) -> str | None:
    return value[:_TASK] if isinstance(value, str) and value else None


def _dollars(value: object) -> float | None:
    try:
        cost = float(Decimal(str(value))) if isinstance(value, str | int | float) else None
    except (InvalidOperation, ValueError, OverflowError):
        return None
    return cost if cost is not None and abs(cost) < 1e15 else None  # noqa: PLR2004 - more than there is, or nan


# --- what people write ---------------------------------------------------------------------------------------------


def normalize_tags(tags: object) -> tuple[str, ...]:
    """These tags, sorted, each once; raises `ConfigurationError` naming the invalid one."""
    if isinstance(tags, str | bytes) or not isinstance(tags, Iterable):
        raise ConfigurationError(f"tags must be a list of words, such as ['billing', 'team:a'], not {tags!r:.80}")
    found = sorted({check_tag(tag) for tag in tags})
    if len(found) > _MAX_TAGS:
        raise ConfigurationError(f"tags: a session has at most {_MAX_TAGS}, not {len(found)}; remove some")
    return tuple(found)


def check_tag(tag: object) -> str:
    """This tag; raises `ConfigurationError`."""
    if not isinstance(tag, str) or not tag or len(tag) > _MAX_TAG:
        raise ConfigurationError(f"tag must be a word of 1 to {_MAX_TAG} characters, not {tag!r:.80}")
    odd = next((sign for sign in tag if not (sign.isalnum() or sign in _IN_TAGS)), None)
    if odd is not None:
        raise ConfigurationError(f"tag {tag!r:.80} contains {odd!r}; use letters, digits and {' '.join(_IN_TAGS)}")
    return tag


def check_title(title: object) -> str:
    """This title, on one line; raises `ConfigurationError`."""
    if not isinstance(title, str):
        raise ConfigurationError(f"title must be a str, not {title!r:.80}")
    try:
        title.encode()
    except UnicodeEncodeError as error:
        raise ConfigurationError(f"title has a lone surrogate at position {error.start}; remove it") from None
    line = " ".join(title.replace("\0", " ").split())
    if len(line) > _MAX_TITLE:
        raise ConfigurationError(f"title has {len(line)} characters; shorten it to {_MAX_TITLE}")
    return line


def check_query(query: object) -> tuple[SessionQuery, tuple[float, str] | None]:
    """The query and where its page begins; raises `ConfigurationError` naming the field that is wrong."""
    if not isinstance(query, SessionQuery):
        raise ConfigurationError(f"find takes a SessionQuery, not {query!r:.80}")
    for name in ("prefix", "text"):
        _must_be(query, name, str)
    for name in ("state", "outcome", "agent", "user", "tag", "cursor"):
        _must_be(query, name, str, None)
    for name in ("before", "after"):
        _must_be(query, name, int, float, None)
    for name in ("min_cost", "max_cost"):
        _must_be(query, name, Decimal, int, float, None)
    if not isinstance(query.limit, int) or not 1 <= query.limit <= MAX_PAGE:
        raise ConfigurationError(f"limit must be a whole number from 1 to {MAX_PAGE}, not {query.limit!r:.80}")
    return replace(query, text=query.text.casefold()), _start(query.cursor)


def _must_be(query: SessionQuery, name: str, *kinds: type | None) -> None:
    value = getattr(query, name)
    allowed = tuple(kind for kind in kinds if kind is not None)
    if (value is None and None in kinds) or (isinstance(value, allowed) and not isinstance(value, bool)):
        if isinstance(value, str) and ("\0" in value or any("\ud800" <= sign <= "\udfff" for sign in value)):
            raise ConfigurationError(
                f"{name} must be text without NUL characters and lone surrogates, not {value!r:.80}"
            )
        if isinstance(value, int | float | Decimal) and value != value:  # noqa: PLR0124 - that is what NaN is
            raise ConfigurationError(f"{name} must be a number, not {value}")
        return
    raise ConfigurationError(f"{name} must be a {' or a '.join(kind.__name__ for kind in allowed)}, not {value!r:.80}")


def _start(cursor: str | None) -> tuple[float, str] | None:
    if cursor is None:
        return None
    time, sign, session_id = cursor.partition("|")
    try:
        if sign:
            return float.fromhex(time), session_id
    except (ValueError, OverflowError):
        pass
    raise ConfigurationError(f"cursor {cursor!r:.80} is not from an earlier page; leave it out to begin with the first")


# --- without SQL ---------------------------------------------------------------------------------------------------


def cursor_after(updated: float, session_id: str) -> str:
    """Where the next page begins."""
    return f"{float(updated).hex()}|{session_id}"


def page_of(entries: Iterable[Entry], query: SessionQuery) -> SessionPage:
    """The page of these entries that a query asks for; raises `ConfigurationError`."""
    query, start = check_query(query)
    found = [entry for entry in entries if _matches(entry, query)]
    found.sort(key=_place)
    if start is not None:
        begin = (-start[0], start[1])
        found = [entry for entry in found if _place(entry) > begin]
    return make_page(found[: query.limit + 1], query.limit)


def make_page(found: Sequence[Entry], limit: int, times: Sequence[float] | None = None) -> SessionPage:
    """A page made of up to one more than its limit; `times` are those by which they are ordered."""
    page = tuple(found[:limit])
    if len(found) <= limit:
        return SessionPage(page)
    last = page[-1]
    return SessionPage(page, cursor_after(last.updated if times is None else times[limit - 1], last.session_id))


def _place(entry: Entry) -> tuple[float, str]:
    return -entry.updated, entry.session_id


def _matches(entry: Entry, query: SessionQuery) -> bool:
    known = make_summary(entry.summary)
    wanted = known.outcome if query.outcome is None else None if query.outcome == UNFINISHED else query.outcome
    return (
        entry.session_id.startswith(query.prefix)
        and (known.root or not query.roots)
        and known.outcome == wanted
        and query.state in (None, known.state)
        and query.agent in (None, known.agent)
        and query.user in (None, known.user)
        and (query.tag is None or query.tag in entry.tags)
        and (query.min_cost is None or (known.cost is not None and known.cost >= float(query.min_cost)))
        and (query.max_cost is None or (known.cost is not None and known.cost <= float(query.max_cost)))
        and (query.before is None or entry.updated < query.before)
        and (query.after is None or entry.updated >= query.after)
        and query.text in make_search_text(entry.session_id, entry.title, known.task)
    )


def make_search_text(session_id: str, title: str, task: str) -> str:
    """What a text is looked for in."""
    return f"{title}\n{task}\n{session_id}".casefold()
