"""What the deck shows of a call, and when its buttons work, in a real Chromium."""

import pytest
from tests.spoofs import IDS, SPOOFS, assert_shown


def waiting(deck, server, number):
    run_id = server.fly(f"spoof:{number}")
    server.state(run_id, "paused")
    tab = deck()
    tab.go("approvals")
    card = tab.page.locator(".pending", has=tab.page.locator(f"a[href='#/runs/{run_id}']"))
    card.wait_for()
    return run_id, tab, card


OFTEN = ("override", "homoglyph", "many lines")
NUMBERS = [pytest.param(at, id=name, marks=() if name in OFTEN else pytest.mark.slow) for at, name in enumerate(IDS)]


@pytest.mark.parametrize("number", NUMBERS)
def test_the_deck_shows_every_spoof_in_its_list_and_in_its_question(deck, server, number):
    spoof = SPOOFS[number]
    run_id, tab, card = waiting(deck, server, number)
    assert_shown(spoof, card.locator(".shown-call").inner_text())
    card.locator("button:has-text('Approve')").click()
    assert_shown(spoof, tab.page.locator("dialog .shown-call").inner_text())
    assert not [sign for sign in spoof.hidden if sign in tab.page.locator("dialog").inner_text()]
    style = tab.page.locator("dialog .shown-row").first.evaluate("row => getComputedStyle(row).unicodeBidi")
    assert style == "bidi-override", "letters stand in the order in which they run"
    tab.page.keyboard.press("Escape")
    (item,) = server.detail(run_id)["pending"]
    server.ask(f"/api/runs/{run_id}/decide", {"id": item["id"], "decision": "deny", "message": "no", "reason": "over"})
    server.state(run_id, "ended")


def test_approve_works_when_the_end_was_shown_and_not_before(deck, server):
    run_id, tab, card = waiting(deck, server, IDS.index("many lines"))
    card.locator("button:has-text('Approve')").click()
    button = tab.page.locator("dialog button[type=submit]")
    tab.page.wait_for_timeout(1_500)
    assert button.is_disabled()
    assert "rows are below" in tab.page.locator("dialog .shown-left").inner_text()
    tab.page.locator("dialog [name=reason]").press("Enter")
    tab.page.locator("dialog [name=reason]").press("Control+Enter")
    assert server.detail(run_id)["state"] == "paused"
    tab.page.locator("dialog .shown-call").evaluate("box => box.scrollTo(0, box.scrollHeight)")
    button.click()
    tab.said("approved")
    server.state(run_id, "ended")


def test_no_answer_counts_before_the_question_can_have_been_read(deck, server):
    run_id, tab, card = waiting(deck, server, IDS.index("homoglyph"))
    card.locator("button:has-text('Approve')").click()
    for _ in range(5):  # within some 100 milliseconds
        tab.page.keyboard.press("Enter")
    assert tab.page.locator("dialog button[type=submit]").is_disabled()
    assert server.detail(run_id)["state"] == "paused"
    tab.page.wait_for_timeout(900)
    tab.page.keyboard.press("Enter")
    tab.said("approved")
    assert server.state(run_id, "ended")["text"] == "The order is placed."


def test_the_decision_carries_the_digest_of_what_was_shown(deck, server):
    run_id, tab, card = waiting(deck, server, IDS.index("override"))
    (item,) = [one for one in server.ask("/api/approvals")["approvals"] if one["run_id"] == run_id]
    card.locator("button:has-text('Approve')").click()
    with tab.page.expect_request(f"**/api/runs/{run_id}/decide") as sent:
        tab.confirm()
    assert sent.value.post_data_json["digest"] == item["digest"]
    tab.said("approved")
