"""Whatever a client does to its history, folding what was written gives its conversation back."""

import pytest
from hypothesis import given, settings, strategies as st

from glidepath.apps.gate.foreign_transcript import FEW, ForeignTranscript, limit_message, own_reply, read_conversation
from glidepath.messages import (
    AssistantMessage,
    CustomMessage,
    SystemMessage,
    TextBlock,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from glidepath.sessions import Folded, link
from glidepath.sessions.fold import fold as fold_commits

WORDS = st.text("abc \n", min_size=0, max_size=6)


class Client:
    """A program with a history that it sends whole, and may change."""

    def __init__(self):
        self.history = [UserMessage("task")]
        self.number = 0

    def answer(self, reply):
        self.history.append(reply)
        self.history += [ToolResultMessage(call.id, call.name, f"r{call.id}") for call in reply.tool_calls]

    def act(self, action, draw):
        if action == "say":
            self.history.append(UserMessage(draw(WORDS)))
        elif action == "compact":
            self.history = [UserMessage(f"summary {draw(WORDS)}"), *self.history[-1:]]
        elif action == "edit" and self.history:
            place = draw(st.integers(0, len(self.history) - 1))
            if isinstance(self.history[place], UserMessage):
                self.history[place] = UserMessage(f"edited {draw(WORDS)}")
        elif action == "forget" and len(self.history) > 1:
            del self.history[-1]
        elif action == "system":
            rest = [one for one in self.history if not isinstance(one, SystemMessage)]
            self.history = [SystemMessage(draw(WORDS)), *rest]


def said(messages):
    return [one for one in messages if not (isinstance(one, UserMessage) and one.internal)]


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_folding_gives_the_conversation_back(data):
    client, transcript, items = Client(), ForeignTranscript(), []
    actions = st.sampled_from(["none"] * 6 + ["say", "say", "compact", "edit", "forget", "system", "notice"])
    sent = []
    for number in range(data.draw(st.integers(1, 40))):
        action = data.draw(actions)
        client.act(action, data.draw)
        sent = list(client.history)
        new = transcript.take(sent)
        items.append(transcript.records() if new is None else [("message", one) for one in new])
        if action == "notice":
            notice = transcript.add(UserMessage("hurry", internal=True, reason="wind_down"))
            items[-1].append(("message", notice))
        blocks = (TextBlock(f"t{number}"), ToolCall(f"c{number}", "look", {"q": number}))
        reply = AssistantMessage(blocks if data.draw(st.booleans()) else blocks[:1])
        transcript.add(reply)
        items.append([("message", reply)])
        sent.append(reply)
        client.answer(reply)
    if transcript.settle():
        items.append(transcript.records())
    folded = _fold(items)
    assert folded.messages == transcript.messages
    assert said(folded.messages) == sent


def _fold(items) -> Folded:
    commits, before, sequence = [], b"", 0
    for number, records in enumerate(items, 1):
        commit = link(before, number, sequence + 1, 0.0, records)
        sequence, before = sequence + len(records), commit.hash
        commits.append(commit)
    return fold_commits(commits)


def test_a_client_that_changes_something_old_in_every_request_does_not_make_the_journal_grow_with_the_square():
    client, transcript, written = Client(), ForeignTranscript(), 0
    for number in range(400):
        client.history[0] = UserMessage(f"task at {number} o'clock")
        new = transcript.take(client.history)
        written += len(transcript.messages) if new is None else len(new)
        reply = AssistantMessage((ToolCall(f"c{number}", "look", {}),))
        transcript.add(reply)
        written += 1
        client.answer(reply)
    assert written < 6 * len(client.history)
    assert transcript.settle()
    assert transcript.messages[0].text == "task at 399 o'clock"
    assert said(transcript.messages) == client.history[:-1]


def test_a_system_prompt_that_counts_its_calls_is_the_same_one():
    lines = [f"Rule {number}: be brief." for number in range(30)]
    transcript = ForeignTranscript()
    for number in range(3 * FEW):
        told = [SystemMessage("\n".join([f"x-billing: call={number}", *lines])), UserMessage("task")]
        assert transcript.take(told) == ([] if number else told)
    assert transcript.take([SystemMessage("Another."), UserMessage("task")]) is None


def test_a_reply_is_recognized_by_its_text_and_calls_whatever_else_comes_back():
    transcript = ForeignTranscript([UserMessage("task")])
    transcript.add(AssistantMessage((TextBlock("I look."), ToolCall("c1", "look", {"a": 1.0}))))
    body = {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "task", "cache_control": {"type": "ephemeral"}}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "sig"},
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "c1", "name": "look", "input": {"a": 1}},
                ],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "seen"}]},
        ]
    }
    assert transcript.take(read_conversation("anthropic", body)) == [ToolResultMessage("c1", "look", "seen")]


@pytest.mark.parametrize(
    ("dialect", "body"),
    [
        ("anthropic", {"messages": [{"role": "user", "content": "hi"}], "system": "Be kind."}),
        ("openai-chat", {"messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hi"}]}),
        ("openai-responses", {"instructions": "Be kind.", "input": "hi"}),
        ("openai-responses", {"instructions": "Be kind.", "input": [{"role": "user", "content": "hi"}]}),
        (
            "gemini",
            {"systemInstruction": {"parts": [{"text": "Be kind."}]}, "contents": [{"parts": [{"text": "hi"}]}]},
        ),
    ],
)
def test_every_dialect_is_read(dialect, body):
    assert read_conversation(dialect, body) == [SystemMessage("Be kind."), UserMessage("hi")]


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)


@given(
    st.sampled_from(["anthropic", "openai-chat", "openai-responses", "gemini"]),
    st.dictionaries(
        st.sampled_from(["messages", "input", "contents", "system", "instructions", "systemInstruction"]), ANYTHING
    ),
)
@settings(max_examples=200, deadline=None)
def test_no_request_is_too_odd_to_be_kept(dialect, body):
    for message in read_conversation(dialect, body):
        link(b"", 1, 1, 0.0, [("message", limit_message(message))])


def test_half_a_character_is_kept_as_a_whole_one():
    kept = limit_message(UserMessage("a\ud800b"))
    link(b"", 1, 1, 0.0, [("message", kept)])
    assert kept.text == "a\ufffdb"
    odd = limit_message(CustomMessage("anthropic", {"x": "\ud800"}))
    link(b"", 1, 1, 0.0, [("message", odd)])
    call = limit_message(AssistantMessage((ToolCall("c", "look", {"x": "\udfff"}),)))
    link(b"", 1, 1, 0.0, [("message", call)])


def test_our_own_reply_says_that_it_is_ours():
    assert own_reply("Over.").origins == ("gate",)
