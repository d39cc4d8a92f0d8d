"""Sessions carried from one store to another are the same there."""

import asyncio

import pytest

from glidepath import Agent, Limits, LoopOutcome, approve, tool
from glidepath.errors import StoreError
from glidepath.sessions import MemoryStore, SqliteStore
from glidepath.sessions.archive import read_journal
from glidepath.sessions.chain import link
from glidepath.sessions.migrate import migrate
from glidepath.sessions.owner import this_owner
from glidepath.spi.session_catalog import SessionQuery
from glidepath.spi.wallets import Hold, WalletDraw, WalletTerms
from glidepath.testing import ScriptedModel, call, say

from .test_damage import flip_a_bit as hurt_sqlite
from .test_damage import fly, key_of


@tool(requires_approval=True)
async def send(to: str) -> str:
    return f"sent to {to}"


def stores(tmp_path):
    return {
        "sqlite": lambda: SqliteStore(tmp_path / "s.db"),
        "another": lambda: SqliteStore(tmp_path / "other.db"),
        "memory": MemoryStore,
    }


async def everything(store):
    found = {}
    for listed in await store.entries():
        entry, commits = await store.load(listed.session_id)
        found[entry.session_id] = (entry.head, entry.hash, dict(entry.summary), tuple(commits))
    return found


@pytest.mark.parametrize(("one", "other"), [("sqlite", "another"), ("memory", "sqlite"), ("sqlite", "memory")])
def test_everything_is_carried_over_as_it_is_and_only_once(tmp_path, one, other):
    async def scene():
        source, target = stores(tmp_path)[one](), stores(tmp_path)[other]()
        for number in range(3):
            await fly(source, f"s{number}")
        paused = Agent(
            model=ScriptedModel([call("send", to="a")]), tools=[send], store=source, limits=Limits(max_iterations=5)
        )
        await paused.run("go", session="waits")
        truth = await everything(source)
        done = await migrate(source, target)
        assert (done.moved, done.left) == (("s0", "s1", "s2", "waits"), {})
        assert await everything(target) == truth == await everything(source)
        again = await migrate(source, target)
        assert again.left == {}
        assert await everything(target) == truth
        agent = Agent(model=ScriptedModel([say("sent")]), tools=[send], store=target, limits=Limits(max_iterations=5))
        result = await agent.resume("waits", decisions={"call_1": approve()})  # with all its authority
        assert (result.outcome, result.text) == (LoopOutcome.DONE, "sent")
        await source.close()
        await target.close()

    asyncio.run(scene())


def test_what_cannot_be_carried_over_is_left_and_told(tmp_path):
    async def scene():
        path = tmp_path / "s.db"
        source, target = SqliteStore(path), SqliteStore(tmp_path / "other.db")
        for name in ("hurt", "well", "twice"):
            await fly(source, name)
        hurt_sqlite(path)
        assert key_of(path)
        held = await source.claim("busy", this_owner())
        await fly(target, "twice", turns=2)
        done = await migrate(source, target)
        assert done.moved == ("well",)
        assert set(done.left) == {"hurt", "busy", "twice"}
        assert "commit 6 was changed" in done.left["hurt"]
        assert "in flight" in done.left["busy"]
        assert "has another session" in done.left["twice"]
        await source.release(held)

    asyncio.run(scene())


def test_a_copy_that_was_cut_short_cannot_be_resumed_and_is_completed(tmp_path):
    async def scene():
        source, target = SqliteStore(tmp_path / "s.db"), MemoryStore()
        await fly(source, "s")
        truth = await everything(source)
        append, calls = target.append, []

        def dying(lease, commit, **options):
            calls.append(commit)
            if len(calls) == 5:
                raise StoreError("the process is gone", kind="unavailable")
            return append(lease, commit, **options)

        target.append = dying
        assert "gone" in (await migrate(source, target)).left["s"]
        with pytest.raises(StoreError, match="unfinished copy"):
            await read_journal(target, "s")
        assert (await migrate(source, target)).left == {}
        assert await everything(target) == truth

    asyncio.run(scene())


def test_a_session_without_commits_and_a_stop_are_carried_over(tmp_path):
    async def scene():
        source, target = MemoryStore(), SqliteStore(tmp_path / "other.db")
        lease = await source.claim("empty", this_owner())
        await source.release(lease)
        lease = await source.claim("stopped", this_owner())
        source.append(lease, link(b"", 1, 1, 1.0, [("note", {})]))
        await source.release(lease)
        await source.flag("stopped", "enough")
        assert (await migrate(source, target)).left == {}
        assert {entry.session_id: (entry.head, entry.flag) for entry in await target.entries()} == {
            "empty": (0, None),
            "stopped": (1, "enough"),
        }
        await target.close()

    asyncio.run(scene())


def test_titles_tags_and_wallets_are_carried_over(tmp_path):
    async def scene():
        source, target = SqliteStore(tmp_path / "s.db"), SqliteStore(tmp_path / "other.db")
        await fly(source, "s")
        await source.annotate("s", title="Trip", tags=["a", "b"])
        hold = Hold(key="run", leg=1, owner=this_owner(), line=(WalletTerms(name="team", max_tokens=1000),))
        await source.draw(hold, WalletDraw(asked_tokens=300, least_tokens=300))
        await source.settle(hold, 120, 7)
        assert (await migrate(source, target)).left == {}
        (entry,) = (await target.find(SessionQuery(tag="a"))).sessions
        assert (entry.title, entry.tags) == ("Trip", ("a", "b"))
        (wallet,) = await target.wallets("team")
        assert (wallet.tokens, wallet.money, wallet.max_tokens) == (120, 7, 1000)
        assert (await migrate(source, target)).left == {}
        assert await target.wallets() == await source.wallets()
        memory = MemoryStore()
        assert (await migrate(target, memory)).left == {}
        assert [wallet.tokens for wallet in await memory.wallets()] == [120]
        await source.close()
        await target.close()

    asyncio.run(scene())
