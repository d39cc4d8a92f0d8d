"""Every control and every view of the flight deck, driven in a real browser. Part of `make campaign`."""

import signal

import pytest

from .conftest import ROOT, VIEW, Server

pytestmark = pytest.mark.slow

VIEWS = ("runs", "approvals", "fleet", "compare")


# --- controls ---------------------------------------------------------------------------------------------------


def test_land_asks_for_a_last_answer_and_is_journaled(deck, server):
    run_id = server.fly("work: to be landed")
    server.turn(run_id, 2)
    tab = deck()
    tab.open(run_id)
    tab.press("l")
    tab.fill(reason="enough for today")
    tab.confirm()
    tab.said("Land")
    found = server.state(run_id, "ended")
    assert found["text"].startswith("Landing.")
    assert ("land", "enough for today", "ada") in server.controls(run_id)
    tab.page.wait_for_selector("[data-phase=ground]")


def test_a_control_without_its_reason_is_not_sent(deck, server):
    run_id = server.fly("work: stays in the air")
    tab = deck()
    tab.open(run_id)
    tab.press("x")
    tab.confirm()
    tab.page.wait_for_selector("dialog [role=alert]:has-text('Reason is needed')")
    tab.page.keyboard.press("Escape")
    assert server.controls(run_id) == []
    server.ask(f"/api/runs/{run_id}/stop", {"reason": "cleaning up"})


def test_steer_reaches_the_model(deck, server):
    run_id = server.fly("work: to be steered")
    server.turn(run_id, 1)
    tab = deck()
    tab.open(run_id)
    tab.press("s")
    tab.fill(message="Look at Fabrikam only.", reason="they are the cheapest")
    tab.confirm()
    tab.said("Steer")
    tab.page.wait_for_selector("text=Look at Fabrikam only.")
    assert ("steer", "they are the cheapest", "ada") in server.controls(run_id)
    server.ask(f"/api/runs/{run_id}/stop", {"reason": "seen"})


def test_deny_tells_the_model_why(deck, server):
    run_id = server.fly("order: to be denied")
    server.state(run_id, "paused")
    tab = deck()
    tab.open(run_id)
    tab.page.click(".rail .pending button:has-text('Deny')")
    tab.fill(reason="the budget is spent")
    tab.confirm()
    tab.said("denied")
    server.state(run_id, "ended")
    messages = server.ask(f"/api/runs/{run_id}/messages")["messages"]
    assert any("the budget is spent" in each["text"] for each in messages)
    assert ("decide", "the budget is spent", "ada") in server.controls(run_id)


def test_edit_runs_the_call_with_other_arguments(deck, server):
    run_id = server.fly("order: to be edited")
    server.state(run_id, "paused")
    tab = deck()
    tab.go("approvals")
    tab.page.wait_for_selector(".pending")
    card = tab.page.locator(".pending", has=tab.page.locator(f"a[href='#/runs/{run_id}']"))
    card.locator("button:has-text('Edit')").click()
    tab.fill(arguments="{not json")
    tab.confirm()
    tab.page.wait_for_selector("dialog [role=alert]:has-text('Arguments')")
    tab.fill(arguments='{"vendor": "Contoso", "amount": 3}', reason="three will do")
    assert tab.page.locator(".changes li").all_inner_texts() == [
        "vendor Northwind Contoso",
        "amount 12 3",
        "note Deliver to the third floor. removed",
    ]
    tab.confirm()
    tab.said("other arguments")
    server.state(run_id, "ended")
    messages = server.ask(f"/api/runs/{run_id}/messages")["messages"]
    assert any("ordered 3 from Contoso" in each["text"] for each in messages)
    tab.page.wait_for_function(f"() => !document.querySelector('.pending a[href=\"#/runs/{run_id}\"]')")


def test_answer_gives_the_result_by_hand(deck, server):
    run_id = server.fly("order: answered")
    server.state(run_id, "paused")
    tab = deck()
    tab.open(run_id)
    tab.page.click("text=answer by hand")
    tab.fill(message="I ordered them by phone.", reason="faster")
    tab.confirm()
    tab.said("answered")
    server.state(run_id, "ended")
    messages = server.ask(f"/api/runs/{run_id}/messages")["messages"]
    assert any(each["text"] == "I ordered them by phone." for each in messages)
    assert ("decide", "faster", "ada") in server.controls(run_id)


def test_a_decision_made_twice_is_refused_in_words(deck, server):
    run_id = server.fly("order: decided elsewhere")
    (call,) = server.state(run_id, "paused")["pending"]
    tab = deck()
    tab.open(run_id)
    tab.press("a")
    server.ask(f"/api/runs/{run_id}/decide", {"id": call["id"], "decision": "deny", "message": "no", "reason": "no"})
    server.state(run_id, "ended")
    tab.confirm()
    tab.page.wait_for_selector("dialog [role=alert]")
    assert [each for each in server.controls(run_id) if each[0] == "decide"] == [("decide", "no", "ada")]


def test_a_higher_limit_continues_a_run_that_was_cut(deck, server):
    run_id = server.fly("work: too short", limits={"max_iterations": 3})
    before = server.state(run_id, "ended")
    tab = deck()
    tab.open(run_id)
    tab.press("m")
    tab.fill(max_iterations="9", reason="let it finish")
    tab.confirm()
    tab.said("max_iterations=9")
    server.until(lambda: server.detail(run_id)["turn"] > before["turn"], "more turns")
    assert ("limits", "let it finish", "ada") in server.controls(run_id)
    server.state(run_id, "ended")


def test_fork_opens_a_new_session_at_that_turn(deck, server):
    run_id = server.fly("work: to be forked", limits={"max_iterations": 4})
    server.state(run_id, "ended")
    tab = deck()
    tab.open(run_id)
    tab.press("f")
    tab.fill(at="1", prompt="brief: only the summary", reason="try another way")
    tab.confirm()
    tab.said("forked after turn 1")
    tab.page.wait_for_selector("text=brief: only the summary")
    new = tab.page.url.rpartition("/")[2]
    assert new not in (run_id, server.detail(run_id)["session_id"])
    assert ("fork", "try another way", "ada") in server.controls(new)
    assert len(server.ask(f"/api/runs/{new}/messages")["messages"]) > 2


def test_resume_takes_a_lost_run_up_again_and_an_unknown_effect_is_settled(deck, built, tmp_path):
    server = Server(tmp_path / "store")
    try:
        run_id = server.fly("transfer: one hundred")
        server.until(lambda: "transfer" in server.detail(run_id)["last"], "the call")
        server.close(signal.SIGKILL)
        server.start()
        server.state(run_id, "lost")
        tab = deck(server=server)
        tab.open(run_id)
        tab.page.wait_for_selector("text=owner gone, resumable")
        tab.page.wait_for_selector("[data-effect] >> text=transfer")
        tab.page.click("[data-effect] button:has-text('It happened')")
        tab.fill(result="booked", reason="seen in the bank's journal")
        tab.confirm()
        tab.said("settled")
        tab.press("r")
        tab.fill(reason="settled")
        tab.confirm()
        tab.said("resumed")
        assert server.state(run_id, "ended")["text"] == "Settled."
        assert ("settle", "seen in the bank's journal", "ada") in server.controls(run_id)
        assert ("resume", "settled", "ada") in server.controls(run_id)
    finally:
        server.close()


def test_the_kill_switch_stops_the_fleet_and_releases_it(deck, server):
    run_id = server.fly("work: killed with the fleet")
    server.turn(run_id, 1)
    tab = deck()
    tab.go("fleet")
    tab.page.click("text=Stop the fleet")
    tab.fill(reason="fire drill")
    tab.confirm()
    tab.said("Kill switch")
    server.state(run_id, "ended")
    tab.page.wait_for_selector(".kill.on [data-switch=fleet]")
    tab.page.wait_for_selector(".held:has-text('fire drill')")
    tab.go("runs")
    tab.page.click(".held >> text=Open the fleet")
    tab.page.click("text=Release the fleet")
    tab.fill(reason="drill over")
    tab.confirm()
    tab.said("Release")
    tab.page.wait_for_selector(".kill:not(.on)")
    tab.page.wait_for_function("() => !document.querySelector('.held')")
    assert ("kill", "fire drill", "ada") in server.controls(run_id)


def test_the_kill_switch_of_one_run(deck, server):
    run_id = server.fly("work: killed alone")
    tab = deck()
    tab.open(run_id)
    tab.press("X")
    tab.fill(reason="no")
    tab.confirm()
    tab.said("Kill switch")
    server.state(run_id, "ended")


def test_a_refusal_is_shown_in_the_servers_words_and_changes_nothing(deck, server):
    tab = deck()
    tab.go("fleet")
    tab.page.click("text=Stop a tenant")
    tab.fill(id="nobody", reason="trying")
    tab.confirm()
    tab.page.wait_for_selector("dialog [role=alert]:has-text('tenant')")


def test_work_that_ignores_its_cancellation_is_listed(deck, server):
    run_id = server.fly("dig: deep")
    server.until(lambda: "dig" in server.detail(run_id)["last"], "the call")
    tab = deck()
    tab.open(run_id)
    tab.press("x")
    tab.fill(reason="stop digging")
    tab.confirm()
    server.state(run_id, "ended")
    tab.page.wait_for_selector(".rail-section:has-text('Abandoned work') >> text=dig")


def test_the_focus_comes_back_when_a_dialog_closes(deck, server):
    tab = deck()
    tab.page.wait_for_selector(".toolbar")
    tab.page.focus(".toolbar .button.primary")
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_selector("dialog[open]")
    tab.page.click("dialog >> text=Cancel")
    assert "New run" in tab.page.evaluate("document.activeElement.textContent")


def test_a_new_run_starts_from_the_page(deck, server):
    tab = deck()
    tab.page.wait_for_selector(".toolbar")
    tab.press("n")
    tab.fill(prompt="brief: started here", max_iterations="5", tags="one, two")
    tab.confirm()
    tab.page.wait_for_selector(".flight-head h1:has-text('brief: started here')")
    run_id = tab.page.url.rpartition("/")[2]
    found = server.state(run_id, "ended")
    assert sorted(found["tags"]) == ["one", "two"]
    assert {each["kind"]: each["limit"] for each in found["gauges"]}["turns"] == 5


# --- what is shown ----------------------------------------------------------------------------------------------


def test_a_view_token_looks_and_cannot_touch(deck, server):
    run_id = server.fly("order: not for you")
    server.state(run_id, "paused")
    tab = deck(token=VIEW)
    tab.open(run_id)
    tab.page.wait_for_selector("text=Your token is view-only")
    assert tab.page.locator(".controls button").count() == 0
    assert tab.page.locator(".pending button:not([disabled])").count() == 0
    tab.press("x", "a", "f")
    assert tab.page.locator("dialog[open]").count() == 0


def test_a_stuck_loop_shows_its_period(deck, server):
    run_id = server.fly("loop: round and round", agent="sprinter")
    server.state(run_id, "ended")
    tab = deck()
    tab.open(run_id, "verdicts")
    tab.page.wait_for_selector("[data-kind=GuardTripped] [data-period='2']")
    order = tab.page.locator(".verdict > span:first-child").all_inner_texts()
    numbers = [int(each[1:]) for each in order]
    assert numbers == sorted(numbers)
    tab.open(run_id)
    tab.page.wait_for_selector(".tool-card.repeats")


def test_a_discarded_attempt_is_marked_and_its_text_can_be_read(deck, server):
    run_id = server.fly("shaky: first try fails", agent="sprinter")
    server.state(run_id, "ended")
    tab = deck()
    tab.open(run_id)
    tab.page.click(".mark-discarded summary")
    tab.page.wait_for_selector("text=The first attempt says something wrong")


def test_a_reply_in_the_making_is_shown_as_it_is_written(deck, server):
    run_id = server.fly("work: watched")
    tab = deck()
    tab.open(run_id)
    tab.page.wait_for_selector(".message.live")
    tab.page.wait_for_selector(".reasoning summary")
    server.ask(f"/api/runs/{run_id}/stop", {"reason": "seen"})


def test_the_slider_shows_the_run_as_it_stood(deck, server):
    run_id = server.fly("work: to be replayed", limits={"max_iterations": 6})
    total = server.state(run_id, "ended")["usage"]["total"]
    tab = deck()
    tab.open(run_id)
    tab.page.focus(".replay input")
    tab.page.keyboard.press("Home")
    for _ in range(2):
        tab.page.keyboard.press("ArrowRight")
    tab.page.wait_for_selector("text=State at the end of turn 2")
    at = server.ask(f"/api/runs/{run_id}/at?turn=2")
    tab.page.wait_for_selector(f"[data-gauge=tokens] .gauge-value:has-text('{at['usage']['total']:,}')")
    assert at["usage"]["total"] < total
    assert tab.page.locator(".turn-mark", has_text="Turn 3").count() == 0
    tab.page.click("text=Back to now")
    tab.page.wait_for_selector(f"[data-gauge=tokens] .gauge-value:has-text('{total:,}')")


def test_children_stand_in_the_budget_tree_of_their_parent(deck, server):
    run_id = server.fly("lead: a small team", agent="sprinter")
    server.state(run_id, "ended")
    tab = deck()
    tab.open(run_id)
    tab.page.wait_for_selector(".tree .branch .branch")
    tab.page.click(".child-list a >> nth=0")
    tab.page.wait_for_selector(".flight-head a:has-text('parent')")


def test_two_runs_stand_side_by_side_and_the_page_says_where_they_part(deck, server):
    one = server.fly("brief: the same", agent="sprinter")
    other = server.fly("brief: the same", agent="sprinter")
    third = server.fly("hostile: another", agent="sprinter")
    for run_id in (one, other, third):
        server.state(run_id, "ended")
    tab = deck()
    tab.go(f"compare/{one}/{other}")
    tab.page.wait_for_selector("text=The two runs are identical")
    tab.go(f"compare/{one}/{third}")
    tab.page.wait_for_selector("text=They differ from the start")


def test_a_lost_connection_is_told_and_heals_without_a_gap(deck, built, tmp_path):
    server = Server(tmp_path / "store")
    try:
        run_id = server.fly("brief: before", agent="sprinter")
        server.state(run_id, "ended")
        tab = deck(server=server)
        tab.page.wait_for_selector(f"[data-run={run_id}]")
        server.close(signal.SIGKILL)
        tab.page.wait_for_selector(".trouble")
        tab.page.wait_for_selector(".link-waiting, .link-connecting")
        server.start()
        tab.page.wait_for_selector(".link-open")
        tab.page.wait_for_function("() => !document.querySelector('.trouble')")
        later = server.fly("brief: after", agent="sprinter")
        tab.page.wait_for_selector(f"[data-run={later}]")
        tab.errors.clear()  # the browser itself complains about refused connections
    finally:
        server.close()


def test_filters_and_search_narrow_the_list(deck, server):
    run_id = server.fly("brief: a needle in the hay", agent="sprinter", tags=["sharp"])
    server.state(run_id, "ended")
    tab = deck()
    tab.page.wait_for_selector(f"[data-run={run_id}]")
    tab.press("/")
    tab.page.keyboard.type("needle")
    tab.page.wait_for_function("() => document.querySelectorAll('.run-row').length === 1")
    tab.page.click("text=Running")
    tab.page.wait_for_selector("text=No runs match this filter")
    tab.page.click("text=Show all runs")
    tab.page.wait_for_selector(f"[data-run={run_id}]")


def test_help_lists_the_keys_of_the_place(deck, server):
    tab = deck()
    tab.page.wait_for_selector(".toolbar")
    tab.press("?")
    tab.page.wait_for_selector("dialog kbd")
    shown = tab.page.eval_on_selector_all("dialog kbd", "keys => keys.map(key => key.textContent)")
    assert {"j", "k", "enter", "a", "?"} <= set(shown)


def test_keys_move_between_places(deck, server):
    tab = deck()
    tab.page.wait_for_selector(".toolbar")
    tab.press("g", "f")
    tab.page.wait_for_selector("h1:has-text('Fleet')")
    tab.press("g", "a")
    tab.page.wait_for_selector("h1:has-text('Approvals')")
    tab.press("g", "r", "k", "Enter")
    tab.page.wait_for_selector(".flight-head")
    tab.press("Escape")
    tab.page.wait_for_selector("h1:has-text('Runs')")


def test_a_long_run_draws_only_the_rows_in_view(deck, server):
    run_id = server.fly(
        "quick: long", agent="sprinter", limits={"max_iterations": 400, "max_tokens": 100_000_000, "max_cost": "1000"}
    )
    server.until(lambda: server.detail(run_id)["sequence"] > 3000, "three thousand events", seconds=120)
    server.ask(f"/api/runs/{run_id}/stop", {"reason": "long enough"})
    total = server.state(run_id, "ended")["sequence"]
    tab = deck()
    tab.open(run_id, "events")
    tab.page.wait_for_selector(".event-row .event-kind")
    assert tab.page.locator(".virtual-row").count() < 80
    tab.press("G")
    tab.page.wait_for_selector(f".event-seq:text-is('{total}')")
    assert tab.page.locator(".virtual-row").count() < 80


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_every_view_fits_and_axe_finds_nothing_serious(deck, server, axe, scheme, width):
    loop = server.fly("loop: for the picture", agent="sprinter")
    order = server.fly("order: for the picture")
    server.state(loop, "ended")
    server.state(order, "paused")
    tab = deck(width=width, height=844, scheme=scheme)
    pictures = ROOT / "build/deck-pictures"
    pictures.mkdir(parents=True, exist_ok=True)
    places = [*VIEWS, f"compare/{loop}/{order}", f"runs/{order}", f"runs/{loop}"]
    places += [f"runs/{loop}/{tab_name}" for tab_name in ("verdicts", "events", "journal", "overview")]
    for place in places:
        tab.go(place)
        tab.page.wait_for_timeout(700)
        name = place.replace(loop, "loop").replace(order, "order").replace("/", "-")
        tab.page.screenshot(path=pictures / f"{name}-{width}-{scheme}.png")
        assert axe(tab) == [], place
        assert tab.overflow() <= 0, place
    tab.open(order)
    for key in ("a", "f"):
        tab.press(key)
        tab.page.wait_for_selector("dialog[open]")
        assert axe(tab) == [], key
        tab.page.keyboard.press("Escape")


def test_an_exported_run_opens_offline_with_every_view(paper, server, tmp_path):
    run_id = server.fly("loop: to be kept", agent="sprinter")
    server.state(run_id, "ended")
    page = paper(server.export(run_id, tmp_path / "run.html"))
    page.wait_for_selector(".tool-card")
    page.click("text=Verdicts")
    page.wait_for_selector("[data-kind=GuardTripped] [data-period='2']")
    page.click(".tabs >> text=Events")
    page.wait_for_selector(".event-row")
    page.click(".tabs >> text=Journal")
    page.wait_for_selector(".record")
    page.click(".tabs >> text=Transcript")
    page.focus(".replay input")
    page.keyboard.press("Home")
    page.wait_for_selector("text=State at the end of turn 0")
    assert page.locator(".controls button").count() == 0


def test_text_made_to_be_slow_is_drawn_at_once(deck, server):
    run_id = server.fly("slow: a hostile text", agent="sprinter")
    server.state(run_id, "ended")
    tab = deck()
    tab.open(run_id)
    tab.page.click("text=Show all")
    tab.page.wait_for_function(
        "() => document.querySelector('.role-assistant .md').innerText.length > 40_000", timeout=10_000
    )


def test_a_run_that_somebody_else_resumes_is_followed_again(deck, server):
    run_id = server.fly("work: taken up elsewhere", limits={"max_iterations": 3})
    before = server.state(run_id, "ended")["turn"]
    tab = deck()
    tab.open(run_id)
    tab.page.wait_for_selector(".flight-head .pill[data-state=ended]")
    server.ask(f"/api/runs/{run_id}/limits", {"limits": {"max_iterations": 30}, "resume": True, "reason": "go on"})
    tab.page.wait_for_selector(".flight-head .pill[data-state=running]")
    tab.page.wait_for_selector(".message.live, .turn-mark", state="attached")
    tab.press("G")
    tab.page.wait_for_selector(f".turn-mark:has-text('Turn {before + 2}')")
    server.ask(f"/api/runs/{run_id}/stop", {"reason": "seen"})
    tab.page.wait_for_selector(".flight-head .pill[data-state=ended]")
