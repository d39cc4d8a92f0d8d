"""What the gate knows about bytes: the values that every dialect reads and writes, and the port it implements.

A dialect knows no budget. It reads a request into `RequestFacts`, edits a request without touching its prefix, follows
a streamed reply (`StreamReader`), and writes replies and errors in the client's own words.

Beyond the first sketch of this interface:

- `parse_body` and `write_body` turn bytes into a body and back. A field that occurs twice at the top level is refused:
  the gate would price one value and the provider would use the other.
- What costs more than a look is a method of the facts: `call_ids()`, `steps()`, `prefix_digests()`. Steps are made of
  the kernel's own `ToolCall` and `ToolResultMessage`, so that its guards can read them.
- `hidden` says why output may be hidden (`none`, `asked`, `unknown`), so that a policy can treat them differently.
  `other_models` are further models that may answer; `can_force` is False where a finishing tool cannot be forced;
  `wants_json` and `output_schema` tell that plain words would break the client.
- `streaming_target` gives the upstream's path and query: Gemini streams by its path. `framing` is how Gemini's client
  wants its stream.
- `StreamReader.feed` returns whole events only, b"" while it holds them back (`is_waiting`: a keep-alive may be due).
  `end()` is for the end of the provider's stream, `finish(text)` ends a reply whose calls are hidden, `release()`
  stops holding calls back, `feed_whole(body)` reads a provider that does not stream. `client_text` is the turn as the
  client has it, for `legalize`. `failure` is an error that the provider sent in its stream.
- Every edit returns the same object if nothing had to change: then the client's own bytes can be forwarded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from glidepath._wire import Value
from glidepath.values import GlidepathError, ToolCall, ToolResultMessage, Usage

if TYPE_CHECKING:
    from glidepath.apps.gate.dialects.stream_reader import StreamReader

Body = dict[str, Any]
"""A request as its client wrote it."""
LONGEST_TITLE = 200
MOST_PAST_CALLS = 40


class BadRequest(GlidepathError):  # noqa: N818 - a refusal of a client's request, not a failure of ours
    """A request that the gate cannot read. `field` is where, `message` says what is wrong and what to send."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


class Notice(Value, frozen=True, gc=False):
    """A text of ours for the model. `place` is how many messages were there when it was first inserted."""

    place: int
    text: str


class PastStep(Value, frozen=True, gc=False):
    """The calls of one earlier reply and what came back, as the client tells them."""

    calls: tuple[ToolCall, ...]
    results: tuple[ToolResultMessage, ...]


class WireCall(Value, frozen=True, gc=False):
    """A call that a model made: the arguments are the text it wrote."""

    id: str
    name: str
    arguments: str


class OwnReply(Value, frozen=True, kw_only=True):
    """A reply that no model wrote. `call` is a finishing move: a tool's name and its arguments."""

    text: str = ""
    call: tuple[str, Mapping[str, Any]] | None = None
    usage: Usage = Usage()


class WireAnswer(Value, frozen=True, kw_only=True):
    """A whole answer to a client."""

    status: int
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


class PastCalls(Protocol):
    """Reads the conversation in a request, when somebody asks."""

    def call_ids(self, body: Body) -> tuple[str, ...]:
        """The ids of the calls in the model's turns, oldest first."""
        ...

    def steps(self, body: Body, most: int) -> tuple[PastStep, ...]:
        """The newest steps with at most this many calls, oldest first."""
        ...

    def prefix_digests(self, body: Body) -> tuple[bytes, ...]:
        """A digest after each message: equal for an equal beginning."""
        ...


class RequestFacts(Value, frozen=True, kw_only=True):
    """What the gate must know about a request."""

    dialect: str
    body: Body
    model: str
    stream: bool
    """Whether the client wants a stream."""
    framing: str = "sse"
    """How it wants it: `sse`, or `array` for a JSON array that grows (Gemini without `alt=sse`)."""
    max_output: int | None = None
    copies: int = 1
    """How many replies to one prompt it asks for."""
    messages: int = 0
    """How many messages, items or contents there are: the place for a new notice."""
    tool_names: tuple[str, ...] = ()
    """Tools that the client runs."""
    server_tools: tuple[str, ...] = ()
    """Tools that the provider runs and bills."""
    tool_choice: str = "auto"
    """`auto`, `none`, `required`, or the name of the tool that must be called."""
    can_force: bool = True
    """Whether a call can be forced: a Claude model that thinks refuses it."""
    hidden: str = "none"
    """Whether output that the stream does not show may be billed: `none`, `asked`, or `unknown` for this model."""
    other_models: tuple[str, ...] = ()
    """Models that may answer instead or help: fallbacks, an advisor."""
    held_by_server: tuple[str, ...] = ()
    """Input that only the provider sees, as `kind:id`: `previous_response_id:resp_1`, `file:file_2`."""
    media: int = 0
    """Images, recordings and documents in the messages."""
    wants_usage: bool = True
    """Whether the client expects the usage in a stream."""
    output_schema: Mapping[str, Any] | None = None
    """The JSON schema that the answer must fit."""
    wants_json: bool = False
    """Whether the answer must be JSON."""
    first_text: str = ""
    """The beginning of what the user first wrote."""
    hints: Mapping[str, str] = {}
    """What may tell whose call it is, or what it costs: `metadata.user_id`, `prompt_cache_key`, `service_tier`."""
    refusal: str | None = None
    """Why a gate cannot govern this request, as a sentence; None if it can."""
    past: PastCalls | None = None

    @property
    def has_hidden_output(self) -> bool:
        """Whether the provider may bill output that the stream does not show."""
        return self.hidden != "none"

    @property
    def has_tools(self) -> bool:
        """Whether the model could call anything."""
        return bool(self.tool_names or self.server_tools)

    def call_ids(self) -> tuple[str, ...]:
        """The ids of the calls in the model's turns, oldest first; Gemini often has none."""
        return () if self.past is None else self.past.call_ids(self.body)

    def steps(self, most: int = MOST_PAST_CALLS) -> tuple[PastStep, ...]:
        """The newest steps with at most this many calls, oldest first."""
        return () if self.past is None else self.past.steps(self.body, most)

    def prefix_digests(self) -> tuple[bytes, ...]:
        """A digest after each message: a request that continues another one has its digests, and more."""
        return () if self.past is None else self.past.prefix_digests(self.body)


class Dialect(Protocol):
    """One provider's wire format.

    No method changes what it is given: an edit copies what lies on the way to the change, and nothing else. Only
    `BadRequest` is raised, and only by `read_request`.
    """

    name: str

    def read_request(
        self, body: object, path_model: str | None = None, stream: bool | None = None, framing: str = "sse"
    ) -> RequestFacts:
        """The facts of a request. Path and query say what the body does not: Gemini's model and whether it streams."""
        ...

    def insert_notices(self, body: Body, notices: Sequence[Notice]) -> Body:
        """The request with these notices at their places, for the model to read as the user's text."""
        ...

    def close_tools(self, body: Body, finishing: str | None = None) -> Body:
        """The request without the right to call tools, or forced to call the finishing tool if it can be forced."""
        ...

    def set_streaming(self, body: Body, *, with_usage: bool = True) -> Body:
        """The request for a streamed reply that reports its usage."""
        ...

    def streaming_target(self, path: str, query: str) -> tuple[str, str]:
        """Path and query of the upstream request for a streamed reply."""
        ...

    def legalize(self, body: Body, is_ours: Callable[[str], bool]) -> Body:
        """The request with turns that we made up in a form that the provider accepts.

        `is_ours` is asked about the stripped text of each of the model's turns, and about ids of calls and responses.
        """
        ...

    def open_reader(
        self, facts: RequestFacts, *, hide_calls: bool = False, finishing: str | None = None, hold_calls: bool = True
    ) -> StreamReader:
        """Follow the reply to this request. See `StreamReader`."""
        ...

    def write_reply(self, facts: RequestFacts, reply: OwnReply) -> WireAnswer:
        """Our own words as the model's final reply, streamed if the client wants a stream."""
        ...

    def write_error(self, status: int, kind: str, message: str) -> WireAnswer:
        """An error as the provider writes it."""
        ...

    def write_stream_error(self, status: int, kind: str, message: str) -> bytes:
        """An error in a stream that has already begun."""
        ...

    def keep_alive(self, facts: RequestFacts) -> bytes:
        """What may be sent, between whole events and before them, so that nobody hangs up; may be empty."""
        ...
