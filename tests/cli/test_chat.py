"""The chat without a terminal: what each key and command does."""

import asyncio
from io import StringIO

import pytest
from rich.console import Console
from textual import events, events as keys

from glidepath.apps.cli import CliContext, make_parser
from glidepath.apps.cli.chat import COMMANDS
from glidepath.apps.cli.chat.app import ChatApp
from glidepath.apps.cli.chat.chat_conversation import Conversation
from glidepath.apps.cli.layers import Known, gather

from .shell_user import glidepath


def talk(tmp_path, name="chat", *argv):
    glidepath("--version", folder=tmp_path)  # the folder of the models is on the path
    options = make_parser(["chat"]).parse_args(
        ["chat", "--model", f"python:flights:{name}", "--tools", "list,shell", *argv]
    )
    world = CliContext(environ={}, folder=tmp_path, now=lambda: 0.0, unread=0.0)
    return Conversation(gather(options, world), world)


async def allow_always(app, pilot):
    """Answer a question with always, and confirm what that covers."""
    first = app._asked
    await pilot.press("a", "enter")
    while app._asked in (None, first):
        await pilot.pause(0.01)
    assert "From now on, without asking: " in shown(app)
    await pilot.press("y", "enter")


def play(tmp_path, script, name="chat", *argv):
    """Open the chat, let the script use it, and give back the app."""
    app = ChatApp(talk(tmp_path, name, *argv))

    async def run():
        async with app.run_test(size=(80, 30)) as pilot:
            await script(app, pilot)
        if app._flight is not None:
            await asyncio.wait_for(app._flight, 10)
        return app

    return asyncio.run(run())


def shown(app):
    return "\n".join(text_of(widget) for widget in app.query("#log > Static"))


def text_of(widget):
    if not widget.has_class("answer"):
        return str(widget.render())
    console = Console(width=80, file=StringIO())
    console.print(widget.content)
    return console.file.getvalue()


def users(app):
    return [message.text for message in app.talk.session.messages if message.role == "user"]


async def say(app, pilot, text, until=lambda app: not app.talk.busy):
    app.query_one("#prompt").value = text
    await pilot.press("enter")
    for _ in range(400):
        await pilot.pause(0.01)
        if until(app):
            return
    raise AssertionError(f"it never happened: {shown(app)}")


def test_a_conversation_goes_on_from_message_to_message(tmp_path):
    async def script(app, pilot):
        await say(app, pilot, "what is here?")
        await say(app, pilot, "run it", lambda app: app._asked is not None)
        await say(app, pilot, "y")
        assert app.talk.session.totals.runs >= 2
        roles = [message.role for message in app.talk.session.messages]
        assert roles.count("user") == 2
        assert "It says: from the shell" in app.talk.session.messages[-1].text

    play(tmp_path, script, "chat", "--sandbox", "off")


def test_no_denies_and_the_model_is_told_why(tmp_path):
    async def script(app, pilot):
        await say(app, pilot, "what is here?")
        await say(app, pilot, "run it", lambda app: app._asked is not None)
        await say(app, pilot, "not today")
        assert "not today" in app.talk.session.messages[-2].text

    play(tmp_path, script)


def test_escape_interrupts_the_turn_and_the_text_stays(tmp_path):
    async def script(app, pilot):
        await say(app, pilot, "hi", lambda app: app.talk.status.phase == "writing")
        await pilot.press("escape")
        for _ in range(200):
            await pilot.pause(0.01)
            if not app.talk.busy:
                break
        assert "interrupted (Esc)" in shown(app)
        assert app.is_running

    play(tmp_path, script, "waits")


def test_escape_at_a_question_ends_the_turn(tmp_path):
    async def script(app, pilot):
        await say(app, pilot, "go", lambda app: app._asked is not None)
        await pilot.press("escape")
        for _ in range(200):
            await pilot.pause(0.01)
            if not app.talk.busy:
                break
        assert not app.talk.busy
        assert not (tmp_path / "made.txt").exists()
        assert "interrupted, before this ran: shell(command=" in shown(app)

    play(tmp_path, script, "shell")


def test_what_is_typed_during_a_turn_is_sent_after_it(tmp_path):
    async def script(app, pilot):
        await say(app, pilot, "go", lambda app: app._asked is not None)
        app._waiting.append("and then?")
        await say(app, pilot, "n", lambda app: len(users(app)) == 2 and not app.talk.busy)
        assert users(app) == ["go", "and then?"]

    play(tmp_path, script, "shell")


def test_what_waits_is_shown_and_comes_back_to_the_line_when_the_turn_is_interrupted(tmp_path):
    async def script(app, pilot):
        await say(app, pilot, "hi", lambda app: app.talk.status.phase == "writing")
        await say(app, pilot, "and then?", lambda app: app._waiting)
        await say(app, pilot, "and after that?", lambda app: len(app._waiting) == 2)
        assert "and then?" in shown(app)
        await pilot.press("escape")
        for _ in range(200):
            await pilot.pause(0.01)
            if not app.talk.busy:
                break
        assert users(app) == ["hi"]
        assert app.query_one("#prompt").said == "and then?\nand after that?"
        assert "not sent" in shown(app)

    play(tmp_path, script, "waits")


def test_what_waited_does_not_take_the_place_of_what_is_being_typed(tmp_path):
    async def script(app, pilot):
        await say(app, pilot, "hi", lambda app: app.talk.status.phase == "writing")
        await say(app, pilot, "and then?", lambda app: app._waiting)
        app.query_one("#prompt").value = "half a sen"
        await pilot.press("escape")
        await pilot.pause(0.01)
        assert app.query_one("#prompt").said == "and then?\nhalf a sen"

    play(tmp_path, script, "waits")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("/help", "interrupt the turn"),
        ("/status", "0 messages from you, 0 model turns, 0 tool calls"),
        ("/tools", "shell  Run a shell command"),
        ("/model", "The model is python:flights:chat"),
        ("/compact", "nothing to shorten"),
        ("/staus", "There is no /staus. Did you mean /status?"),
        ("/model python:flights:NOPE", "no attribute 'NOPE'"),
        ("/model python:flights:hello", "python:flights:hello answers from now on"),
    ],
)
def test_slash_commands_answer(tmp_path, line, said):
    async def script(app, pilot):
        await say(app, pilot, line)
        assert said in shown(app)

    play(tmp_path, script)


def test_another_model_goes_on_with_the_same_conversation(tmp_path):
    async def script(app, pilot):
        await say(app, pilot, "what is here?")
        before = len(app.talk.session.messages)
        await say(app, pilot, "/model python:flights:hello")
        await say(app, pilot, "and you?")
        assert app.talk.session.messages[-1].text == "Hello from the script."
        assert len(app.talk.session.messages) == before + 2

    play(tmp_path, script)


def test_compact_leaves_the_middle_out(tmp_path):
    here = talk(tmp_path)
    from glidepath.messages import AssistantMessage, TextBlock, UserMessage

    for number in range(40):
        here.session.messages += [
            UserMessage(f"question {number} " * 20),
            AssistantMessage((TextBlock("answer " * 20),)),
        ]
    answer = here.answer_command("/compact")
    assert "messages left out" in answer
    assert len(here.session.messages) < 50
    assert here.session.messages[0].text.startswith("question 0")


def test_clear_begins_anew_and_quit_leaves(tmp_path):
    async def script(app, pilot):
        await say(app, pilot, "what is here?")
        await say(app, pilot, "/clear")
        assert app.talk.session.messages == []
        app.query_one("#prompt").value = "/quit"
        await pilot.press("enter")
        await pilot.pause()

    assert play(tmp_path, script).return_value == 0


def test_ctrl_c_twice_leaves(tmp_path):
    async def script(app, pilot):
        await pilot.press("ctrl+c")
        await pilot.pause()
        assert "Ctrl-C again to leave" in shown(app)
        await pilot.press("ctrl+c")
        await pilot.pause()

    assert play(tmp_path, script).return_value == 0


def test_leaving_in_mid_turn_stops_the_run(tmp_path):
    async def script(app, pilot):
        await say(app, pilot, "hi", lambda app: app.talk.status.phase == "writing")
        await pilot.press("ctrl+d")
        await pilot.pause()

    app = play(tmp_path, script, "waits")
    assert not app.talk.busy


def test_an_empty_line_says_nothing(tmp_path):
    async def script(app, pilot):
        await say(app, pilot, "   ")
        assert app.talk.session.messages == []

    play(tmp_path, script)


def test_every_command_is_in_the_help(tmp_path):
    text = talk(tmp_path).answer_command("/help")
    assert all(f"/{name}" in text for name in COMMANDS)


def test_chat_in_a_pipe_says_what_to_do_instead(tmp_path):
    ran = glidepath("chat", "--model", "python:flights:hello", folder=tmp_path)
    assert ran.code == 2
    assert "glidepath run" in ran.err


def test_a_conversation_with_a_store_goes_on_through_a_decision(tmp_path):
    from glidepath import approve

    here = talk(tmp_path, "chat", "--store", "talk.db", "--sandbox", "off")

    async def show(event):
        pass

    async def decide(pending):
        return {waiting.call.id: approve() for waiting in pending}

    async def go():
        await here.run_turn("what is here?", show, decide)
        result = await here.run_turn("run it", show, decide)
        await here.agent.config.store.close()
        return result

    assert asyncio.run(go()).text == "It says: from the shell"
    assert [message.text for message in here.session.messages if message.role == "user"] == ["what is here?", "run it"]
    assert here.session.messages[-1].text == "It says: from the shell"
    assert "stays whole" in here.answer_command("/compact")


def test_a_conversation_in_the_store_is_gone_on_with(tmp_path):
    before = talk(tmp_path, "hello", "--store", "talk.db")

    async def first():
        await before.run_turn("who are you?", ignore, ignore)
        await before.agent.config.store.close()

    asyncio.run(first())

    async def script(app, pilot):
        await say(app, pilot, "/resume")
        assert before.session.id[8:16] in shown(app)
        assert "who are you?" in shown(app)
        await say(app, pilot, "/resume session_x")
        assert "there is no session 'session_x'" in shown(app)
        await say(app, pilot, f"/resume {before.session.id}")
        assert f"Continuing {before.session.id[8:16]} (2 messages)." in shown(app)
        assert "Hello from the script." in shown(app)
        await say(app, pilot, "go on")
        assert users(app) == ["who are you?", "go on"]
        await app.talk.agent.config.store.close()

    play(tmp_path, script, "hello", "--store", "talk.db")


def test_without_a_store_there_is_nothing_to_resume(tmp_path):
    assert "--store" in asyncio.run(talk(tmp_path).resume(""))


async def ignore(*_):
    pass


def test_lines_that_are_typed_faster_than_they_are_read_stay_apart(tmp_path):
    async def script(app, pilot):
        for sign in "/tols\r/status\r":
            app.post_message(events.Key("enter", sign) if sign == "\r" else events.Key(sign, sign))
        for _ in range(200):
            await pilot.pause(0.01)
            if "tokens" in shown(app):
                break
        assert "There is no /tols." in shown(app)
        assert "> /status" in shown(app)
        assert app.query_one("#prompt").value == ""

    play(tmp_path, script)


def test_a_paste_of_many_lines_is_sent_whole(tmp_path):
    async def script(app, pilot):
        await pilot.press("a", "b")
        app.post_message(events.Paste("one\r\ntwo\nthree\n"))
        await pilot.pause()
        await pilot.press("enter")
        for _ in range(200):
            await pilot.pause(0.01)
            if not app.talk.busy and users(app):
                break
        assert users(app) == ["abone\ntwo\nthree"]

    play(tmp_path, script)


def test_a_paste_replaces_what_is_marked(tmp_path):
    async def script(app, pilot):
        prompt = app.query_one("#prompt")
        prompt.value = "old"
        prompt.select_all()
        app.post_message(events.Paste("new\nlines"))
        await pilot.pause()
        assert prompt.said == "new\nlines"
        app.post_message(events.Paste(""))
        await pilot.pause()
        assert prompt.said == "new\nlines"

    play(tmp_path, script)


def test_a_key_pressed_before_the_question_was_on_the_screen_is_dropped(tmp_path):
    async def script(app, pilot):
        old = [keys.Key("y", "y"), keys.Key("enter", "\r"), keys.Paste("y")]
        await say(app, pilot, "go", lambda app: app._asked is not None)
        for key in old:  # they waited in a queue until now
            app.query_one("#prompt").post_message(key)
        await pilot.pause(0.05)
        assert app._asked is not None
        assert not app._asked.done()
        assert app.query_one("#prompt").value == ""
        await say(app, pilot, "n")

    play(tmp_path, script, "shell")
    assert not (tmp_path / "made.txt").exists()


def test_a_message_that_was_being_written_comes_back_after_the_question(tmp_path):
    async def script(app, pilot):
        decide = app._decide

        def writing(pending):
            app.query_one("#prompt").value = "half a thou"
            return decide(pending)

        app._decide = writing
        await say(app, pilot, "go", lambda app: app._asked is not None)
        assert app.query_one("#prompt").value == ""
        await say(app, pilot, "n")
        assert app.query_one("#prompt").value == "half a thou"

    play(tmp_path, script, "shell")


def test_a_long_call_is_paged_in_the_chat_and_y_before_its_end_allows_nothing(tmp_path):
    async def script(app, pilot):
        await say(app, pilot, "go", lambda app: app._asked is not None)
        for _ in range(20):
            if "y or a (always)" in shown(app):
                break
            before = shown(app)
            assert "the last line" not in before
            await say(app, pilot, "y", lambda app, before=before: shown(app) != before and app._asked is not None)
        assert "the last line" in shown(app)
        assert not (tmp_path / "made.txt").exists()
        await say(app, pilot, "y")
        assert (tmp_path / "made.txt").exists()

    play(tmp_path, script, "long_shell", "--sandbox", "off")


def test_the_status_line_is_drawn_when_it_changes_and_never_lays_the_log_out(tmp_path):
    async def script(app, pilot):
        await pilot.pause()
        drawn = []
        app.query_one("#status").refresh = lambda *regions, **options: drawn.append(options)
        app._draw()
        assert drawn == []
        app._hint = "something else"
        app._draw()
        assert drawn == [{}]

    play(tmp_path, script)


def test_another_model_after_the_embedded_one_has_its_tools_again(tmp_path, monkeypatch):
    made = talk(tmp_path)
    monkeypatch.setattr("glidepath.apps.cli.agent_maker.EMBEDDED", ("python:flights:hello",))
    made.settings.known["tools"] = Known(("list",), "default")
    made.answer_command("/model python:flights:hello")
    assert made.agent.config.tools == ()
    made.answer_command("/model python:flights:chat")
    assert [tool.name for tool in made.agent.config.tools] == ["list"]
