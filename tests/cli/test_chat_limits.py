"""A limit that a person gave is the conversation's; a default is each message's; `/limits` shows and raises them."""

import asyncio

import pytest

from glidepath.errors import ConfigurationError

from .test_chat import talk


async def nothing(_):
    return {}


def say(chat, text="hello"):
    return asyncio.run(chat.run_turn(text, nothing, nothing))


def test_defaults_are_for_each_message_and_given_limits_for_the_conversation(tmp_path):
    chat = talk(tmp_path, "echoes", "--max-tokens", "9k", "--timeout", "5m")
    rows = chat.answer_command("/limits").splitlines()
    assert rows[0] == "turns       50 for each message (the default)"
    assert rows[1] == "tokens      9000 for the conversation, 0 used"
    assert rows[2] == "cost        no limit"
    assert rows[3] == "time        5m for the conversation, 0s used"
    say(chat)
    assert f"{chat.session.totals.usage.total} used" in chat.answer_command("/limits tokens")


def test_turns_that_are_used_up_are_said_and_a_higher_limit_lets_the_conversation_continue(tmp_path):
    chat = talk(tmp_path, "echoes", "--max-turns", "1")
    say(chat)
    with pytest.raises(ConfigurationError, match=r"used its model turns .1.. /limits turns 2 raises it"):
        say(chat)
    assert chat.answer_command("/limits turns 9") == "turns       9 for the conversation, 1 used"
    assert say(chat).ok
    assert chat.session.totals.runs == 2


def test_tokens_of_all_messages_count_together(tmp_path):
    chat = talk(tmp_path, "echoes", "--max-tokens", "3k")
    ends = [say(chat, "word " * 200).ok for _ in range(12)]
    assert ends[0]
    assert not ends[-1]
    chat.answer_command("/limits tokens 500k")
    assert say(chat).ok


def test_only_working_time_counts_and_a_new_conversation_begins_anew(tmp_path):
    chat = talk(tmp_path, "echoes", "--timeout", "60")
    say(chat)
    worked = chat.worked
    assert 0 < worked < 60
    chat.worked = 61.0
    with pytest.raises(ConfigurationError, match=r"working time .1m.. /limits time 2m raises it"):
        say(chat)
    chat.clear()
    assert say(chat).ok


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("/limits token 5", "There is no limit 'token'. Did you mean tokens?"),
        ("/limits tokens many", "Limits.max_tokens must be a whole number"),
        ("/limits cost -1", "Limits.max_cost must be"),
    ],
)
def test_a_wrong_word_is_answered_with_the_right_one(tmp_path, line, answer):
    assert answer in talk(tmp_path).answer_command(line)
