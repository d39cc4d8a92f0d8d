"""kill -9 of the server under live runs: nothing is lost, and every reader comes back."""

import asyncio
from collections import Counter

import httpx
import pytest

from .deck import HEADERS
from .live import LiveServer, Reader

RUNS = 20


@pytest.mark.process
def test_kill_dash_nine_under_twenty_runs_loses_no_run_and_no_event(tmp_path):
    async def main(server):
        async with httpx.AsyncClient(base_url=server.url, headers=HEADERS, timeout=60) as client:
            body = {"agent": "worker", "prompt": "write"}
            started = await asyncio.gather(*[client.post("/api/runs", json=body) for _ in range(RUNS)])
            run_ids = [answer.json()["run_id"] for answer in started]
            readers = [Reader(client, run_id) for run_id in run_ids]
            reading = [asyncio.ensure_future(reader.read()) for reader in readers]
            while min(len(reader.got) for reader in readers) < 20:  # noqa: ASYNC110 - all are in the middle
                await asyncio.sleep(0.01)
            assert not any(task.done() for task in reading)
            server.kill()
            await asyncio.to_thread(server.start)
            whole = await asyncio.wait_for(asyncio.gather(*reading), 120)
            pages = [(await client.get(f"/api/runs/{run_id}/events?limit=5000")).json() for run_id in run_ids]
            cards = (await client.get("/api/runs?limit=100")).json()["runs"]
        assert [reader.connections > 1 for reader in readers] == [True] * RUNS
        for got, page in zip(whole, pages, strict=True):
            assert [number for number, _, _ in got] == list(range(1, len(got) + 1))
            assert [data for _, _, data in got] == page["events"]
            assert [data["sequence"] for _, _, data in got] == list(range(1, len(got) + 1))
            assert got[-1][2]["result"]["outcome"] == "done", got[-1][2]["result"]["cause"]
        assert Counter(card["state"] for card in cards) == {"ended": RUNS}
        effects = Counter((tmp_path / "effects.txt").read_text().splitlines())
        assert set(effects.values()) == {1}

    with LiveServer(tmp_path, "--store", "sqlite:store", "--resume-lost") as server:
        asyncio.run(main(server))


@pytest.mark.process
def test_a_server_that_is_asked_to_stop_ends_soon_and_tells_every_reader_how_its_run_ended(tmp_path):
    async def main(server):
        async with httpx.AsyncClient(base_url=server.url, headers=HEADERS, timeout=60) as client:
            body = {"agent": "sleeper", "prompt": "doze"}
            for size in (1_000_001, 5_000_000):
                large = await client.post("/api/runs", json={"agent": "sleeper", "prompt": "x" * size})
                assert large.status_code == 413
            run_ids = [(await client.post("/api/runs", json=body)).json()["run_id"] for _ in range(3)]
            readers = [Reader(client, run_id) for run_id in run_ids]
            reading = [asyncio.ensure_future(reader.read()) for reader in readers]
            listing = asyncio.ensure_future(client.get("/api/feed"))
            while not all("ToolStarted" in [kind for _, kind, _ in reader.got] for reader in readers):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            server.process.terminate()
            await asyncio.to_thread(server.process.wait, 10)
            whole = await asyncio.gather(*reading)
            assert "event: cards" in (await listing).text
            assert [got[-1][2]["result"]["outcome"] for got in whole] == ["cancelled"] * 3
            assert "Traceback" not in (tmp_path / "server.log").read_text()
            await asyncio.to_thread(server.start)
            cards = (await client.get("/api/runs")).json()["runs"]
            assert [card["resumable"] for card in cards] == [True] * 3
            answer = await client.post(f"/api/runs/{run_ids[0]}/resume", json={"reason": "again"})
            assert answer.json()["state"] == "running"

    with LiveServer(tmp_path, "--store", "sqlite:store", agent="fleet_agents:sleeper") as server:
        asyncio.run(main(server))


@pytest.mark.process
def test_runs_of_a_killed_server_show_as_lost_and_can_be_resumed(tmp_path):
    async def main(server):
        async with httpx.AsyncClient(base_url=server.url, headers=HEADERS, timeout=60) as client:
            run_id = (await client.post("/api/runs", json={"agent": "worker", "prompt": "write"})).json()["run_id"]
            reader = Reader(client, run_id)
            reading = asyncio.ensure_future(reader.read())
            while len(reader.got) < 10:  # noqa: ASYNC110 - it is in the middle
                await asyncio.sleep(0.01)
            server.kill()
            await asyncio.to_thread(server.start)
            (card,) = (await client.get("/api/runs?state=lost")).json()["runs"]
            assert (card["run_id"], card["resumable"], card["state"]) == (run_id, True, "lost")
            detail = (await client.get(f"/api/runs/{run_id}")).json()
            assert detail["state"] == "lost"
            answer = await client.post(f"/api/runs/{run_id}/resume", json={"reason": "the server died"})
            assert answer.status_code == 200, answer.text
            got = await asyncio.wait_for(reading, 60)
            assert [number for number, _, _ in got] == list(range(1, len(got) + 1))
            assert got[-1][2]["result"]["outcome"] == "done", got[-1][2]["result"]["cause"]

    with LiveServer(tmp_path, "--store", "sqlite:store.db") as server:
        asyncio.run(main(server))
