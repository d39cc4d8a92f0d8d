"""Sessions: a conversation that outlives its runs, and the stores that keep it."""

from typing import TYPE_CHECKING, Any

from glidepath._lazy import lazy_attributes
from glidepath.sessions.session import Session

if TYPE_CHECKING:
    from glidepath.sessions.memory import MemoryStore
    from glidepath.sessions.postgres import PostgresStore
    from glidepath.sessions.redaction import RedactingStore
    from glidepath.sessions.sqlite import SqliteStore

__all__ = [
    "CostRow",
    "MemoryStore",
    "PostgresStore",
    "RedactingStore",
    "Session",
    "SqliteStore",
    "annotate",
    "backup",
    "compact",
    "decide",
    "export_journal",
    "find_sessions",
    "import_journal",
    "list_runs",
    "prune",
    "read_journal",
    "remove_sessions",
    "repair",
    "report_costs",
    "send",
    "stop",
    "verify",
]

_HOMES = {
    "MemoryStore": "memory",
    "PostgresStore": "postgres",
    "RedactingStore": "redaction",
    "SqliteStore": "sqlite",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _HOMES:
        return getattr(import_module(f"glidepath.sessions.{_HOMES[name]}"), name)
    if name == "SegmentStore":
        raise _make_removed_error("there is no SegmentStore any more: use SqliteStore(path), with the path of a file")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _make_removed_error(advice: str) -> Exception:
    """What a name that is gone raises. `hasattr` needs an AttributeError, whose words an import would swallow."""
    import sys
    from opcode import opmap

    caller: Any = sys._getframe(1)  # noqa: SLF001 - documented
    while caller.f_globals.get("__name__") in (__name__, "glidepath._lazy"):  # how many of ours there are may change
        caller = caller.f_back
    importing = caller.f_code.co_code[caller.f_lasti] == opmap["IMPORT_FROM"]
    return ImportError(advice, name=__name__) if importing else AttributeError(advice)


# What other packages use, imported when it is first asked for.
if TYPE_CHECKING:
    from glidepath.sessions.archive import (
        StoredJournal as StoredJournal,
        export_journal as export_journal,
        import_journal as import_journal,
        list_runs as list_runs,
        parse_export as parse_export,
        read_journal as read_journal,
        stop as stop,
    )
    from glidepath.sessions.chain import (
        SCHEMA as SCHEMA,
        JournalRecord as JournalRecord,
        check_schema as check_schema,
        hash_commit as hash_commit,
        link as link,
        make_layout_error as make_layout_error,
        read as read,
        verify_commits as verify_commits,
    )
    from glidepath.sessions.checkpoints import (
        add_measures as add_measures,
        make_next_base as make_next_base,
        read_folded_state as read_folded_state,
    )
    from glidepath.sessions.child_sessions import family_of as family_of, refuse_unfinished as refuse_unfinished
    from glidepath.sessions.costs import CostRow as CostRow, report_costs as report_costs
    from glidepath.sessions.event_files import events_folder as events_folder
    from glidepath.sessions.finding import (
        EVALUATION as EVALUATION,
        TEAM as TEAM,
        annotate as annotate,
        each_session as each_session,
        entry_of as entry_of,
        find_expired as find_expired,
        find_sessions as find_sessions,
        prune as prune,
        remove_sessions as remove_sessions,
    )
    from glidepath.sessions.fold import (
        HOOK as HOOK,
        Began as Began,
        Child as Child,
        Folded as Folded,
        Intent as Intent,
        Opened as Opened,
        Reserved as Reserved,
        Used as Used,
    )
    from glidepath.sessions.foreign_mark import (
        GATE as GATE,
        RECORDING as RECORDING,
        TAPE_END as TAPE_END,
        TAPE_HEAD as TAPE_HEAD,
        TAPED_CALL as TAPED_CALL,
        foreign_program as foreign_program,
        is_foreign as is_foreign,
        is_recording as is_recording,
        refuse_foreign as refuse_foreign,
        refuse_foreign_entry as refuse_foreign_entry,
    )
    from glidepath.sessions.forking import Fork as Fork, count_turns as count_turns, fork as fork, rewind as rewind
    from glidepath.sessions.group_commit import GroupCommit as GroupCommit, StoreJob as StoreJob
    from glidepath.sessions.inbox import (
        control_in as control_in,
        decide as decide,
        find_approved_calls as find_approved_calls,
        note_control as note_control,
        read_decisions as read_decisions,
        send as send,
    )
    from glidepath.sessions.journal_recorder import JournalRecorder as JournalRecorder
    from glidepath.sessions.journal_writer import (
        Items as Items,
        JournalWriter as JournalWriter,
        claim_session as claim_session,
    )
    from glidepath.sessions.named_store import as_store as as_store
    from glidepath.sessions.owner import (
        LEASE as LEASE,
        is_alive as is_alive,
        is_claimable as is_claimable,
        is_of_this_process as is_of_this_process,
        this_owner as this_owner,
    )
    from glidepath.sessions.postgres import make_tables as make_tables
    from glidepath.sessions.postgres_pool import (
        ConnectionPool as ConnectionPool,
        PassingError as PassingError,
        PostgresConnection as PostgresConnection,
        retry_through_restart as retry_through_restart,
        translate_errors as translate_errors,
    )
    from glidepath.sessions.postgres_transactions import (
        PostgresTransaction as PostgresTransaction,
        check_statement as check_statement,
    )
    from glidepath.sessions.recover import charge_reservation as charge_reservation, open_calls as open_calls
    from glidepath.sessions.redaction import (
        Hook as Hook,
        RedactingStore as RedactingStore,
        Redactor as Redactor,
        redactor_of as redactor_of,
    )
    from glidepath.sessions.repairing import repair as repair
    from glidepath.sessions.schema_compat import decode_leniently as decode_leniently, message_of as message_of
    from glidepath.sessions.session import check_session_id as check_session_id
    from glidepath.sessions.session_ids import (
        digest_of as digest_of,
        home_of as home_of,
        is_keepable as is_keepable,
    )
    from glidepath.sessions.sqlite_file import SqliteFile as SqliteFile, default_file as default_file
    from glidepath.sessions.state_changes import MARKED as MARKED, Counters as Counters
    from glidepath.sessions.store_calls import await_store as await_store, call_store as call_store
    from glidepath.sessions.summaries import (
        is_evaluation as is_evaluation,
        is_group as is_group,
        is_half_copy as is_half_copy,
        is_team as is_team,
        normalize_tags as normalize_tags,
    )
    from glidepath.sessions.upkeep import backup as backup, compact as compact
    from glidepath.sessions.verifying import verify as verify

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(
        __name__,
        __getattr__,
        archive=(
            "list_runs",
            "parse_export",
            "StoredJournal",
            "export_journal",
            "import_journal",
            "read_journal",
            "stop",
        ),
        chain=(
            "hash_commit",
            "JournalRecord",
            "SCHEMA",
            "check_schema",
            "link",
            "make_layout_error",
            "read",
            "verify_commits",
        ),
        checkpoints=("add_measures", "make_next_base", "read_folded_state"),
        child_sessions=("family_of", "refuse_unfinished"),
        event_files=("events_folder",),
        costs=("CostRow", "report_costs"),
        finding=(
            "EVALUATION",
            "TEAM",
            "annotate",
            "each_session",
            "entry_of",
            "find_expired",
            "find_sessions",
            "prune",
            "remove_sessions",
        ),
        fold=("Began", "Child", "Folded", "HOOK", "Intent", "Opened", "Reserved", "Used"),
        foreign_mark=(
            "GATE",
            "RECORDING",
            "TAPED_CALL",
            "TAPE_END",
            "TAPE_HEAD",
            "foreign_program",
            "is_foreign",
            "is_recording",
            "refuse_foreign",
            "refuse_foreign_entry",
        ),
        forking=("count_turns", "Fork", "fork", "rewind"),
        group_commit=("GroupCommit", "StoreJob"),
        inbox=("control_in", "decide", "find_approved_calls", "note_control", "read_decisions", "send"),
        journal_recorder=("JournalRecorder",),
        journal_writer=("Items", "JournalWriter", "claim_session"),
        named_store=("as_store",),
        owner=("is_of_this_process", "LEASE", "is_alive", "is_claimable", "this_owner"),
        postgres=("make_tables",),
        postgres_pool=(
            "ConnectionPool",
            "PassingError",
            "PostgresConnection",
            "retry_through_restart",
            "translate_errors",
        ),
        postgres_transactions=("PostgresTransaction", "check_statement"),
        recover=("charge_reservation", "open_calls"),
        redaction=("RedactingStore", "Hook", "Redactor", "redactor_of"),
        repairing=("repair",),
        schema_compat=("decode_leniently", "message_of"),
        session=("check_session_id",),
        session_ids=("digest_of", "home_of", "is_keepable"),
        sqlite_file=("SqliteFile", "default_file"),
        state_changes=("Counters", "MARKED"),
        store_calls=("await_store", "call_store"),
        summaries=("is_evaluation", "is_group", "is_half_copy", "is_team", "normalize_tags"),
        upkeep=("backup", "compact"),
        verifying=("verify",),
    )
