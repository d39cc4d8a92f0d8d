"""Lists on a bad day: what failed, since when, where a text was said, and the same done to many runs at once."""

import asyncio

import pytest

from glidepath import Agent, Limits, tool
from glidepath.errors import RejectedError
from glidepath.sessions import MemoryStore, SqliteStore
from glidepath.testing import ScriptedModel, call, fail, say

from .deck import VIEW, Doors, agent, code, events, flown, pay, search, serving, start


def script(request):
    """What a run does is told by the first word of its task."""
    task = next(message.text for message in request.messages if message.role == "user")
    if task.startswith("fail"):
        return fail(RejectedError("no such model"))
    if task.startswith("loop"):
        return call("search", query="again")
    return say(f'The answer to {task}: Harbor Supplies, "quoted".' if "harbor" in task else f"done with {task}")


def actor(**limits):
    model = ScriptedModel(name="scripted", price=("1", "2"), record=False).forever(script)
    bounds = Limits(max_iterations=3, **limits)
    return Agent(model=model, tools=[search], limits=bounds, agent_name="helper")


async def listed(client, **query):
    answer = await client.get("/api/runs", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def tasks(page):
    return [card["task"] for card in page["runs"]]


@pytest.mark.parametrize("stored", [False, True])
def test_the_list_is_filtered_by_outcome_time_and_what_was_said(tmp_path, stored):
    @flown
    async def main():
        async with serving(actor(), store=SqliteStore(tmp_path / "s.db") if stored else None) as client:
            for task in ("fail one", "harbor one", "plain", "fail two", "loop"):
                await events(client, await start(client, task))
            assert tasks(await listed(client)) == ["loop", "fail two", "plain", "harbor one", "fail one"]
            assert tasks(await listed(client, outcome="failed")) == ["fail two", "fail one"]
            assert tasks(await listed(client, outcome="failed,done")) == ["fail two", "plain", "harbor one", "fail one"]
            assert tasks(await listed(client, outcome="failed", state="running")) == []
            newest = (await listed(client))["runs"][1]["listed"]
            assert tasks(await listed(client, since=newest)) == ["loop", "fail two"]
            assert tasks(await listed(client, until=newest, outcome="failed")) == ["fail one"]
            found = await listed(client, text='HARBOR supplies, "Q')
            assert (tasks(found), found["cursor"]) == (["harbor one"], None)
            assert 'Harbor Supplies, "quoted".' in found["excerpts"][found["runs"][0]["run_id"]]
            assert tasks(await listed(client, text="found again")) == ["loop"]
            assert tasks(await listed(client, text='"query":"Again"')) == ["loop"]
            assert tasks(await listed(client, q="harbor supplies")) == []

    main()


def test_pages_of_a_filtered_list_have_every_run_once(tmp_path):
    @flown
    async def main():
        async with serving(actor(), store=SqliteStore(tmp_path / "s.db")) as client:
            for number in range(9):
                await events(client, await start(client, f"{'fail' if number % 3 else 'plain'} {number}"))
            seen, cursor = [], ""
            while cursor is not None:
                page = await listed(client, outcome="failed,cancelled", limit=2, cursor=cursor)
                assert len(page["runs"]) <= 2
                seen, cursor = seen + tasks(page), page["cursor"]
            assert seen == [f"fail {number}" for number in (8, 7, 5, 4, 2, 1)]

    main()


@pytest.mark.parametrize(
    ("query", "wrong"),
    [
        ("outcome=lost", "bad_outcome"),
        ("outcome=failed,nonsense", "bad_outcome"),
        ("state=failed", "bad_state"),
        ("since=yesterday", "bad_since"),
        ("until=nan", "bad_until"),
        (f"text={'x' * 401}", "bad_text"),
    ],
)
def test_a_filter_that_nobody_knows_is_refused_by_name(query, wrong):
    @flown
    async def main():
        async with serving(agent()) as client:
            assert code(await client.get(f"/api/runs?{query}")) == (400, wrong)

    main()


@pytest.mark.parametrize("name", ["agent", "user", "tag", "q", "text", "cursor"])
def test_a_filter_with_a_nul_character_is_refused_by_name(name):
    @flown
    async def main():
        async with serving(actor(), store=MemoryStore()) as client:
            assert code(await client.get("/api/runs", params={name: "a\0b"})) == (400, f"bad_{name}")

    main()


def test_a_run_in_the_air_is_found_by_its_state_and_not_by_its_last_outcome(tmp_path):
    @flown
    async def main():
        doors = Doors()
        flier = agent(call("wait"), say("done"), tools=doors.tools())
        async with serving(flier, store=SqliteStore(tmp_path / "s.db")) as client:
            run_id = await start(client)
            await doors.entered.wait()
            assert [card["run_id"] for card in (await listed(client, state="running"))["runs"]] == [run_id]
            assert (await listed(client, outcome="done"))["runs"] == []
            doors.open.set()
            await events(client, run_id)
            assert [card["run_id"] for card in (await listed(client, outcome="done"))["runs"]] == [run_id]

    main()


def test_many_runs_are_stopped_and_resumed_at_once_and_each_answers_for_itself(tmp_path):
    @flown
    async def main():
        doors = Doors()
        model = ScriptedModel(name="waiting", record=False).forever(
            lambda request: say("done") if len(request.messages) > 1 else call("wait")
        )
        flier = Agent(model=model, tools=doors.tools(), limits=Limits(max_iterations=9), agent_name="helper")
        async with serving(flier, store=SqliteStore(tmp_path / "s.db")) as client:
            ids = [await start(client, f"run {number}") for number in range(5)]
            body = {"ids": [*ids, ids[0], "nobody"], "reason": "fire drill"}
            answer = (await client.post("/api/batch/stop", json=body)).json()
            assert [one["run_id"] for one in answer["results"]] == [*ids, "nobody"]
            assert [one["error"] is None for one in answer["results"]] == [True] * 5 + [False]
            assert answer["message"] == "5 runs stopped, or asked to; 1 refused"
            assert {card["outcome"] for card in (await listed(client))["runs"]} == {"cancelled"}
            cause = (await client.get(f"/api/runs/{ids[3]}")).json()["cause"]["reason"]
            assert "fire drill (by ada)" in cause
            doors.open.set()
            again = (await client.post("/api/batch/resume", json={"ids": ids})).json()
            assert again["message"] == "5 runs resumed"
            for run_id in ids:
                await events(client, run_id)
            assert {card["outcome"] for card in (await listed(client))["runs"]} == {"done"}
            assert code(await client.post("/api/batch/land", json={"ids": []})) == (400, "bad_ids")
            refused = await client.post(
                "/api/batch/stop", json={"ids": ids}, headers={"authorization": f"Bearer {VIEW}"}
            )
            assert refused.status_code == 403

    main()


def family(limits):
    """An agent whose model asks a child twice: the child takes two turns each time."""
    below = ScriptedModel([call("search", query="x"), say("found")] * 9, name="below", price=("1", "2"))
    helper = Agent(model=below, tools=[search], limits=Limits(max_iterations=5), agent_name="scout")
    above = ScriptedModel([call("ask", task="one"), call("ask", task="two"), say("all")] * 9, name="above")
    return Agent(model=above, tools=[helper.as_tool("ask", "Ask.")], limits=limits, agent_name="helper")


@pytest.mark.parametrize("stored", [True, False])
def test_the_gauges_of_a_parent_count_its_tree_in_the_list_and_in_its_detail(stored):
    @flown
    async def main():
        limits = Limits(max_iterations=40, max_tool_calls=50)
        async with serving(family(limits), store=MemoryStore() if stored else None) as client:
            run_id = await start(client)
            told = await events(client, run_id)
            result = told[-1][2]["result"]
            (card,) = (await listed(client))["runs"]
            detail = (await client.get(f"/api/runs/{run_id}")).json()
            for gauges in (card["gauges"], detail["gauges"], detail["budget"]["gauges"]):
                found = {gauge["kind"]: gauge["used"] for gauge in gauges}
                assert (found["turns"], found["tool_calls"]) == (7, 4)
            assert detail["turn"] == result["iterations"] == 3
            points = (await client.get(f"/api/runs/{run_id}/burn")).json()["points"]
            last = points[-1]
            assert (last["turns"], last["tool_calls"], last["tokens"]) == (7, 4, detail["usage"]["total"])
            assert [point["turns"] for point in points] == sorted(point["turns"] for point in points)

    main()


def test_a_timeline_tells_what_took_how_long_in_order_and_the_longest_first():
    @flown
    async def main():
        async with serving(
            family(Limits(max_iterations=40)), agent(call("pay", amount=1), name="payer", tools=[pay])
        ) as client:
            run_id = await start(client)
            await events(client, run_id)
            page = (await client.get(f"/api/runs/{run_id}/timeline")).json()
            kinds = [span["kind"] for span in page["spans"]]
            assert kinds == ["model", "tool", "child", "model", "tool", "child", "model"]
            assert page["total"] == 7
            assert set(page["seconds"]) == {"model", "tool", "child"}
            for span in page["spans"]:
                assert span["ended"] >= span["started"]
            child = page["spans"][2]
            assert (child["name"], child["note"]) == ("scout", "done")
            assert (await client.get(f"/api/runs/{child['child']}")).json()["agent"] == "scout"
            longest = (await client.get(f"/api/runs/{run_id}/timeline?order=longest&limit=2")).json()["spans"]
            lasted = [span["ended"] - span["started"] for span in page["spans"]]
            assert [span["ended"] - span["started"] for span in longest] == sorted(lasted, reverse=True)[:2]
            assert code(await client.get(f"/api/runs/{run_id}/timeline?order=odd")) == (400, "bad_order")
            paused = await start(client, name="payer")
            await events(client, paused)
            (*_, wait) = (await client.get(f"/api/runs/{paused}/timeline")).json()["spans"]
            assert (wait["kind"], wait["name"], "ended" in wait) == ("wait", "a person's decision", False)

    main()


def test_a_timeline_has_a_call_in_the_background_until_it_ends():
    @tool(background=True)
    async def build(n: int) -> str:
        """Build it."""
        await asyncio.sleep(60 if n > 2 else 0.2)
        if n > 1:
            raise ValueError("too many")
        return f"built {n}"

    @flown
    async def main():
        script = [call("build", n=1), call("build", n=2), call("collect", id="bg-1"), call("collect", id="bg-2")]
        script += [call("build", n=3), say("Done."), say("Really done.")]
        async with serving(agent(*script, name="builder", tools=[build])) as client:
            run_id = await start(client, name="builder")
            await events(client, run_id)
            spans = (await client.get(f"/api/runs/{run_id}/timeline")).json()["spans"]
            tools = [span for span in spans if span["kind"] == "tool"]
            assert [span["name"] for span in tools] == [
                *("build", "build (bg-1)", "build", "build (bg-2)", "collect", "collect", "build", "build (bg-3)"),
            ]
            first, second, third = (span for span in tools if span.get("note") == "in the background")
            assert first["call_id"] == tools[0]["call_id"] != second["call_id"]
            for span in (first, second):
                assert span["ended"] - span["started"] > 0.15
            assert [span.get("failed", False) for span in (first, second, third)] == [False, True, True]
            assert third["started"] <= third["ended"] < third["started"] + 50, "stopped with the run"
            texts = [one["text"] for one in (await client.get(f"/api/runs/{run_id}/messages")).json()["messages"]]
            assert any(text.startswith("Started in the background as bg-1") for text in texts)
            assert "built 1" in texts

    main()


def test_a_detail_has_the_reply_that_is_being_written_and_none_between_two():
    doors = Doors()
    whole = "Then I write. " * 20

    @flown
    async def main():
        first = call("wait").with_text("First I look.")
        async with serving(agent(first, say(whole, delay=0.02), tools=doors.tools())) as client:
            run_id = await start(client)
            await doors.entered.wait()
            between = (await client.get(f"/api/runs/{run_id}")).json()
            assert (between["text"], between["reply"]) == ("First I look.", None)
            doors.open.set()
            replies = []
            while (detail := (await client.get(f"/api/runs/{run_id}")).json())["state"] == "running":
                replies.append(detail["reply"])
                await asyncio.sleep(0.02)
            written = [reply for reply in replies if reply]
            assert written
            assert all(whole.startswith(reply) for reply in written)
            assert detail["reply"] is None

    main()


def test_a_call_that_waits_names_what_its_run_was_asked():
    @flown
    async def main():
        async with serving(agent(call("pay", amount=1), tools=[pay]), store=MemoryStore()) as client:
            run_id = await start(client, "pay the harbor", session="till-4")
            await events(client, run_id)
            (waiting,) = (await client.get("/api/approvals")).json()["approvals"]
            assert (waiting["task"], waiting["session_id"]) == ("pay the harbor", "till-4")

    main()


def test_evaluations_have_a_list_and_reports_of_their_own_with_failures_first(tmp_path):
    from glidepath.evals import Case, Dataset, evaluate

    @flown
    async def main():
        store = SqliteStore(tmp_path / "s.db")
        good = Case(id="a", prompt="plain", expected="done with plain")
        cases = Dataset([good, Case(id="b", prompt="other", expected="something else")], name="small")
        await evaluate(cases, actor(), store=store, name="first")
        async with serving(actor(), store=store) as client:
            assert tasks(await listed(client)) == ["other", "plain"]
            (card,) = (await client.get("/api/evals")).json()["evals"]
            assert (card["name"], card["status"], card["passed"], card["pass_rate"]) == ("first", "completed", 1, 0.5)
            report = (await client.get("/api/evals/first")).json()
            low, high = report["interval"]
            assert (report["total"], low < 0.5 < high, report["cost"] is not None) == (2, True, True)
            failed, passed = report["results"]
            assert (failed["passed"], failed["text"], passed["passed"]) == (False, "done with other", True)
            run = (await client.get(f"/api/runs/{failed['session_id']}")).json()
            assert (run["task"], run["outcome"]) == ("other", "done")
            assert code(await client.get("/api/evals/nothing")) == (404, "unknown_evaluation")

    main()


def test_the_exact_request_of_a_call_is_kept_with_system_tools_and_messages(tmp_path):
    asked = []

    def script_and_keep(request):
        asked.append((request.system_prompt, len(request.messages), [spec.name for spec in request.tools]))
        return call("search", query="x") if len(asked) == 1 else say("done")

    @flown
    async def main():
        model = ScriptedModel(name="scripted", record=False).forever(script_and_keep)
        flier = Agent(
            model=model,
            tools=[search, pay],
            system_prompt="Be brief.",
            temperature=0.3,
            limits=Limits(max_iterations=9, max_tokens=90_000),
            agent_name="helper",
        )
        async with serving(flier, store=SqliteStore(tmp_path / "s.db")) as client:
            run_id = await start(client, "find x")
            await events(client, run_id)
            spans = (await client.get(f"/api/runs/{run_id}/timeline")).json()["spans"]
            calls = [span["started"] for span in spans if span["kind"] == "model"]
            for (system, count, tools), at in zip(asked, calls, strict=True):
                answer = await client.get(f"/api/runs/{run_id}/request", params={"at": repr(at)})
                assert answer.status_code == 200, answer.text
                found = answer.json()
                assert (found["system"], found["note"], found["allowed"]) == (system, "", None)
                assert [tool["name"] for tool in found["tools"]] == tools == ["search", "pay"]
                assert found["tools"][1]["parameters"]["properties"]["amount"]["type"] == "integer"
                assert (len(found["messages"]), found["parameters"]["temperature"]) == (count, 0.3)
            assert found["messages"][0]["text"] == "find x"
            assert code(await client.get(f"/api/runs/{run_id}/request")) == (400, "bad_at")
            assert code(await client.get(f"/api/runs/{run_id}/request?at=12")) == (404, "unknown_call")
            assert code(await client.get(f"/api/runs/requests:{run_id}")) == (404, "unknown_run")

    main()


def test_the_request_of_a_child_is_put_together_and_says_so():
    @flown
    async def main():
        async with serving(family(Limits(max_iterations=40)), store=MemoryStore()) as client:
            run_id = await start(client)
            await events(client, run_id)
            child = (await client.get(f"/api/runs/{run_id}")).json()["children"][0]["run_id"]
            spans = (await client.get(f"/api/runs/{child}/timeline")).json()["spans"]
            at = [span["started"] for span in spans if span["kind"] == "model"][1]
            found = (await client.get(f"/api/runs/{child}/request", params={"at": repr(at)})).json()
            assert found["note"].startswith("This request was not kept")
            assert [tool["name"] for tool in found["tools"]] == ["search"]
            assert [message["role"] for message in found["messages"]] == ["user", "assistant", "tool"]

    main()


def test_a_run_links_to_its_trace_where_the_server_knows_a_place_for_traces(tmp_path):
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    from glidepath.otel import OpenTelemetry

    @flown
    async def main():
        traced = agent().replace(plugins=[OpenTelemetry(tracer_provider=sdk.TracerProvider())])
        place = "https://traces.example.com/t/{trace_id}?tab=1"
        async with serving(traced, store=SqliteStore(tmp_path / "s.db"), trace_url=place) as client:
            run_id = await start(client)
            await events(client, run_id)
            trace = (await client.get(f"/api/runs/{run_id}")).json()["trace"]
            before, number, after = trace.partition(trace.split("/")[-1].partition("?")[0])
            assert (before, len(number), after) == ("https://traces.example.com/t/", 32, "?tab=1")
        async with serving(traced, store=SqliteStore(tmp_path / "s.db")) as client:
            assert (await client.get(f"/api/runs/{run_id}")).json()["trace"] is None

    main()


@pytest.mark.parametrize("url", ["javascript:alert({trace_id})", "https://traces.example.com/"])
def test_a_place_for_traces_is_an_address_with_the_id_in_it(url):
    from glidepath.errors import ConfigurationError
    from glidepath.serve import app

    with pytest.raises(ConfigurationError, match="trace_url must be an http or https address"):
        app(agents=[agent()], token="a-token-of-this-test-only", trace_url=url)
