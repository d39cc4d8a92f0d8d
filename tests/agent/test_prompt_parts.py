"""A prompt may be a list of texts, pictures and files: one message."""

import pytest

from glidepath import Agent, ConfigurationError, Limits
from glidepath.messages import FileBlock, ImageBlock, TextBlock, UserMessage
from glidepath.testing import ScriptedModel, say

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 32


def ask(prompt):
    model = ScriptedModel().forever(lambda _: say("seen"))
    agent = Agent(model=model, limits=Limits(max_iterations=2))
    assert agent.run_sync(prompt).ok
    return model.requests[0].messages


def test_texts_paths_and_blocks_make_one_message(tmp_path):
    photo, page = tmp_path / "photo.png", tmp_path / "page.csv"
    photo.write_bytes(PNG)
    page.write_bytes(b"a,b\n")
    (message,) = ask(["What are these?", photo, page, ImageBlock("image/png", PNG), TextBlock("And why?")])
    assert [type(part) for part in message.content] == [TextBlock, ImageBlock, FileBlock, ImageBlock, TextBlock]
    assert message.content[1] == ImageBlock("image/png", PNG)
    assert (message.content[2].data, message.content[2].name) == (b"a,b\n", "page.csv")
    assert message.text.startswith("What are these?")


def test_messages_are_still_messages():
    assert ask([UserMessage("one"), UserMessage("two")])[0].text == "one"


def test_a_text_that_is_a_path_is_a_text(tmp_path):
    (tmp_path / "secret.png").write_bytes(PNG)
    (message,) = ask([str(tmp_path / "secret.png")])
    assert [type(part) for part in message.content] == [TextBlock]


def test_a_part_that_cannot_be_sent_is_named(tmp_path):
    (tmp_path / "tool.exe").write_bytes(b"MZ")
    agent = Agent(model=ScriptedModel(), limits=Limits(max_iterations=2))
    for prompt, words in (
        (["Look:", tmp_path / "gone.png"], r"prompt\[1\]: .*gone.png' cannot be read: No such file"),
        (["Look:", tmp_path / "tool.exe"], r"prompt\[1\]: .*tool.exe"),
        (["Look:", tmp_path], r"prompt\[1\]: "),
        (["Look:", " "], r"prompt\[1\] is empty"),
        (["Look:", 7], r"prompt\[1\] must be a text, the Path of a picture or file, or a block"),
        (["Look:", UserMessage("now")], r"prompt\[1\] is a message among parts"),
        (["Look:", "\udcff"], r"prompt\[1\]"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            agent.run_sync(prompt)
