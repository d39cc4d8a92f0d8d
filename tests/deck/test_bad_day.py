"""A bad day on the flight deck, in a real browser: many runs, a very long one, a tree, and evaluations."""

import signal
import subprocess
import sys

import pytest

from .conftest import ROOT, Server

VIEWS = ("runs", "approvals", "fleet", "evals", "evals/shopping-1", "compare")


def test_the_list_stays_newest_first_when_the_feed_brings_runs_that_are_not_on_its_page(deck, server):
    for number in range(70):  # more than a page
        server.fly(f"brief: old {number}", agent="sprinter")
    last = server.fly("brief: the newest", agent="sprinter")
    server.state(last, "ended")
    tab = deck()
    tab.page.wait_for_selector(f"[data-run={last}]")
    with tab.page.expect_response("**/api/evals"):  # the feed's first message has come by then
        tab.go("evals")
    tab.go("runs")
    tab.page.wait_for_selector(f"[data-run={last}]")
    running = server.fly("work: now")
    tab.page.wait_for_selector(f"[data-run={running}]")
    rows = tab.page.eval_on_selector_all(".run-row", "rows => rows.map(row => row.dataset.run)")
    newest = [card["run_id"] for card in server.ask("/api/runs?limit=20")["runs"]]
    assert rows[: len(newest)] == newest[: len(rows)]
    server.ask(f"/api/runs/{running}/stop", {"reason": "seen"})


def test_a_run_that_is_opened_in_the_middle_of_a_reply_shows_what_was_written_so_far(deck, server):
    run_id = server.fly("chat: for a while")
    server.until(lambda: len(server.detail(run_id)["reply"] or "") > 200, "a part of the reply")
    tab = deck()
    tab.open(run_id)
    tab.page.wait_for_selector(".message:has-text('writing'):has-text('word word word')")
    written = len(tab.page.inner_text(".message >> nth=-1"))
    tab.page.wait_for_function(
        "before => [...document.querySelectorAll('.message')].at(-1).textContent.length > before + 20", arg=written
    )
    assert written > 200, "what came before the page was opened, too"
    server.ask(f"/api/runs/{run_id}/stop", {"reason": "seen"})
    assert server.state(run_id, "ended")["outcome"] == "cancelled"
    assert server.detail(run_id)["reply"] is None


@pytest.fixture(scope="module")
def busy(built, tmp_path_factory):
    """A server over a store with 1,000 runs, one of 5,000 turns, a tree three deep and two evaluations."""
    folder = tmp_path_factory.mktemp("busy")
    made = subprocess.run(
        [sys.executable, str(ROOT / "bench/deck_store.py"), str(folder)],
        capture_output=True,
        text=True,
        check=True,
        timeout=900,
    )
    found = Server(folder / "deck.db")
    found.made = dict(
        line.split(" ", 1) for line in made.stdout.splitlines() if line.split(" ", 1)[1].startswith("run_")
    )
    yield found
    found.close()


@pytest.mark.slow
def test_failed_runs_are_found_by_outcome_and_time_and_texts_in_transcripts(deck, busy):
    tab = deck(server=busy)
    tab.page.wait_for_selector(".run-row")
    tab.page.select_option("[aria-label=Outcome]", "failed")
    tab.page.select_option("[aria-label=Time]", "3600")
    tab.page.wait_for_function(
        "() => [...document.querySelectorAll('.run-row strong')].every(row => row.textContent.startsWith('fail'))"
    )
    tab.page.select_option("[aria-label=Outcome]", "")
    tab.page.check(".in-texts input")
    tab.page.fill(".search input", '1240,"to":"harbor')
    tab.page.wait_for_selector(".run-now mark")
    shown = tab.page.eval_on_selector_all(".run-row strong", "rows => rows.map(row => row.textContent)")
    assert shown
    assert all(row.startswith("pay") for row in shown)


@pytest.mark.slow
def test_many_runs_are_selected_and_stopped_together(deck, busy):
    ids = [busy.fly(f"work: to be stopped {number}", agent="pilot") for number in range(3)]
    tab = deck(server=busy)
    for run_id in ids:
        tab.page.wait_for_selector(f"[data-run={run_id}]")
        tab.page.locator(".run-line", has=tab.page.locator(f"[data-run={run_id}]")).locator("input").check()
    tab.page.click(".picked button:has-text('Stop 3')")
    tab.fill(reason="fire drill")
    tab.confirm()
    tab.said("3 runs stopped")
    for run_id in ids:
        assert busy.state(run_id, "ended")["outcome"] == "cancelled"
        assert ("stop", "fire drill", "ada") in busy.controls(run_id)


@pytest.mark.slow
def test_the_charts_of_5000_turns_fall_and_end_at_what_is_left(deck, busy):
    points = busy.ask(f"/api/runs/{busy.made['marathon']}/burn")["points"]
    turns = [point["turns"] for point in points]
    assert turns == sorted(turns)
    assert (turns[0] < 100, turns[-1] >= 5_000, len(points) < 600) == (True, True, True)
    tab = deck(server=busy)
    tab.open(busy.made["marathon"])
    tab.page.wait_for_selector(".burn[aria-label*='1,000 left of 6,000']")
    tab.open(busy.made["marathon"], "timeline")
    tab.page.wait_for_selector(".span-row[data-kind=model]")
    assert tab.page.locator(".span-row").count() < 100, "only rows in view are drawn"
    tab.page.click("text=Longest first")
    tab.page.wait_for_function("() => document.querySelector('.span-took')?.textContent")


@pytest.mark.slow
def test_a_parent_that_ended_at_its_limit_shows_the_turns_of_its_tree(deck, busy):
    tab = deck(server=busy)
    tab.open(busy.made["lead"])
    tab.page.wait_for_selector("[data-gauge=turns] .gauge-value:has-text('12 / 12')")
    tab.page.wait_for_selector(".branch .num:has-text('12 / 12')")
    tab.open(busy.made["lead"], "timeline")
    tab.page.click("[data-kind=child] a")
    tab.page.wait_for_selector("[data-kind=child] a:has-text('scout')")


@pytest.mark.slow
def test_the_exact_request_of_a_call_opens_from_the_timeline(deck, busy):
    tab = deck(server=busy)
    tab.open(busy.made["book"], "timeline")
    tab.page.click(".span-name .link")
    tab.page.wait_for_selector("[data-request] [data-system]:has-text('You buy things.')")
    tab.page.wait_for_selector("[data-request] code:has-text('pay')")


@pytest.mark.slow
def test_an_evaluation_shows_its_curves_and_leads_to_the_run_of_a_failure(deck, busy):
    tab = deck(server=busy)
    tab.go("evals")
    tab.page.click("[data-eval=shopping-1] a")
    tab.page.wait_for_selector("[data-curve=predicted] circle")
    tab.page.wait_for_selector("[data-curve=real] circle")
    first = tab.page.locator(".result").first
    assert first.get_attribute("data-passed") == "false"
    first.locator(".result-head a").click()
    tab.page.wait_for_selector(".flight-head h1")


@pytest.mark.slow
def test_resume_is_offered_without_a_reload_after_the_server_was_killed(deck, built, tmp_path):
    server = Server(tmp_path / "store")
    try:
        run_id = server.fly("work: until the lights go out", limits={"max_iterations": 4_000, "max_tokens": 10**9})
        server.turn(run_id, 2)
        tab = deck(server=server)
        tab.open(run_id)
        tab.page.wait_for_selector(".controls button:has-text('Stop')")
        server.close(signal.SIGKILL)
        tab.page.wait_for_selector(".trouble:has-text('stand still until somebody resumes them')")
        server.start()
        tab.page.wait_for_selector(".controls button:has-text('Resume')", timeout=60_000)
        assert not tab.page.locator(".controls button:has-text('Stop')").count()
        tab.press("r")
        tab.confirm()
        tab.said("Resume")
        tab.page.wait_for_selector(".controls button:has-text('Stop')")
        tab.errors.clear()  # the browser itself complains about refused connections
    finally:
        server.close()


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 820, 390])
def test_every_view_of_a_bad_day_fits_and_axe_finds_nothing_serious(deck, busy, axe, scheme, width):
    tab = deck(server=busy, width=width, scheme=scheme)
    tab.page.wait_for_selector(".run-row")
    runs = [f"runs/{busy.made[name]}{tail}" for name in ("lead", "arabic", "marathon") for tail in ("", "/timeline")]
    for view in (*VIEWS, *runs):
        tab.go(view)
        tab.page.wait_for_timeout(600)
        assert axe(tab) == [], view
        assert tab.overflow() <= 0, view
