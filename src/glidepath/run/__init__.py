"""One run: its state, its plan, its watchdog."""

from typing import TYPE_CHECKING

from glidepath._lazy import lazy_attributes
from glidepath.run.abandoned import await_until_cancelled
from glidepath.run.cancel import CancelToken
from glidepath.run.hooks import HookFault, Opinion, ask_until_opinion, make_context, report, take_all, to_read
from glidepath.run.interrupting import await_interruptibly, await_interruptibly_within
from glidepath.run.interrupts import Interrupt, LetGo, Signal, Stopped, Why
from glidepath.run.nested import INHERIT, CallScope, Inherit
from glidepath.run.plan import Ending, Plan, Touchdown
from glidepath.run.snapshot import Offspring, Resumption, restore_meter, snapshot_of
from glidepath.run.state import Run
from glidepath.run.stream import HIGH_WATER, RunStream
from glidepath.run.watch import Watch
from glidepath.values import Verdict

if TYPE_CHECKING:
    from glidepath.run.decisions import Decision, answer, approve, deny

__all__ = [
    "HIGH_WATER",
    "INHERIT",
    "CallScope",
    "CancelToken",
    "Decision",
    "Ending",
    "HookFault",
    "Inherit",
    "Interrupt",
    "LetGo",
    "Offspring",
    "Opinion",
    "Plan",
    "Resumption",
    "Run",
    "RunStream",
    "Signal",
    "Stopped",
    "Touchdown",
    "Verdict",
    "Watch",
    "Why",
    "answer",
    "approve",
    "ask_until_opinion",
    "await_interruptibly",
    "await_interruptibly_within",
    "await_until_cancelled",
    "deny",
    "make_context",
    "report",
    "restore_meter",
    "snapshot_of",
    "take_all",
    "to_read",
]

if TYPE_CHECKING:
    from glidepath.run.resilience import (
        LONGEST_RETRY_AFTER as LONGEST_RETRY_AFTER,
        MODEL_FAILURES as MODEL_FAILURES,
        TOOL_FAILURES as TOOL_FAILURES,
    )

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(__name__, decisions=("Decision", "answer", "approve", "deny"))

# What other packages use, imported when it is first asked for.
if TYPE_CHECKING:
    from glidepath.run.account import (
        Account as Account,
        charge_earlier as charge_earlier,
        dispute as dispute,
        usage_since as usage_since,
    )
    from glidepath.run.asyncio_privates import (
        awaited_by as awaited_by,
        callback_of as callback_of,
        close_pipes as close_pipes,
        run_handle as run_handle,
        set_running as set_running,
    )
    from glidepath.run.decisions import make_unknown_decision as make_unknown_decision
    from glidepath.run.error_log import log_error as log_error
    from glidepath.run.event_emitter import EventEmitter as EventEmitter
    from glidepath.run.event_loop import (
        check_thread_is_free as check_thread_is_free,
        find_event_loop as find_event_loop,
        make_no_loop_error as make_no_loop_error,
    )
    from glidepath.run.fingerprint import Fingerprint as Fingerprint, find_differences as find_differences
    from glidepath.run.hidden_messages import drop_unsendable as drop_unsendable
    from glidepath.run.hooks import ToRead as ToRead, check_survivable as check_survivable
    from glidepath.run.interrupting import run_uninterrupted as run_uninterrupted
    from glidepath.run.interrupts import Patience as Patience, wake_waiter as wake_waiter
    from glidepath.run.kill_switch_polling import (
        KillSwitchPoller as KillSwitchPoller,
        KillSwitchPollers as KillSwitchPollers,
        SpendGate as SpendGate,
    )
    from glidepath.run.ledger import (
        Caps as Caps,
        Meter as Meter,
        Price as Price,
        Reservation as Reservation,
        dollars as dollars,
        pico as pico,
    )
    from glidepath.run.moving import move_meters as move_meters, note_limits as note_limits
    from glidepath.run.nested import (
        ASKED as ASKED,
        BLOCKED as BLOCKED,
        LostChild as LostChild,
        Post as Post,
        attach_child as attach_child,
        current_scope as current_scope,
        launch as launch,
        leave_scope as leave_scope,
        link_tokens as link_tokens,
        recall as recall,
        restore_scope as restore_scope,
        run_on_own_loop as run_on_own_loop,
        run_on_parent_loop as run_on_parent_loop,
        wait_for_budget as wait_for_budget,
    )
    from glidepath.run.origins import (
        mark_tainted as mark_tainted,
        note_origins as note_origins,
        place_here as place_here,
        sources_of_call as sources_of_call,
        sources_read_by_programs as sources_read_by_programs,
        transcripts_above as transcripts_above,
    )
    from glidepath.run.paused_children import (
        PausedChild as PausedChild,
        find_call_of_child as find_call_of_child,
        find_paused_child as find_paused_child,
        name_below as name_below,
    )
    from glidepath.run.plan import Route as Route
    from glidepath.run.prefix import broke_prefix as broke_prefix, has_same_prefix as has_same_prefix
    from glidepath.run.question import USUAL_REASON as USUAL_REASON, question_rows as question_rows
    from glidepath.run.resilience import (
        LONGEST_RETRY_AFTER as LONGEST_RETRY_AFTER,
        MARK_EVERY as MARK_EVERY,
        MODEL_FAILURES as MODEL_FAILURES,
        PROBE_EVERY as PROBE_EVERY,
        TOOL_FAILURES as TOOL_FAILURES,
        Admission as Admission,
        Breaker as Breaker,
        BreakerState as BreakerState,
        Health as Health,
        is_mistake as is_mistake,
        is_too_long_a_wait as is_too_long_a_wait,
        model_breaker as model_breaker,
        random_fraction as random_fraction,
        retry_delay as retry_delay,
        tool_breaker as tool_breaker,
    )
    from glidepath.run.revealing import (
        argument_rows as argument_rows,
        call_line as call_line,
        escape_invisible as escape_invisible,
        fold_line as fold_line,
        mask_controls as mask_controls,
        size_of as size_of,
        width_of as width_of,
        wrap_lines as wrap_lines,
    )
    from glidepath.run.run_inputs import (
        find_after_guards as find_after_guards,
        find_before_guards as find_before_guards,
    )
    from glidepath.run.run_transcript import (
        AFTER_MODEL as AFTER_MODEL,
        AFTER_TOOLS as AFTER_TOOLS,
        IN_FLIGHT as IN_FLIGHT,
        PRE_FLIGHT as PRE_FLIGHT,
    )
    from glidepath.run.seams import BookedCall as BookedCall, Spawner as Spawner
    from glidepath.run.snapshot import (
        KEPT as KEPT,
        PARTS as PARTS,
        freeze_field as freeze_field,
        guard_state as guard_state,
        name_configured_model as name_configured_model,
        on_budget as on_budget,
        place as place,
        restore_disputed as restore_disputed,
        sum_child_spending as sum_child_spending,
        sum_fallback_spending as sum_fallback_spending,
    )
    from glidepath.run.state import open_state as open_state
    from glidepath.run.stream import PartialOutput as PartialOutput, SpokenText as SpokenText
    from glidepath.run.transcript_stats import (
        LONG as LONG,
        Measured as Measured,
        TranscriptStats as TranscriptStats,
        characters_of as characters_of,
        is_in_order as is_in_order,
        measure_messages as measure_messages,
    )
    from glidepath.run.waiting import Amount as Amount, Refusal as Refusal, Waiting as Waiting, in_turn as in_turn
    from glidepath.run.watch import interrupt_by_hand as interrupt_by_hand

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(
        __name__,
        __getattr__,
        account=("Account", "charge_earlier", "dispute", "usage_since"),
        asyncio_privates=("awaited_by", "callback_of", "close_pipes", "run_handle", "set_running"),
        decisions=("make_unknown_decision",),
        error_log=("log_error",),
        event_emitter=("EventEmitter",),
        event_loop=("check_thread_is_free", "find_event_loop", "make_no_loop_error"),
        fingerprint=("Fingerprint", "find_differences"),
        hidden_messages=("drop_unsendable",),
        hooks=("ToRead", "check_survivable"),
        interrupting=("run_uninterrupted",),
        interrupts=("Patience", "wake_waiter"),
        kill_switch_polling=("KillSwitchPoller", "KillSwitchPollers", "SpendGate"),
        ledger=("Caps", "Meter", "Price", "Reservation", "dollars", "pico"),
        moving=("move_meters", "note_limits"),
        nested=(
            "ASKED",
            "BLOCKED",
            "LostChild",
            "Post",
            "attach_child",
            "current_scope",
            "launch",
            "leave_scope",
            "link_tokens",
            "recall",
            "restore_scope",
            "run_on_own_loop",
            "run_on_parent_loop",
            "wait_for_budget",
        ),
        origins=(
            "mark_tainted",
            "note_origins",
            "place_here",
            "sources_of_call",
            "sources_read_by_programs",
            "transcripts_above",
        ),
        paused_children=("PausedChild", "find_call_of_child", "find_paused_child", "name_below"),
        plan=("Route",),
        prefix=("broke_prefix", "has_same_prefix"),
        question=("USUAL_REASON", "question_rows"),
        resilience=(
            "Admission",
            "Breaker",
            "BreakerState",
            "Health",
            "LONGEST_RETRY_AFTER",
            "MARK_EVERY",
            "MODEL_FAILURES",
            "PROBE_EVERY",
            "TOOL_FAILURES",
            "is_mistake",
            "is_too_long_a_wait",
            "model_breaker",
            "random_fraction",
            "retry_delay",
            "tool_breaker",
        ),
        revealing=(
            "argument_rows",
            "call_line",
            "escape_invisible",
            "fold_line",
            "mask_controls",
            "size_of",
            "width_of",
            "wrap_lines",
        ),
        run_inputs=("find_after_guards", "find_before_guards"),
        run_transcript=("AFTER_MODEL", "AFTER_TOOLS", "IN_FLIGHT", "PRE_FLIGHT"),
        seams=("BookedCall", "Spawner"),
        snapshot=(
            "KEPT",
            "PARTS",
            "freeze_field",
            "guard_state",
            "name_configured_model",
            "on_budget",
            "place",
            "restore_disputed",
            "sum_child_spending",
            "sum_fallback_spending",
        ),
        state=("open_state",),
        stream=("PartialOutput", "SpokenText"),
        transcript_stats=("LONG", "Measured", "TranscriptStats", "characters_of", "is_in_order", "measure_messages"),
        waiting=("Amount", "Refusal", "Waiting", "in_turn"),
        watch=("interrupt_by_hand",),
    )
