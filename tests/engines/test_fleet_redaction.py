"""With a redaction hook, nothing of what it hides is in the fleet's database: not in a journal, not beside one."""

import asyncio

import pytest

from glidepath import Agent, ConfigurationError, Limits
from glidepath.apps.fleet import WorkerFlight
from glidepath.engines.dbos import Fleet, Worker
from glidepath.errors import StoreError
from glidepath.testing import ScriptedModel

from .kit import Crew, fetch, fresh_database, until
from .test_ledger import admit, leave

pytestmark = pytest.mark.process
SECRET = "4929000000000001"


def hide(text):
    return text.replace(SECRET, "[card]")


def broken(text):
    raise ValueError("no")


async def everything(address):
    """Every row of every table of the database, as text."""
    tables = await fetch(
        address,
        "SELECT quote_ident(schemaname) || '.' || quote_ident(tablename) FROM pg_tables "
        "WHERE schemaname NOT IN ('pg_catalog', 'information_schema')",
    )
    found = {}
    for (name,) in tables:
        found[name] = " ".join([row[0] for row in await fetch(address, f"SELECT to_jsonb(t)::text FROM {name} t")])
    return found


async def holds_secret(address):
    hexed = SECRET.encode().hex()
    return [name for name, text in (await everything(address)).items() if SECRET in text or hexed in text]


def test_a_submitted_task_is_in_no_table(tmp_path):
    address = fresh_database()

    async def go(hook):
        folder = tmp_path / (hook or "plain")
        folder.mkdir()
        with Crew(address, folder) as crew:
            crew.options += ["--redact", f"python:crew:{hook}"] if hook else []
            crew.start(1)
            await until(lambda: crew.ready() == 1, 30)
            async with Fleet(address, redact=hide if hook else None) as fleet:
                about = {"metadata": {"card": SECRET}, "user": f"user {SECRET}"}
                session = await fleet.submit("stepper", f"Charge {SECRET}.", **about)
                await fleet.send(session, f"Use {SECRET}.")
                await fleet.wait(session, 60)
                result = await fleet.result(session)
                await fleet.stop(session, f"because of {SECRET}")
        return result, await holds_secret(address)

    result, found = asyncio.run(go("hide"))
    assert result.messages[0].text == "Charge [card]."
    assert found == []
    _, found = asyncio.run(go(""))
    assert found  # the test can see it


def test_why_a_run_failed_is_put_through_the_hook():
    address = fresh_database()

    async def go(hook):
        agent = Agent(model=ScriptedModel([]), limits=Limits(max_iterations=2))
        one = Worker(address, agents={"small": agent}, redact=hook)
        await one._prepare()
        one.id = "me"
        session = f"s {hook.__name__}"
        assert await admit(one, session) == ""
        flight = WorkerFlight(one, session, "small", "go")
        flight.doomed = f"cannot charge {SECRET}"
        assert await flight.run_to_end() == "failed"
        found = await one.ledger.outcome(session)
        await leave(one)
        return found

    assert asyncio.run(go(hide)) == ("failed", "cannot charge [card]")
    assert asyncio.run(go(broken)) == ("failed", "the reason may not be stored: the redaction hook failed")


def test_a_hook_that_fails_or_leaves_nothing_queues_nothing(tmp_path):
    address = fresh_database()

    async def go():
        with Crew(address, tmp_path) as crew:
            crew.start(1)
            await until(lambda: crew.ready() == 1)
            async with Fleet(address, redact=broken) as fleet:
                with pytest.raises(StoreError, match="the redaction hook failed"):
                    await fleet.submit("stepper", "go")
            async with Fleet(address, redact=lambda _: " ") as fleet:
                with pytest.raises(ConfigurationError, match="leaves nothing of a task"):
                    await fleet.submit("stepper", "go")
            return await fetch(address, "SELECT count(*) FROM glidepath_fleet_runs")

    assert asyncio.run(go())[0][0] == 0


def test_a_hook_must_be_a_function():
    with pytest.raises(ConfigurationError, match="redact must be a function"):
        Fleet("postgresql://nowhere/x", redact="hide")
