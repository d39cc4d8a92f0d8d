"""What is said to runs of a fleet from outside: decide, send, stop, look, submit many, forget."""

import asyncio

import pytest

from glidepath import approve, deny
from glidepath.engines.dbos import Fleet, Quota
from glidepath.errors import ConfigurationError, QuotaError
from glidepath.messages import UserMessage

from .crew import STEPS
from .kit import Crew, fetch, fresh_database, until

pytestmark = pytest.mark.process
ENGINE = ("workflow_status", "workflow_input", "workflow_output", "operation_outputs")


@pytest.fixture(scope="module")
def crew(tmp_path_factory):
    agents = ("stepper=crew:stepper", "careful=crew:careful")
    made = Crew(fresh_database(), tmp_path_factory.mktemp("crew"), pause=0.2, agents=agents)
    with made:
        made.start(1)
        asyncio.run(until(made.ready))
        yield made


def with_fleet(crew, work):
    async def go():
        async with Fleet(crew.address) as fleet:
            return await asyncio.wait_for(work(fleet), 60)

    return asyncio.run(go())


async def left(address, session):
    """The rows of a run, in the fleet's tables and the engine's."""
    query = "SELECT count(*) FROM glidepath_fleet_runs WHERE session = $1"
    counts = [(await fetch(address, query, session))[0][0]]
    for table in ENGINE:
        query = f"SELECT count(*) FROM dbos.{table} WHERE workflow_uuid = $1"
        counts.append((await fetch(address, query, session))[0][0])
    return sum(counts)


def test_g12_a_paused_run_goes_on_in_the_fleet_inside_its_tenant(crew):
    async def work(fleet):
        await fleet.set_tenant("acme", day=Quota(tokens=1_000_000))
        session = await fleet.submit("careful", "go", tenant="acme")
        assert await fleet.wait(session) == "paused"
        paused, status = await fleet.result(session), await fleet.status()
        assert [(run.session, run.tenant, run.state, run.worker) for run in status.runs] == [
            (session, "acme", "paused", None)
        ]
        assert (status.queued, status.running, status.waiting, status.failed, status.oldest) == (0, 0, 1, 0, None)
        await fleet.resume(session, {paused.pending[0].call.id: approve()})
        await fleet.resume(session)  # a second time is the same time
        await until(lambda: ended(fleet, session))
        assert (await fleet.status()).waiting == 0
        accounts = [account for account in await fleet.accounts() if "day" in account.name]
        return await fleet.result(session), accounts

    result, (day,) = with_fleet(crew, work)
    assert result.outcome.name == "DONE"
    assert [message.text for message in result.messages if message.role == "tool_result"] == ["sent 0"]
    assert day.tokens == result.usage.total > 0
    assert day.runs == 1


async def ended(fleet, session):
    return await fleet.outcome(session) not in (None, "paused")


def test_a_run_that_is_not_paused_is_not_resumed(crew):
    async def work(fleet):
        session = await fleet.submit("stepper", "go")
        assert await fleet.wait(session) == "done"
        await fleet.resume(session, {"c0": deny()})

    with pytest.raises(ConfigurationError, match="is done: only a paused run can be resumed"):
        with_fleet(crew, work)


def test_g7_a_paused_run_can_be_stopped(crew):
    async def work(fleet):
        session = await fleet.submit("careful", "go")
        assert await fleet.wait(session) == "paused"
        await fleet.stop(session, "not any more")
        await until(lambda: ended(fleet, session))
        return await fleet.result(session)

    result = with_fleet(crew, work)
    assert result.outcome.name == "CANCELLED"
    assert result.cause.reason == "not any more"


def test_a_message_reaches_a_run_in_a_worker(crew):
    async def work(fleet):
        session = await fleet.submit("stepper", "go")
        await until(lambda: in_flight(fleet, session))
        await fleet.send(session, "hurry up")
        await fleet.wait(session)
        return await fleet.result(session)

    async def in_flight(fleet, session):
        return session in [run.session for run in (await fleet.status()).runs if run.state == "running"]

    result = with_fleet(crew, work)
    assert "hurry up" in [message.text for message in result.messages if type(message) is UserMessage]


def test_the_status_says_what_waits_and_who_flies_what(crew):
    async def work(fleet):
        sessions = await fleet.submit_many("stepper", [f"status {number}" for number in range(12)])

        async def full():
            return (await fleet.status()).running == 8

        await until(full)
        status, ((worker, _),) = await fleet.status(), await fleet.workers()
        lines = (await asyncio.to_thread(crew.command, "fleet", "status")).stdout.splitlines()
        for session in sessions:
            await fleet.wait(session)
        return sessions, status, worker, lines, await fleet.status()

    sessions, status, worker, lines, after = with_fleet(crew, work)
    assert (status.queued, status.running) == (4, 8)
    assert status.oldest > 0
    flown = {run.session for run in status.runs if run.state == "running"}
    assert len(flown & set(sessions)) == 8
    assert {run.worker for run in status.runs if run.state == "running"} == {worker}
    assert any(line.startswith("runs: ") and "queued" in line and "running" in line for line in lines)
    assert any(line.startswith("running ") and " on " in line for line in lines)
    assert any(line.startswith("the oldest in a queue has waited") for line in lines)
    assert (after.queued, after.running, after.oldest) == (0, 0, None)


def test_many_runs_are_queued_together_or_not_at_all(crew):
    async def work(fleet):
        await fleet.set_tenant("small", day=Quota(runs=3))
        with pytest.raises(QuotaError, match="all 3 runs are used"):
            await fleet.submit_many("stepper", ["go"] * 4, tenant="small")
        names = [f"small {number}" for number in range(3)]
        assert await fleet.submit_many("stepper", ["go"] * 3, tenant="small", sessions=names) == names
        assert await fleet.submit_many("stepper", ["go"] * 3, tenant="small", sessions=names) == names
        return [await fleet.wait(name) for name in names]

    assert with_fleet(crew, work) == ["done"] * 3


def test_the_runs_of_a_batch_are_queued_in_the_order_in_which_they_were_submitted(crew):
    """The engine starts what has waited longest, so no two of a batch may have waited equally long."""

    async def work(fleet):
        sessions = await fleet.submit_many("stepper", ["go"] * 12)
        query = "SELECT workflow_uuid, created_at FROM dbos.workflow_status WHERE workflow_uuid = ANY($1)"
        since = dict(await fetch(crew.address, query, sessions))
        assert [await fleet.wait(session) for session in sessions] == ["done"] * 12
        return [since[session] for session in sessions]

    since = with_fleet(crew, work)
    assert since == sorted(set(since))


def test_a_task_reaches_its_worker_character_for_character(crew):
    task = "\u2028, \U0001f6eb, \\u0000, {\"a\": [1, null]}, 'x' $1 %s"

    async def work(fleet):
        session = await fleet.submit("stepper", task, metadata={"note": 'a "b" \\ c'})
        await fleet.wait(session)
        return await fleet.result(session)

    assert with_fleet(crew, work).messages[0].text == task


@pytest.mark.parametrize(
    ("tasks", "sessions", "names"),
    [
        ([], None, "tasks must be"),
        ("go", None, "tasks must be"),
        (["go"] * 1001, None, "tasks must be"),
        (["go", " "], None, "task is empty"),
        (["go"], [], "one id for each"),
        (["go", "go"], ["a", "a"], "a duplicate id"),
        (["go"], [""], "session must be an id"),
    ],
)
def test_a_wrong_batch_is_refused(crew, tasks, sessions, names):
    with pytest.raises(ConfigurationError, match=names):
        with_fleet(crew, lambda fleet: fleet.submit_many("stepper", tasks, sessions=sessions))


def test_what_is_pruned_leaves_no_row_and_its_id_can_be_used_again(crew):
    async def work(fleet):
        await fleet.submit("stepper", "go", session="again")
        await fleet.wait("again")
        await until(lambda: engine_has_ended("again"))
        before = await left(crew.address, "again")
        await fleet.prune(older_than=0)
        after = await left(crew.address, "again")
        await fleet.submit("stepper", "something else", session="again")
        return before, after, await fleet.wait("again")

    async def engine_has_ended(session):
        query = "SELECT status FROM dbos.workflow_status WHERE workflow_uuid = $1"
        return (await fetch(crew.address, query, session))[0][0] == "SUCCESS"

    before, after, outcome = with_fleet(crew, work)
    assert before >= 3
    assert after == 0
    assert outcome == "done"
    assert len(crew.sent()) >= STEPS


def test_what_tenants_used_long_ago_is_forgotten(crew):
    async def work(fleet):
        await fleet.set_tenant("old", day=Quota(runs=9))
        await fetch(
            crew.address,
            "INSERT INTO glidepath_budgets(name) VALUES('tenant old, day 2024-02-29'), ('tenant old, month 2024-02')",
        )
        await fleet.prune(older_than=60 * 86_400)
        return [account.name for account in await fleet.accounts() if "old" in account.name]

    names = with_fleet(crew, work)
    assert len(names) == 2
    assert not any("2024" in name for name in names)


def test_the_commands_decide_send_and_stop(crew):
    def command(*argv):
        done = crew.command(*argv)
        assert done.returncode == 0, done.stderr
        return done

    session = command("submit", "careful", "go").stdout.strip()
    paused = with_fleet(crew, lambda fleet: paused_result(fleet, session))
    call_id = paused.pending[0].call.id
    shown = command("fleet", "status").stdout
    assert f"paused {session}: careful" in shown
    command("decide", session, call_id, "deny", "not", "today", "--store", crew.address)
    command("send", session, "by the way", "--store", crew.address)
    command("fleet", "resume", session)

    async def rest(fleet):
        await until(lambda: ended(fleet, session))
        return await fleet.result(session)

    result = with_fleet(crew, rest)
    assert "not today" in next(message.text for message in result.messages if message.role == "tool_result")
    assert "by the way" in [message.text for message in result.messages if type(message) is UserMessage]
    assert crew.command("decide", session, call_id, "answer", "--store", crew.address).returncode == 2
    assert "there is no session" in crew.command("send", "nobody", "hello", "--store", crew.address).stderr


async def paused_result(fleet, session):
    assert await fleet.wait(session) == "paused"
    return await fleet.result(session)


def test_a_submit_waits_for_a_worker_that_is_starting(tmp_path):
    async def go():
        with Crew(fresh_database(), tmp_path) as crew:
            async with Fleet(crew.address) as fleet:
                with pytest.raises(ConfigurationError, match="no worker has offered"):
                    await fleet.submit("stepper", "go")
                crew.start(1)
                await until(fleet.workers)
                early = not crew.ready()
                session = await fleet.submit("stepper", "go")
                return early, await fleet.wait(session, 30)

    early, outcome = asyncio.run(go())
    assert outcome == "done"
    assert early  # it is a worker before it has a queue
