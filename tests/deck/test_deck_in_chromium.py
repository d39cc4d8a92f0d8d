"""The flight deck in a real browser; what the journal says afterwards is what counts."""

from .conftest import CONTROL, VIEW


def test_the_token_leaves_the_address_and_stays_in_the_tab(deck):
    tab = deck()
    tab.page.wait_for_selector(".toolbar")
    assert "token" not in tab.page.url
    assert tab.page.evaluate("sessionStorage.getItem('glidepath.token')").startswith("control-")
    assert tab.page.evaluate("localStorage.getItem('glidepath.token')") is None


def test_without_a_token_the_page_asks_for_one(deck):
    tab = deck(token="wrong-token-000000000000")
    tab.page.wait_for_selector("text=This page needs a token")
    tab.page.fill("#token", "control-token-0123456789")
    tab.page.click("text=Open the deck")
    tab.page.wait_for_selector(".toolbar")


def test_stop_by_keyboard_ends_the_run_and_the_journal_says_who_and_why(deck, server):
    run_id = server.fly("work: a run to stop")
    tab = deck()
    tab.page.wait_for_selector(f"[data-run={run_id}]")
    while tab.page.get_attribute(f"[data-run={run_id}]", "aria-current") != "true":
        tab.press("j")
    tab.press("x")
    tab.fill(reason="wrong vendor")
    tab.page.keyboard.press("Enter")
    tab.said("stopped in")
    assert server.state(run_id, "ended")["outcome"] in ("cancelled", "cut_off")
    assert ("stop", "wrong vendor", "ada") in server.controls(run_id)
    tab.page.wait_for_selector(f"[data-run={run_id}] .pill[data-state=ended]")


def test_an_approval_shows_the_exact_arguments_and_runs_the_call(deck, server):
    run_id = server.fly("order: twelve chairs")
    server.state(run_id, "paused")
    tab = deck()
    tab.go("approvals")
    card = tab.page.locator(".pending", has_text="place_order").first
    for text in ("Northwind", "12", "Deliver to the third floor."):
        assert text in card.inner_text()
    tab.open(run_id)
    tab.press("a")
    tab.fill(reason="fits the budget")
    tab.confirm()
    tab.said("approved")
    assert server.state(run_id, "ended")["text"] == "The order is placed."
    assert ("decide", "fits the budget", "ada") in server.controls(run_id)
    tab.page.wait_for_selector(".flight-head .pill[data-state=ended]")


def test_model_text_is_never_html_and_links_do_nothing_by_themselves(deck, server, axe):
    run_id = server.fly("hostile: write a report", agent="sprinter")
    server.state(run_id, "ended")
    tab = deck()
    tab.open(run_id)
    tab.page.wait_for_selector(".md table")
    assert tab.page.evaluate("window.pwned") is None
    assert tab.page.locator(".message img, .message a, .message script, .message b").count() == 0
    assert tab.page.locator(".message strong").inner_text() == "bold"
    tab.page.click(".inert-image")
    assert "https://evil.example/leak?q=secret" in tab.page.inner_text("dialog")
    tab.page.keyboard.press("Escape")
    tab.page.click("text=data")
    assert tab.page.locator("dialog a").count() == 0
    tab.page.keyboard.press("Escape")
    assert axe(tab) == []


def test_a_skill_that_was_read_shows_its_digest_its_turn_and_whether_it_is_trusted(deck, server, axe, paper, tmp_path):
    run_id = server.fly("study: two skills", agent="scholar")
    server.state(run_id, "ended")
    journaled = server.ask(f"/api/runs/{run_id}/messages")["messages"]
    digests = {one["skill"]["name"]: one["skill"]["digest"] for one in journaled if one.get("skill")}
    assert set(digests) == {"quotes", "terms"}
    tab = deck()
    tab.open(run_id)
    exported = paper(server.export(run_id, tmp_path / "run.html"))
    for page in (tab.page, exported):
        for name, turn, trust in (("quotes", 1, "untrusted"), ("terms", 2, "trusted")):
            row = page.locator(f"[data-tool=read_skill] [data-skill={name}]")
            assert " ".join(row.inner_text().split()) == (
                f"Read SKILL.md of the skill {name} at turn {turn} {trust} {digests[name]}"
            )
    assert axe(tab) == []
    tab.open(run_id, "events")
    line = f"SKILL.md of the skill quotes, untrusted, {digests['quotes']}."
    tab.page.wait_for_selector(f".event-row:has-text({line!r})")


def test_a_hand_off_says_who_speaks_and_a_call_in_the_background_has_both_its_ends(deck, server, axe):
    run_id = server.fly("relay: a refund", agent="triage")
    server.state(run_id, "ended")
    said = [one for one in server.ask(f"/api/runs/{run_id}/messages")["messages"] if one["role"] == "assistant"]
    assert [one.get("agent") for one in said] == [None, "billing", "billing", "billing"]
    later = server.ask(f"/api/runs/{run_id}/messages?after={said[1]['index']}")["messages"]
    assert [one.get("agent") for one in later if one["role"] == "assistant"] == ["billing"] * 3
    tab = deck()
    tab.open(run_id)
    row = tab.page.locator("[data-tool=transfer_to_billing] [data-handoff=billing]")
    assert row.inner_text() == "triage handed the conversation over to billing"
    assert "billing" in tab.page.locator(".role-assistant .message-head").last.inner_text()
    assert axe(tab) == []
    tab.open(run_id, "events")
    for kind, said in (("BackgroundStarted", "refund runs on as bg-1"), ("BackgroundEnded", "refund as bg-1 in")):
        tab.page.select_option("label:has-text('Kind') select", kind)
        tab.page.wait_for_selector(f".event-row:has-text({said!r})")


def test_gauges_show_used_reserved_landing_reserve_and_limit(deck, server):
    run_id = server.fly("work: for the gauges")
    server.turn(run_id, 3)
    tab = deck()
    tab.open(run_id)
    meter = tab.page.locator("[data-gauge=tokens] [role=meter]")
    tab.page.wait_for_function(
        "() => /used, .* reserved, .* kept for the landing, limit 60,000/.test("
        "document.querySelector('[data-gauge=tokens] [role=meter]').getAttribute('aria-valuetext'))"
    )
    assert meter.get_attribute("aria-valuemax") == "60000"
    tab.page.wait_for_selector("[data-gauge=tokens] [data-eta]:has-text('to limit')")
    tab.page.wait_for_selector(".burn canvas")
    server.ask(f"/api/runs/{run_id}/stop", {"reason": "seen enough"})
    server.state(run_id, "ended")
    tab.page.wait_for_selector(".flight-head .pill[data-state=ended]")


def test_the_list_has_nothing_serious_for_axe_and_fits_a_phone(deck, server, axe):
    tab = deck(width=390, height=844, scheme="dark")
    tab.page.wait_for_selector(".run-row")
    assert tab.overflow() <= 0
    assert axe(tab) == []


def test_an_exported_run_shows_itself_without_a_server_a_request_or_a_secret(paper, server, tmp_path):
    run_id = server.fly("hostile: kept in a file", agent="sprinter")
    server.state(run_id, "ended")
    page_file = server.export(run_id, tmp_path / "run.html")
    text = page_file.read_text()
    assert [secret for secret in (CONTROL, VIEW) if secret in text] == []
    page = paper(page_file)
    page.wait_for_selector(".flight-head h1:has-text('hostile: kept in a file')")
    assert page.locator(".message strong").inner_text() == "bold"
    assert page.evaluate("window.pwned") is None
    assert page.locator(".controls button").count() == 0
