"""Redaction runs before anything is written, fails closed, and what it changed is never run from the journal."""

import asyncio
import re

import pytest
from tests.crash.test_journal import SCENES, TOOLS, plain

from glidepath import Agent, ConfigurationError, Limits, LoopOutcome, _wire, approve, tool
from glidepath.errors import StoreError
from glidepath.outcome import RunResult, Snapshot
from glidepath.run.snapshot import take_snapshot
from glidepath.sessions import (
    JournalRecorder,
    MemoryStore,
    RedactingStore,
    Redactor,
    SqliteStore,
    annotate,
    checkpoints as bases,
    decide,
    export_journal,
    find_sessions,
    import_journal,
    read_journal,
    repair,
    send,
    stop,
    verify_commits,
)
from glidepath.sessions.chain import plain_payload
from glidepath.sessions.fold import fold
from glidepath.teams import Member, Team, TeamExecutionRequest
from glidepath.testing import ScriptedModel, VirtualClock, call, calls, say
from glidepath.values import codec

SECRET = re.compile(r"hunter2|sk-\w+")
LIMITS = Limits(max_iterations=20, max_tokens=200_000)


def hide(text):
    return SECRET.sub("[hidden]", text)


def stars(_text):
    return "***"


def shout(text):
    return text.upper()


HOOKS = [hide, stars, shout, lambda text: text]


def redacted(hook, value, kind):
    """A live value in its redacted form."""
    return _wire.convert(Redactor(hook).record("ended", value), kind)


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("hook", HOOKS, ids=["hide", "stars", "shout", "nothing"])
def test_g13_the_fold_is_the_live_run_in_its_redacted_form(scene, hook, monkeypatch):
    turns, config = SCENES[scene]
    config = {"limits": LIMITS, **config}
    write, checked = JournalRecorder._write, []

    async def watched(self, *args, **keywords):
        later = write(self, *args, **keywords)
        if later is not None:
            await later
        entry, commits = await self.store.load(self.lease.session_id)
        folded = fold(verify_commits(commits, head=entry.head))
        live = [
            codec.decode(_wire.encode(Redactor(hook).record("message", one))) for one in self._run.transcript.messages
        ]
        assert folded.messages == live
        found, wanted = plain(folded.snapshot), plain(redacted(hook, take_snapshot(self._run), Snapshot))
        assert found == _wire.replace(wanted, text=found.text)  # in one piece or in blocks
        checked.append(entry.head)

    monkeypatch.setattr(JournalRecorder, "_write", watched)

    async def fly():
        store = RedactingStore(MemoryStore(), hook)
        agent = Agent(model=ScriptedModel(turns), tools=TOOLS, store=store, **config)
        result = await agent.run("my password is hunter2", session="s")
        journal = await read_journal(store, "s")
        kept = journal.folded.result
        bare = _wire.replace(result, messages=(), new_messages=())
        wanted = redacted(hook, bare, RunResult)
        assert _wire.replace(kept, messages=(), new_messages=()) == _wire.replace(wanted, snapshot=kept.snapshot)
        assert result.messages[0].text == "my password is hunter2"  # the live run is not
        return journal

    VirtualClock().run(fly())
    assert len(checked) >= 2


def test_no_byte_of_what_is_hidden_reaches_the_file(tmp_path):
    @tool
    async def login(password: str) -> str:
        """Log in."""
        return f"logged in with {password}, token sk-live0123"

    async def fly():
        store = RedactingStore(SqliteStore(tmp_path / "s.db"), hide)
        kid = Agent(model=ScriptedModel([say("kid says hunter2")]), limits=LIMITS)
        agent = Agent(
            model=ScriptedModel(
                [
                    calls(call("login", password="hunter2"), call("login", password="hunter2 again")),
                    call("nothing", key="sk-abc"),
                    call("kid", task="use hunter2"),
                    say("it was hunter2"),
                ]
            ),
            tools=[login, kid.as_tool("kid", "x")],
            limits=LIMITS,
            store=store,
        )
        result = await agent.run("password: hunter2", session="s", metadata={"note": "sk-meta"}, user="hunter2")
        assert result.text == "it was hunter2"
        await annotate(store, "s", title="all about hunter2")
        made = await store.fork("s", at=1)
        assert (await find_sessions(store, text="all about [hidden]", prefix="s")).sessions[0].session_id
        assert "hunter2" not in repr(made)
        await Agent(model=ScriptedModel([say("hunter2")]), limits=LIMITS, store=store).run("more hunter2", session="s")
        await store.close()

    asyncio.run(fly())
    data = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"[hidden]" in data
    assert not re.search(rb"hunter2|sk-\w", data)


class Broken:
    def __init__(self, after):
        self.left = after

    def __call__(self, text):
        self.left -= 1
        if self.left < 0:
            raise RuntimeError("the vault is closed")
        return text


def test_g9_a_hook_that_fails_lets_nothing_be_written():
    async def fly():
        for after in range(99):
            inner = MemoryStore()
            agent = Agent(
                model=ScriptedModel([call("look", n=1), call("look", n=2), say("done")]),
                tools=TOOLS,
                limits=LIMITS,
                store=RedactingStore(inner, Broken(after)),
            )
            result = await agent.run("hunter2", session="s")
            if result.outcome is LoopOutcome.DONE:
                assert after > 9
                return
            assert (result.outcome, result.cause.source) == (LoopOutcome.FAILED, "store")
            assert "the redaction hook failed, so nothing was written: RuntimeError" in result.cause.reason
            entry, commits = await inner.load("s")
            list(verify_commits(commits, head=entry.head))

    asyncio.run(fly())


@pytest.mark.parametrize("answer", [None, b"x", 7, ["x"]], ids=["None", "bytes", "int", "list"])
def test_a_hook_that_returns_no_text_fails(answer):
    async def fly():
        store = RedactingStore(MemoryStore(), lambda _text: answer)
        result = await Agent(model=ScriptedModel([say("x")]), limits=LIMITS, store=store).run("go", session="s")
        assert (result.outcome, "must return a str" in result.cause.reason) == (LoopOutcome.FAILED, True)

    asyncio.run(fly())


def test_what_is_no_store_or_no_hook_is_refused():
    with pytest.raises(ConfigurationError, match="takes a session store"):
        RedactingStore("s.db", hide)
    with pytest.raises(ConfigurationError, match="takes a function of a str"):
        RedactingStore(MemoryStore(), "hide")


def cut_store(store, number):
    shelf = store._shelves["s"]
    del shelf.commits[number:]
    last = shelf.commits[-1]
    shelf.entry = _wire.replace(shelf.entry, head=last.number, hash=last.hash, owner=None, summary={})


@pytest.mark.parametrize("begun", [True, False], ids=["begun", "not begun"])
def test_g13_a_redacted_call_is_unknown_after_a_crash_only_if_it_had_begun(begun):
    async def fly():
        done = []

        @tool(idempotent=True)
        async def pay(card: str) -> str:
            """Pay."""
            done.append(card)
            return "paid"

        inner = MemoryStore()
        store = RedactingStore(inner, hide)
        turns = [calls(call("pay", card="sk-1"), call("pay", card="open")), say("x")]
        await Agent(model=ScriptedModel(turns), tools=[pay], limits=LIMITS, store=store).run("go", session="s")
        cut_store(inner, 3)
        if not begun:
            inner._shelves["s"].commits[2:] = [
                _without(inner._shelves["s"].commits[1], inner._shelves["s"].commits[2], "intent")
            ]
            last = inner._shelves["s"].commits[-1]
            inner._shelves["s"].entry = _wire.replace(inner._shelves["s"].entry, hash=last.hash)
        done.clear()
        after = Agent(model=ScriptedModel([say("checked")]), tools=[pay], limits=LIMITS, store=store)
        result = await after.resume("s")
        assert (result.text, done) == ("checked", ["open"])
        assert [one.id for one in result.unknown_effects] == (["call_1"] if begun else [])
        (told,) = [one for one in result.messages if one.role == "tool_result" and one.call_id == "call_1"]
        assert (told.kind, told.details) == (
            ("unknown_effect", {"unknown": "redacted"}) if begun else ("interrupted", None)
        )
        assert ("the process died while this call was running" in told.text) is begun
        assert ("Not executed" in told.text) is not begun

    asyncio.run(fly())


def _without(before, commit, kind):
    from glidepath.sessions import link, read

    records = read(commit)
    items = [(record.kind, record.payload) for record in records if record.kind != kind]
    return link(before.hash, commit.number, records[0].sequence, records[0].time, items)


def test_an_approval_of_a_redacted_call_must_bring_the_arguments():
    async def fly():
        done = []

        @tool(requires_approval=True)
        async def pay(card: str) -> str:
            """Pay."""
            done.append(card)
            return "paid"

        for decision, wanted, kind in ((approve(), [], "interrupted"), (approve({"card": "sk-2"}), ["sk-2"], None)):
            done.clear()
            store = RedactingStore(MemoryStore(), hide)
            model = ScriptedModel([call("pay", card="sk-1"), say("end")])
            agent = Agent(model=model, tools=[pay], limits=LIMITS, store=store)
            await agent.run("go", session="s")
            result = await agent.resume("s", decisions={"call_1": decision})
            (told,) = [one for one in result.messages if one.role == "tool_result"]
            assert (result.text, done, told.kind, result.unknown_effects) == ("end", wanted, kind, ())

    asyncio.run(fly())


def test_what_is_imported_is_redacted_as_well():
    async def fly():
        plain_store = MemoryStore()
        agent = Agent(model=ScriptedModel([call("send", to="sk-9"), say("x")]), tools=TOOLS, limits=LIMITS)
        agent = Agent(_wire.replace(agent.config, store=plain_store))
        await agent.run("hunter2", session="s")
        inner = MemoryStore()
        store = RedactingStore(inner, hide)
        await import_journal(store, await export_journal(plain_store, "s"))
        _, commits = await inner.load("s")
        assert not any(SECRET.search(commit.body.decode()) for commit in commits)
        after = Agent(model=ScriptedModel([say("end")]), tools=TOOLS, limits=LIMITS, store=store)
        result = await after.resume("s", decisions={"call_1": approve()})
        (told,) = [one for one in result.messages if one.role == "tool_result"]
        assert (told.kind, result.unknown_effects) == ("interrupted", ())

    asyncio.run(fly())


@pytest.mark.parametrize("name", [None, "other"])
def test_what_an_imported_journal_repeats_of_itself_is_redacted_as_well(name, monkeypatch):
    """Bases hold the messages once more, and a repair keeps the commits behind the damage."""
    monkeypatch.setattr(bases, "SPAN", 5)

    async def fly():
        @tool
        async def mail(to: str) -> str:
            """Mail."""
            return f"mailed {to}"

        source = MemoryStore()
        for _ in range(4):
            model = ScriptedModel([call("mail", to="sk-9"), say("sent to sk-9")])
            await Agent(model=model, tools=[mail], limits=LIMITS, store=source).run("hunter2", session="s")
        commits = source._shelves["s"].commits
        commits[-4] = _wire.replace(commits[-4], body=b"[]")
        await repair(source, "s")
        kinds = {record.kind for record in (await read_journal(source, "s")).records()}
        assert {"base", "quarantine"} <= kinds
        inner = MemoryStore()
        new = await import_journal(RedactingStore(inner, hide), await export_journal(source, "s"), session_id=name)
        _, commits = await inner.load(new)
        assert not [commit.number for commit in commits if SECRET.search(commit.body.decode())]
        folded = fold(commits)
        assert [one.arguments for one in folded.repaired.effects] == [{"to": "[hidden]"}]
        assert folded.repaired.kept

    asyncio.run(fly())


@pytest.mark.parametrize(
    "records", [None, 7, "hunter2", {"a": "hunter2"}, [7], [[1, 2.0, "message"]], [[1, 2, 3, "sk-1"]]], ids=str
)
def test_what_no_commit_can_be_is_left_out_of_what_a_repair_kept(records):
    kept = {"reason": "torn", "first": 1, "kept": [{"commit": 1, "hash": "", "records": records}]}
    (_, told), *_ = Redactor(hide).items([("quarantine", kept)])
    assert told == {**kept, "kept": [{"commit": 1, "hash": "", "records": []}]}


def test_the_journal_of_a_team_is_redacted_too():
    async def fly():
        inner = MemoryStore()
        worker = Agent(model=ScriptedModel().forever(say("it is hunter2")), limits=LIMITS)
        team = Team(members=[Member(name="bee", agent=worker)], store=RedactingStore(inner, hide))
        result = await team.run(TeamExecutionRequest(goal="find hunter2", id="r1"))
        assert "hunter2" in result.final_output
        for entry in await inner.entries():
            _, commits = await inner.load(entry.session_id)
            assert not any(b"hunter2" in commit.body for commit in commits), entry.session_id
            assert "hunter2" not in repr(entry.summary)
        again = await Team(members=[Member(name="bee", agent=worker)], store=RedactingStore(inner, hide)).resume("r1")
        assert "[hidden]" in again.final_output

    asyncio.run(fly())


def test_a_payload_is_redacted_as_a_reader_finds_it():
    kept = Redactor(hide).record("note", {"name": "hunter2", "text": "hunter2", "arguments": {"hunter2": ["hunter2"]}})
    assert kept == {"name": "hunter2", "text": "[hidden]", "arguments": {"[hidden]": ["[hidden]"]}}
    assert plain_payload(_wire.Raw(b'{"a":1}')) == {"a": 1}


def test_notes_are_redacted_and_a_decision_that_would_change_is_refused():
    async def fly():
        inner = MemoryStore()
        store = RedactingStore(inner, hide)
        model = ScriptedModel([call("send", to="x"), say("end")])
        agent = Agent(model=model, tools=TOOLS, limits=LIMITS, store=store)
        await agent.run("go", session="s")
        await send(store, "s", "the password is hunter2")
        with pytest.raises((StoreError, ConfigurationError), match="resume"):
            await decide(store, "s", {"call_1": approve({"to": "sk-1"})})
        await decide(store, "s", {"call_1": approve({"to": "bob"})})
        assert not any(b"hunter2" in note.body for note in await inner.notes("s"))
        result = await agent.resume("s")
        assert "the password is [hidden]" in [message.text for message in result.messages]
        assert "sent to bob" in [message.text for message in result.messages]

    asyncio.run(fly())


def test_the_reason_of_a_stop_is_redacted():
    async def fly():
        inner = MemoryStore()
        store = RedactingStore(inner, hide)
        agent = Agent(model=ScriptedModel([call("send", to="x"), say("end")]), tools=TOOLS, limits=LIMITS, store=store)
        await agent.run("go", session="s")
        await stop(store, "s", "it told hunter2")
        (entry,) = await inner.entries("s")
        assert entry.flag == "it told [hidden]"
        assert (await agent.resume("s")).cause.reason == "it told [hidden]"

    asyncio.run(fly())


def test_a_tag_that_would_be_redacted_is_refused_and_left_out_of_copies():
    async def fly():
        plain_store, inner = MemoryStore(), MemoryStore()
        await Agent(model=ScriptedModel([say("x")]), limits=LIMITS, store=plain_store).run("go", session="s")
        await annotate(plain_store, "s", tags=["june", "hunter2"])
        store = RedactingStore(inner, hide)
        await import_journal(store, await export_journal(plain_store, "s"))
        assert (await find_sessions(inner)).sessions[0].tags == ("june",)
        with pytest.raises(ConfigurationError, match=r"tags: 1 of these would be redacted; choose others"):
            await annotate(store, "s", tags=["may", "sk-9"])
        assert (await find_sessions(inner)).sessions[0].tags == ("june",)

    asyncio.run(fly())
