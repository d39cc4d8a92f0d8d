"""What the examples claim beyond running."""

import asyncio
import importlib.util
import json

import httpx
import pytest

pytest.register_assert_rewrite("glidepath.conformance.store_contract")

from glidepath import LoopOutcome  # noqa: E402
from glidepath.conformance.store_contract import SessionStoreContract  # noqa: E402
from glidepath.errors import StoreError  # noqa: E402
from glidepath.events import RunEnded  # noqa: E402
from glidepath.testing import ScriptedModel, VirtualClock, hang  # noqa: E402

from .pages import ROOT  # noqa: E402


def example(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class TestFolderStore(SessionStoreContract):
    """The store of examples/custom_store.py keeps the contract, clause by clause."""

    @pytest.fixture(autouse=True)
    def place(self, tmp_path):
        self.path = tmp_path
        self.store = example("custom_store").FolderStore

    def make_store(self, *, lease=10.0):
        self.lease = lease
        return self.store(self.path, lease=lease)

    def again(self, store):
        return self.store(self.path, lease=self.lease)


def test_whatever_the_disk_says_the_store_raises_its_own_error(tmp_path):
    store = example("custom_store").FolderStore(tmp_path)
    for act in (lambda: store.claim("x" * 5_000, "me"), lambda: store.load("nul\0")):
        with pytest.raises(StoreError):
            asyncio.run(act())
    assert asyncio.run(store.claim("../../outside", "me")).head == 0
    assert [path.parent for path in tmp_path.rglob("entry.json")] == [tmp_path / "s-..%2F..%2Foutside"]


def events_of(lines):
    kinds = [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]
    return list(zip(kinds, [json.loads(line[6:]) for line in lines if line.startswith("data: ")], strict=True))


def test_the_server_sends_every_chunk_and_one_end():
    shop = example("fastapi_sse")

    async def asked():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(shop.app), base_url="http://shop") as client:
            return await client.get("/ask", params={"question": "When?", "customer": "eve"})

    response = asyncio.run(asked())
    events = events_of(response.text.splitlines())
    text = "".join(data["text"] for kind, data in events if kind == "text")
    assert response.headers["content-type"].startswith("text/event-stream")
    assert [kind for kind, _ in events].count("end") == 1
    assert events[-1] == ("end", {"outcome": "DONE", "text": text, "partial": False})


def test_a_client_that_goes_away_stops_the_run():
    shop = example("fastapi_sse")
    ended = []
    quiet = ScriptedModel().forever(hang())

    async def leaving():
        config = shop.agent.config
        shop.agent = type(shop.agent)(
            model=quiet,
            limits=config.limits,
            event_sink=lambda event: ended.append(event.result.outcome) if isinstance(event, RunEnded) else None,
        )
        answer = shop.answer("When?", "eve")
        reading = asyncio.ensure_future(anext(answer))
        await asyncio.sleep(0.05)
        assert not ended
        reading.cancel()  # what a server does when its client is gone
        await asyncio.gather(reading, return_exceptions=True)
        await answer.aclose()

    VirtualClock().run(leaving())
    assert ended == [LoopOutcome.CANCELLED]


def test_a_customer_has_one_budget_for_all_questions():
    shop = example("fastapi_sse")

    async def question():
        return [part async for part in shop.answer("When?", "eve")]

    for _ in range(2):
        asyncio.run(question())
    assert list(shop.budgets) == ["eve"]
    spent = 20_000 - shop.budgets["eve"].remaining().tokens
    fresh = 20_000 - shop.Budget(shop.Limits(max_tokens=20_000)).remaining().tokens
    assert spent > fresh
