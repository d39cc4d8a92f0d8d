"""Several tabs on one server, tabs that close and lines that break, and a fleet's tenant. Part of `make campaign`."""

import asyncio
import contextlib
import socket
import threading

import pytest
from tests.engines.kit import Crew, fresh_database, until

from glidepath.engines.dbos import Fleet, Quota

from .conftest import CONTROL, Server

pytestmark = pytest.mark.slow
LONG = {"max_iterations": 100_000, "max_tokens": 10**9, "max_cost": "10000", "timeout": 3600}


def test_a_run_whose_tab_closes_goes_on_and_another_tab_takes_it_up(deck, server):
    run_id = server.fly("work: nobody watches", limits=LONG)
    tab = deck()
    tab.open(run_id)
    tab.page.wait_for_selector(".message.live")
    turn = server.detail(run_id)["turn"]
    tab.page.close()
    server.turn(run_id, turn + 3)
    assert server.detail(run_id)["state"] == "running"
    again = deck()
    again.open(run_id)
    again.page.wait_for_selector(".flight-head .pill[data-state=running]")
    again.press("x")
    again.fill(reason="seen enough")
    again.confirm()
    again.said("stopped in")
    assert ("stop", "seen enough", "ada") in server.controls(run_id)


def test_two_tabs_see_the_same_and_what_one_does_the_other_shows(deck, server):
    run_id = server.fly("order: two look at it")
    server.state(run_id, "paused")
    one, two = deck(), deck()
    for tab in (one, two):
        tab.open(run_id)
        tab.page.wait_for_selector(".rail .pending")
    one.press("a")
    one.fill(reason="the first was faster")
    one.confirm()
    one.said("approved")
    two.page.wait_for_selector(".flight-head .pill[data-state=ended]")
    two.page.wait_for_function("() => !document.querySelector('.rail .pending')")
    assert [each for each in server.controls(run_id) if each[0] == "decide"] == [
        ("decide", "the first was faster", "ada")
    ]


def test_every_tab_of_a_browser_shows_its_run_and_its_buttons_work(deck, server):
    """A browser opens six connections to a server, and a stream holds one: they are shared by all tabs."""
    run_ids = [server.fly(f"work: tab {number}", limits=LONG) for number in range(6)]
    tab = deck()
    pages = [tab.page, *[tab.context.new_page() for _ in run_ids[1:]]]
    for page, run_id in zip(pages, run_ids, strict=True):
        page.goto(f"{server.base}/#/runs/{run_id}?token={CONTROL}")
    for page in pages:
        page.wait_for_selector(".message")
    for number, (page, run_id) in enumerate(zip(pages, run_ids, strict=True)):
        page.keyboard.press("x")
        page.fill("dialog [name=reason]", f"tab {number}")
        page.click("dialog button[type=submit]")
        page.wait_for_selector(".report-good:has-text('stopped in')")
        page.wait_for_selector(".flight-head .pill[data-state=ended]")
        assert ("stop", f"tab {number}", "ada") in server.controls(run_id)


def test_a_tab_in_the_background_hangs_up_and_catches_up_when_it_is_seen_again(deck, server):
    run_id = server.fly("work: in the background", limits=LONG)
    tab = deck()
    tab.open(run_id)
    tab.page.wait_for_selector(".message.live")
    hide = "value => { Object.defineProperty(document, 'hidden', { configurable: true, get: () => value });"
    hide += " document.dispatchEvent(new Event('visibilitychange')); }"
    tab.page.evaluate(hide, True)
    tab.page.wait_for_selector(".link-resting")
    later = server.fly("brief: while nobody looked", agent="sprinter")
    server.turn(run_id, server.detail(run_id)["turn"] + 2)
    server.ask(f"/api/runs/{run_id}/stop", {"reason": "seen"})
    assert server.state(run_id, "ended")
    tab.page.evaluate(hide, False)
    tab.page.wait_for_selector(".link-open")
    tab.page.wait_for_selector(".flight-head .pill[data-state=ended]")
    tab.go("runs")
    tab.page.wait_for_selector(f"[data-run={later}]")


class Relay:
    """A line between the browser and the server that can be cut."""

    def __init__(self, port):
        self.target = port
        self.up = True
        self.pairs = []
        self.door = socket.create_server(("127.0.0.1", 0))
        self.base = f"http://127.0.0.1:{self.door.getsockname()[1]}"
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.door.accept()
                if not self.up:
                    near.close()
                    continue
                far = socket.create_connection(("127.0.0.1", self.target))
                self.pairs.append((near, far))
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self.carry, args=(source, sink), daemon=True).start()

    def carry(self, source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut(self):
        self.up = False
        for pair in self.pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def mend(self):
        self.up = True

    def close(self):
        self.cut()
        self.door.close()


def test_a_line_that_breaks_is_taken_up_where_it_was_cut(deck, server):
    run_id = server.fly("work: the line breaks", limits=LONG)
    relay = Relay(server.port)
    tab = deck(server=relay)
    taken_up = []

    def note(request):
        if request.url.endswith(f"{run_id}/events") and "last-event-id" in request.headers:
            taken_up.append(int(request.headers["last-event-id"]))

    tab.page.on("request", note)
    tab.open(run_id)
    tab.page.wait_for_selector(".message.live")
    turn = server.detail(run_id)["turn"]
    relay.cut()
    tab.page.wait_for_selector(".trouble")
    server.turn(run_id, turn + 3)
    relay.mend()
    tab.page.wait_for_selector(".link-open")
    server.ask(f"/api/runs/{run_id}/stop", {"reason": "seen"})
    tab.page.wait_for_selector(".flight-head .pill[data-state=ended]")
    assert max(taken_up) > 0
    last = server.ask(f"/api/runs/{run_id}/messages?limit=1000")["messages"][-1]["turn"]

    def shown():
        tab.press("G")
        return tab.page.locator(f".turn-mark:has-text('Turn {last}')").count()

    server.until(shown, "the last turn")
    tab.errors.clear()  # the browser itself complains about the line
    relay.close()


def in_thread(make):
    """What a coroutine answers; this thread has Playwright's loop."""
    answers = []
    thread = threading.Thread(target=lambda: answers.append(asyncio.run(make())))
    thread.start()
    thread.join()
    return answers[0]


def test_a_tenants_kill_switch_on_a_fleets_store_is_thrown_shown_and_released_from_the_page(deck, built, tmp_path):
    address = fresh_database()

    async def submitted():
        async with Fleet(address) as fleet:
            await until(crew.ready)
            await fleet.set_tenant("acme", day=Quota(runs=10))
            await fleet.set_rate("pilot", requests=100, per=3600, burst=100)
            await fleet.submit("sleepy", "go", tenant="acme", session="of-acme")
            await until(lambda: in_flight(fleet))

    async def in_flight(fleet):
        return (await fleet.status()).running == 1

    async def ended():
        async with Fleet(address) as fleet:
            return await fleet.wait("of-acme"), (await fleet.result("of-acme")).cause.reason

    with Crew(address, tmp_path, agents=("sleepy=crew:sleepy",)) as crew:
        crew.start(1)
        in_thread(submitted)
        server = Server(address)
        try:
            tab = deck(server=server)
            tab.go("fleet")
            tab.page.wait_for_selector("text=pilot requests")
            tab.page.wait_for_selector(".branch:has-text('tenant acme')")
            tab.page.click("text=Stop a tenant")
            tab.fill(id="acme", reason="unpaid")
            tab.confirm()
            tab.said("1 run is stopped")
            assert in_thread(ended) == ("cancelled", "unpaid (by ada)")
            tab.page.wait_for_selector("[data-switch=acme]:has-text('unpaid (by ada)')")
            tab.page.wait_for_selector(".held:has-text('tenant acme')")
            assert [each[:2] for each in server.controls("of-acme")] == [("kill", "unpaid")]
            tab.page.click("[data-switch=acme] >> text=Release")
            tab.fill(reason="paid")
            tab.confirm()
            tab.said("runs can start again")
            tab.page.wait_for_function("() => !document.querySelector('.held, [data-switch]')")
        finally:
            server.close()
