"""The contracts of the hooks that speak and listen: observers, steering and follow-ups."""

from __future__ import annotations

import asyncio
import time
from typing import Any, ClassVar

from glidepath.spi import Plugin, PollContext
from glidepath.testing import EventRecorder
from glidepath.testing.conformance.plugin import HookContract, as_messages, eventful_run
from glidepath.testing.conformance.transcripts import long_talk, make_transcript_of_every_kind
from glidepath.values import (
    CustomMessage,
    Event,
    Message,
    MessageAdded,
    StreamChunk,
    UserMessage,
    codec as messages_codec,
)

LONG = 50


class _SomethingNew(Event, frozen=True, gc=False, tag=True):
    """An event of a later version."""

    what: Any = None


class EventObserverContract(HookContract):
    """Subclass this and provide `make_plugin`."""

    hook: ClassVar[str] = "event_observer"

    async def _events(self) -> list[Event]:
        """What happened in a run, and some things that are rare."""
        recorder = EventRecorder()
        await eventful_run([recorder.as_plugin()])
        first = recorder.events[0]
        envelope = (first.run_id, None, 900, first.time)
        return [
            *recorder.events,
            StreamChunk(*envelope, text="\u202e\U0001f6eb \x00", finished=False),
            MessageAdded(*envelope, message=UserMessage("word " * 200_000)),
        ]

    def test_obs_1_it_says_what_it_wants(self) -> None:
        """OBS-1: `events` is None, or a tuple of kinds of events."""
        wanted = self.make_plugin().events
        assert wanted is None or isinstance(wanted, tuple)
        assert all(isinstance(kind, type) and issubclass(kind, Event) for kind in wanted or ())

    async def test_obs_2_it_takes_every_event_it_wants(self) -> None:
        """OBS-2: no event of a kind it wants makes it raise, however large or strange."""
        plugin = self.make_plugin().for_run()
        for event in await self._events():
            if _is_wanted(plugin, event):
                await self._ask_hook(event, plugin)

    async def test_obs_3_it_answers_nothing(self) -> None:
        """OBS-3: it returns None."""
        plugin = self.make_plugin().for_run()
        for event in (event for event in await self._events() if _is_wanted(plugin, event)):
            answer = await self._ask_hook(event, plugin)
            assert answer is None, f"{type(event).__name__}: {answer!r:.100}"

    async def test_obs_4_a_run_does_not_notice_it(self) -> None:
        """OBS-4: a run behaves the same with and without it."""
        with_it, without = EventRecorder(), EventRecorder()
        watched, alone = await eventful_run([self.make_plugin()], with_it), await eventful_run([], without)
        assert (watched.state, watched.outcome, watched.text) == (alone.state, alone.outcome, alone.text)
        assert with_it.kinds() == without.kinds()
        assert [message.text for message in watched.messages] == [message.text for message in alone.messages]

    async def test_obs_5_a_plain_one_holds_nobody_up(self) -> None:
        """OBS-5: a plain observer takes less than ten milliseconds per event, because the run waits for it."""
        plugin = self.make_plugin().for_run()
        if asyncio.iscoroutinefunction(plugin.event_observer):
            return
        events = [event for event in await self._events() if _is_wanted(plugin, event)][:-1] * 5
        began = time.perf_counter()
        for event in events:
            await self._ask_hook(event, plugin)
        each = (time.perf_counter() - began) / max(1, len(events))
        assert each < 0.01, f"it takes {1000 * each:.0f} ms for an event"

    async def test_obs_6_what_it_does_not_know_does_not_hurt(self) -> None:
        """OBS-6: an event of a later version does not make it raise."""
        plugin = self.make_plugin().for_run()
        event = _SomethingNew("run_kit", None, 1, 0.0, what={"a": ["b"]})
        if _is_wanted(plugin, event):
            await self._ask_hook(event, plugin)


def _is_wanted(plugin: Plugin, event: Event) -> bool:
    if plugin.events is None:
        return not isinstance(event, StreamChunk)
    return isinstance(event, plugin.events)


class _VoiceContract(HookContract):
    """What steering and follow-ups share."""

    def put(self, plugin: Plugin, text: str) -> bool:  # noqa: ARG002 - for those with a way in
        """Give the plugin a message to deliver, as a user would; False if there is no way to do that."""
        return False

    def _context(self, number: int = 0) -> Any:
        talks: list[list[Message]] = [make_transcript_of_every_kind(), long_talk(5), [UserMessage("Write.")]]
        return PollContext(
            run_id="run_kit", agent_name="agent", iteration=number, messages=talks[number % 3], conversation_id=None
        )

    def _contexts(self) -> list[Any]:
        return [self._context(number) for number in range(3)]

    async def _assert_usable(self) -> None:
        plugin = self.make_plugin()
        self.put(plugin, "one")
        plugin = plugin.for_run()
        for number in range(6):
            for item in as_messages(await self._ask_hook(self._context(number), plugin)):
                assert isinstance(item, str | UserMessage | CustomMessage), f"it said {item!r:.100}"
                message: Message = UserMessage(item) if isinstance(item, str) else item
                messages_codec.decode(messages_codec.encode(message))
                assert isinstance(message, CustomMessage) or message.text.strip(), "it sent a blank message"

    async def _assert_delivered_once(self) -> None:
        plugin = self.make_plugin()
        words = ["first <1>", "second <2>", "third <3>"]
        if not all(self.put(plugin, text) for text in words):
            return
        heard: list[str] = []
        for number in range(4):
            said = as_messages(await self._ask_hook(self._context(number), plugin))
            heard += [item if isinstance(item, str) else item.text for item in said]
        found = [word for text in heard for word in words if word in text]
        assert found == words, f"put in {words}, heard {found}"


class SteeringContract(_VoiceContract):
    """Subclass this and provide `make_plugin`, and `put` if there is a way to give it a message to deliver."""

    hook: ClassVar[str] = "steering"

    async def test_steer_1_it_answers_with_messages(self) -> None:
        """STEER-1: it answers None, a text, a user message or several of them; each can be sent and is not blank."""
        await self._assert_usable()

    async def test_steer_2_nothing_is_lost_or_said_twice(self) -> None:
        """STEER-2: every message put in is delivered once, in order."""
        await self._assert_delivered_once()

    async def test_steer_3_it_only_looks(self) -> None:
        """STEER-3: the transcript is not changed in place."""
        await self._assert_unchanged("messages")

    async def test_steer_4_it_answers_in_time(self) -> None:
        """STEER-4: it answers within five seconds, the time a run waits for it, even with nothing to say."""
        await self._assert_in_time()


class FollowUpContract(_VoiceContract):
    """Subclass this and provide `make_plugin`, and `put` if there is a way to give it a message to deliver."""

    hook: ClassVar[str] = "follow_up"

    async def test_follow_1_it_answers_with_messages(self) -> None:
        """FOLLOW-1: it answers None, a text, a user message or several of them; each can be sent and is not blank."""
        await self._assert_usable()

    async def test_follow_2_it_lets_a_run_end(self) -> None:
        """FOLLOW-2: asked repeatedly by a run that is done, it eventually lets the run end."""
        plugin = self.make_plugin()
        self.put(plugin, "one more thing")
        plugin = plugin.for_run()
        for number in range(LONG):
            if not as_messages(await self._ask_hook(self._context(number), plugin)):
                return
        raise AssertionError(f"it kept the run going {LONG} times")

    async def test_follow_3_nothing_is_lost_or_said_twice(self) -> None:
        """FOLLOW-3: every message put in is delivered once, in order."""
        await self._assert_delivered_once()

    async def test_follow_4_it_only_looks(self) -> None:
        """FOLLOW-4: the transcript is not changed in place."""
        await self._assert_unchanged("messages")

    async def test_follow_5_it_answers_in_time(self) -> None:
        """FOLLOW-5: it answers within five seconds, the time a run waits for it, even with nothing to say."""
        await self._assert_in_time()
