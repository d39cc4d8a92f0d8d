"""The conversation: the transcript and the model's view of it, the turn that is open, and the answer so far."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Final

from glidepath._wire import Record
from glidepath.run.hidden_messages import blank_stale_messages, drop_unsendable
from glidepath.run.transcript_stats import TranscriptStats, characters_of
from glidepath.run.unsaved import Unsaved
from glidepath.spi import ModelRequest
from glidepath.values import (
    TRANSITIONS,
    AgentState,
    AssistantMessage,
    Media,
    Message,
    PendingCall,
    Program,
    StopReason,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    is_visible,
)

PRE_FLIGHT, AFTER_MODEL, AFTER_TOOLS = "pre_flight", "after_model", "after_tools"
IN_FLIGHT = "in_flight"  # between checkpoints, for a constraint that is asked on a clock
_NOTHING: Final[Any] = MappingProxyType({})  # for all, until there is something to be kept


class Transcript(Record, eq=False, kw_only=True):
    """Every message of the run, what the model sees of them, and what will join them at the next turn.

    The transcript only grows: requests show it, or a view of it, without copying.
    """

    SURVIVES: ClassVar[tuple[str, ...]] = ("first_new", "pinned", "later", "waiting")

    unsaved: Unsaved
    messages: list[Message]
    sizes: list[int]
    view: list[Message]
    """What the model sees: the same list, until they must differ."""
    apart: list[Message] | None = None
    """The view, once it is another list than the transcript."""
    view_tokens: int = 0
    anchor: int = 0
    """What the view's size is off the provider's own count."""
    first_new: int = 0
    pinned: tuple[int, ...] = ()
    call_ids: dict[str, None]
    """The ids of all calls in the transcript: a dict, which takes half the room of a set."""
    stale: frozenset[int] = frozenset()
    """Where the transcript has notices of earlier runs: they were for those runs, and the model does not see them."""
    later: tuple[tuple[str, str, str], ...] = ()
    """What to tell the model at the next turn: reason, source, text."""
    waiting: tuple[Message, ...] = ()
    """Steering that waits for the next turn."""
    shown: Sequence[Message] | None = None
    """The transcript as hooks are shown it; made for the first that asks."""
    sent_view: Sequence[Message] = ()
    """What the last request showed, where context transforms had changed it."""
    sent_own: int = 0
    """How much of the view the last request showed, where they had not."""
    prefix_breaks: tuple[str, ...] = ()
    """What has changed messages that were sent before."""
    weighed_view: Sequence[Message] = ()
    weighed_messages: int = 0
    weighed_characters: int = 0
    """How many messages of `weighed_view` were counted, and their characters."""
    picture_bytes: int = 0
    """Bytes of the pictures in the view, an address counted as one; 0: there are none."""
    weighed_media: tuple[Any, int, Media] = (None, 0, Media())
    """The view whose sound and pictures were counted, how many messages of it, and their tokens."""
    most_pictures: int = 1 << 60
    """How many a view may have, once some had to be left out."""
    checkpoint: Any = None
    """What a model has written to stand for the beginning of the transcript in the view."""
    failed_checkpoints: int = 0
    """How many in a row did not help."""
    done_calls: Any = None
    """The calls that are no longer in view."""
    mixed: bool = False
    """More than one vendor has answered: each sees only the reasoning items of its own."""

    # --- beginning --------------------------------------------------------------------------------------------

    def open(self, survey: TranscriptStats, first_new: int) -> None:
        """Work out what the messages that are there already mean for this run, whose own begin at `first_new`."""
        self.view_tokens, characters = survey.tokens, survey.characters
        notices = [place for place in survey.notices if place < first_new]
        if notices:
            self.stale = frozenset(notices)
            self.view_tokens -= sum([survey.sizes[place] for place in notices])
            characters -= sum([characters_of(self.messages[place]) for place in notices])
        if survey.unsent:
            self.view = self.apart = drop_unsendable(self.list_shapeable()[0])
        elif notices:
            self.view = self.apart = self.messages.copy()
            for place in reversed(notices):
                del self.apart[place]
        if not survey.unsent:
            self.record_weight(self.view, characters)
        self.picture_bytes = survey.pictures
        self.call_ids = survey.call_ids.copy()
        if survey.first_task is not None:
            self.pinned = (survey.first_task,)
            self.unsaved["pinned"] = None

    # --- growing ----------------------------------------------------------------------------------------------

    def insert(self, message: Message, size: int, behind: int) -> None:
        """Put a message where it belongs: in front of the last `behind`."""
        self.messages.insert(len(self.messages) - behind, message)
        self.sizes.insert(len(self.sizes) - behind, size)
        if self.apart is not None:
            self.apart.insert(len(self.apart) - behind, message)
        self.view_tokens += size

    def remember_call(self, call_id: str) -> None:
        """No other call may have this id."""
        self.call_ids[call_id] = None

    # --- waiting for the next turn ----------------------------------------------------------------------------

    def queue_notice(self, reason: str, source: str, text: str) -> None:
        """Tell the model this at the next turn."""
        self.later += ((reason, source, text),)
        self.unsaved["later"] = None

    def drop_notice(self, reason: str, source: str) -> None:
        """The model need not be told this any more."""
        self.later = tuple([one for one in self.later if one[:2] != (reason, source)])
        self.unsaved["later"] = None

    def wait(self, messages: Sequence[Message]) -> None:
        """Messages from outside wait for the next turn."""
        self.waiting += tuple(messages)
        self.unsaved["waiting"] = None

    def take_back(self, gone: frozenset[int]) -> None:
        """These messages, by identity, do not wait any longer."""
        self.waiting = tuple([one for one in self.waiting if id(one) not in gone])
        self.unsaved["waiting"] = None

    def take_unsent_notices(self) -> list[Message]:
        """What is left when the run ends: nobody has seen it."""
        notices = [UserMessage(text, internal=True, reason=reason) for reason, _, text in self.later]
        return [*self.waiting, *notices]

    # --- the view ---------------------------------------------------------------------------------------------

    def input_tokens(self) -> int:
        """The size of the next prompt: what the provider last counted, and our estimate of what came since."""
        return self.anchor + self.view_tokens

    def learn(self, anchor: int) -> None:
        """A provider has counted: what its count is off our size of the view."""
        self.anchor = anchor

    def record_sent_view(self, view: Sequence[Message]) -> None:
        """Context transforms have made this view."""
        self.sent_view, self.sent_own = view, 0

    def record_sent_unchanged(self) -> None:
        """No context transform has changed the view. It only grows, so its length tells what was sent."""
        self.sent_view, self.sent_own = (), len(self.view)

    def remember_done_calls(self, done: Any) -> None:
        """The calls that are no longer in view, as a strategy has found them."""
        self.done_calls = done

    def list_shapeable(self) -> tuple[Sequence[Message], Sequence[int]]:
        """What a view is made from, with the size of each message: all but notices of earlier runs."""
        return blank_stale_messages(self.messages, self.sizes, self.stale)

    def record_weight(self, view: Sequence[Message], characters: int) -> None:
        """The characters of this view were counted, and are not counted again."""
        self.weighed_view, self.weighed_messages, self.weighed_characters = view, len(view), characters

    def weigh_media(self, media: Media) -> None:
        """The sound and the pictures of the view were counted."""
        self.weighed_media = (self.view, len(self.view), media)

    def allow_pictures(self, most: int) -> None:
        """A view may have this many bytes of them from now on."""
        self.most_pictures = most

    def recount_pictures(self, pictures: int) -> None:
        """Some were left out of the view."""
        self.picture_bytes = pictures

    def note_other_vendor(self) -> None:
        """Another vendor answers from now on."""
        self.mixed = True

    def set_checkpoint(self, checkpoint: Any) -> None:
        """A checkpoint replaces the beginning of the transcript; None: nothing does."""
        self.checkpoint = checkpoint

    def judge_checkpoint(self, *, helped: bool) -> None:
        """Whether the last checkpoint made the view fit."""
        self.failed_checkpoints = 0 if helped else self.failed_checkpoints + 1


class CurrentTurn(Record, eq=False, gc=False):
    """The state of the run: its phase and checkpoint, the reply and the results of the turn, and counts of both."""

    SURVIVES: ClassVar[tuple[str, ...]] = (
        "iterations",
        "tool_calls",
        "last_error",
        "stop_reason",
        "allowed",
        "pending",
        "votes",
        "programs",
        "program_states",
    )

    unsaved: Unsaved
    state: AgentState = AgentState.IDLE
    checkpoint: str = PRE_FLIGHT
    is_open: bool = False
    iterations: int = 0
    tool_calls: int = 0
    reply: AssistantMessage | None = None
    results: tuple[ToolResultMessage, ...] = ()
    stop_reason: StopReason | None = None
    last_error: bool = False
    """A call of the last batch has failed."""
    request: ModelRequest | None = None
    """The last one: reused while nothing about it changes but the transcript, which it does not copy."""
    allowed: frozenset[str] | None = None
    """The tools that the turn may use; None is all."""
    denials: MutableMapping[str, str] = _NOTHING
    pending: tuple[PendingCall, ...] = ()
    votes: tuple[bool, bool, bool] | None = None
    """How a batch has voted that waits for a person: see `Snapshot`."""
    contexts: Mapping[Any, Any] = _NOTHING
    """What hooks are shown, by its class, as of the first time one was asked under this plan."""
    programs: Mapping[str, Program] = _NOTHING
    """Calls of the turn that make calls themselves and have no result yet."""
    program_states: Mapping[str, str] = _NOTHING
    """What each of them needs to continue."""

    # --- state and checkpoint ---------------------------------------------------------------------------------

    def enter(self, state: AgentState) -> None:
        """Enter another state; an illegal step is a bug and raises."""
        if state is not self.state:
            if state not in TRANSITIONS[self.state]:
                raise RuntimeError(f"illegal transition {self.state.name} -> {state.name}")
            self.state = state

    def start_tools(self) -> None:
        """A batch begins. From RUNNING, and back by `end_tools`: no need to look the step up."""
        self.state = AgentState.WAITING_FOR_TOOL

    def end_tools(self) -> None:
        """The batch is over."""
        self.state = AgentState.RUNNING

    def fail(self) -> None:
        """The run ends in an error, whatever state it was in."""
        self.state = AgentState.ERROR

    # --- reply and results ------------------------------------------------------------------------------------

    def end(self) -> None:
        """The turn is over, or continues in another process."""
        self.is_open = False

    def take(self, message: AssistantMessage) -> None:
        """The reply of this turn."""
        self.iterations += 1
        self.reply = message
        self.stop_reason = message.stop_reason

    def take_landing(self, message: AssistantMessage) -> None:
        """The reply to the landing call, which does not count as a turn."""
        self.reply, self.results = message, ()
        self.stop_reason = message.stop_reason

    def change_reply(self, message: AssistantMessage | None) -> None:
        """A call was added to the reply before it joined the transcript; None: it never did, its calls are dropped."""
        self.reply = message

    def answer(self, results: tuple[ToolResultMessage, ...]) -> None:
        """What the calls of the reply have returned so far."""
        self.results = results

    def stop(self, reason: StopReason) -> None:
        """The model gave no reply, for this reason."""
        self.stop_reason = reason

    def mark_error(self, failed: bool) -> None:
        """Whether a call of the last batch has failed."""
        self.last_error = failed

    def open_calls(self) -> tuple[ToolCall, ...]:
        """The calls of the current reply that have no result yet."""
        if self.reply is None:
            return ()
        answered = {result.call_id for result in self.results}
        return tuple([call for call in self.reply.tool_calls if call.id not in answered])

    def count_call(self, by: int = 1) -> None:
        """A tool call begins; -1: it did not begin after all."""
        self.tool_calls += by

    # --- what it may do, and who must decide ------------------------------------------------------------------

    def send(self, request: ModelRequest) -> ModelRequest:
        """Keep the request that goes out."""
        self.request = request
        return request

    def drop_request(self) -> None:
        """The next request is not the last one again."""
        self.request = None

    def set_allowed_tools(
        self, allowed: frozenset[str] | None, denials: MutableMapping[str, str] | None = None
    ) -> None:
        """The tools that this turn may use, and why it may not use the others."""
        if allowed is not self.allowed:
            self.allowed = allowed
            self.unsaved["allowed"] = None
        if denials is not None:
            self.denials = denials

    def set_pending(self, pending: tuple[PendingCall, ...]) -> None:
        """These calls wait for a person."""
        self.pending = pending
        self.unsaved["pending"] = None

    def count_votes(self, votes: tuple[bool, bool, bool] | None) -> None:
        """How the calls that are done have voted, until a person has decided about the others."""
        self.votes = votes
        self.unsaved["votes"] = None

    def keep_program(self, program: Program, state: str | None = None) -> None:
        """A call makes calls itself: how far it has come, and what it needs to continue, where that has changed."""
        call_id = program.call.id
        self.programs = {**self.programs, call_id: program}
        if state is not None:
            self.program_states = {**self.program_states, call_id: state}
        self.unsaved["programs"] = self.unsaved["program_states"] = None

    def correct_states(self, states: Mapping[str, str]) -> None:
        """What the programs need to continue, as a journal has it."""
        self.program_states = {key: states.get(key, state) for key, state in self.program_states.items()}
        self.unsaved["program_states"] = None

    def forget_program(self, call_id: str) -> None:
        """A call that made calls, if it did, has its result: its state is no longer needed."""
        self.pending = tuple([waiting for waiting in self.pending if waiting.inside != call_id])
        self.programs = {key: one for key, one in self.programs.items() if key != call_id}
        self.program_states = {key: one for key, one in self.program_states.items() if key != call_id}
        self.unsaved["pending"] = self.unsaved["programs"] = self.unsaved["program_states"] = None

    def forget_programs(self) -> None:
        """All of them have their results."""
        if self.programs:
            self.programs, self.program_states = _NOTHING, _NOTHING
            self.unsaved["programs"] = self.unsaved["program_states"] = None


class AnswerSoFar(Record, eq=False, gc=False):
    """What the run would deliver now, and how often it was asked for something better."""

    SURVIVES: ClassVar[tuple[str, ...]] = ("text",)
    UNTIL_IT_ENDS: ClassVar[tuple[str, ...]] = (
        "empty_outcomes",
        "cut_calls_refused",
        "rescued",
        "plain_text",
        "output_repairs",
        "parts",
    )

    unsaved: Unsaved
    text: str = ""
    """The best so far. A journal looks at it: it is another one nearly every turn, and needs no mark."""
    empty_outcomes: int = 0
    cut_calls_refused: bool = False
    rescued: bool = False
    plain_text: tuple[int, str] = (0, "")
    """How often it was asked for a call instead of plain text, and the text that is kept meanwhile."""
    output_repairs: int = 0
    """How often in a row it was asked for another answer: in the right format, or for a validator."""
    checked: tuple[str, Any, Exception | None] | None = None
    """The last answer that was read and shown to the validators, its value, and what is wrong with it."""
    parts: tuple[str, ...] = ()
    """The pieces of an answer that is being continued."""

    def keep_text(self, text: str) -> None:
        """The best text so far, if it shows anything."""
        if is_visible(text):
            self.text = text

    def replace_text(self, text: str) -> None:
        """The best text so far."""
        self.text = text

    def continue_with(self, text: str) -> None:
        """The answer continues in the next reply."""
        self.parts += (text,)
        self.unsaved["parts"] = None

    def start_over(self) -> None:
        """What comes next is another text."""
        self.parts = ()
        self.unsaved["parts"] = None

    def count_rescue(self) -> None:
        """A bad end was turned into another turn."""
        self.empty_outcomes += 1
        self.rescued = True
        self.unsaved["empty_outcomes"] = self.unsaved["rescued"] = None

    def forget_rescues(self) -> None:
        """Progress was made."""
        self.rescued = False
        self.empty_outcomes = 0
        self.unsaved["empty_outcomes"] = self.unsaved["rescued"] = None

    def refuse_cut_calls(self) -> None:
        """Reject calls that were cut off; the model may send them again once."""
        self.cut_calls_refused = True
        self.unsaved["cut_calls_refused"] = None

    def count_repair(self) -> None:
        """The model is asked for another answer than the one it gave."""
        self.output_repairs += 1
        self.unsaved["output_repairs"] = None

    def reject_output(self, text: str, problem: Exception) -> None:
        """This answer does not fit the type, or a validator rejected it."""
        self.checked = (text, None, problem)

    def accept_output(self, text: str, value: object) -> None:
        """This answer is a value of the type that was asked for."""
        self.checked = (text, value, None)
        if self.output_repairs:
            self.output_repairs = 0
            self.unsaved["output_repairs"] = None

    def keep_plain_text(self, nudges: int, kept: str) -> None:
        """How often the model was asked for a call instead, and what it wrote."""
        self.plain_text = (nudges, kept)
        self.unsaved["plain_text"] = None
