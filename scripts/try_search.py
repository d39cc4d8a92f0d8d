"""Ask the search of the built site what newcomers ask; the right page has to be among the first three for 18 of 20.

Needs the site (make docs) and Chromium.

python scripts/try_search.py [-v]
"""

import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "build" / "site" / "index.html"
SHOWN, BAR = 3, 18
LOOKS, PAUSE = 30, 600  # a look at the results every so many milliseconds
QUESTIONS = {
    "image": "pictures-and-files",
    "pdf": "pictures-and-files choosing-a-model",
    "retry": "retries-and-timeouts",
    "pause": "approvals sessions talking-to-a-run",
    "thinking budget": "choosing-a-model",
    "system prompt": "context configuration choosing-a-model prompts recipes",
    "max_cost": "budgets configuration costs-by-user glossary",
    "vector store": "retrieval",
    "rag": "retrieval",
    "handoff": "handoffs hand-offs children teams",
    "claude code": "gate-claude-code gate",
    "codex": "gate-codex",
    "cost per user": "costs-by-user wallets",
    "debug": "debugging",
    "streaming": "streaming",
    "json output": "structured-output command-line",
    "human approval": "approvals",
    "resume after crash": "sessions",
    "what is a landing": "the-landing glossary",
    "test without api key": "running-without-a-key testing-your-agent",
}
FIND = (
    """() => [...document.querySelectorAll(".md-search-result__item > .md-search-result__link")].map((a) => a.href)"""
)


def first_pages(page, words):
    """The pages that the search shows first, each once, when it shows the same twice."""
    page.click(".md-search__input")
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.press("Delete")
    page.keyboard.type(words)
    shown: list[str] = []
    for _ in range(LOOKS):
        page.wait_for_timeout(PAUSE)
        before, shown = shown, page.evaluate(FIND)
        if shown and shown == before:
            break
    plain = [one.partition("#")[0].partition("?")[0] for one in shown]
    return list(dict.fromkeys(one.rpartition("/")[2].removesuffix(".html") for one in plain))


def main():
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None or not SITE.exists():
        sys.exit("needs Chromium, and the site: run make docs")
    found = 0
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        page.goto(SITE.as_uri())
        page.click(".md-search__input")
        for words, wanted in QUESTIONS.items():
            pages = first_pages(page, words)[:SHOWN]
            fine = bool(set(pages) & set(wanted.split()))
            found += fine
            if not fine or "-v" in sys.argv:
                print(f"{'found ' if fine else 'MISSED'} {words}: {', '.join(pages)}")
        browser.close()
    print(f"{found} of {len(QUESTIONS)} questions lead to the right page among the first {SHOWN}")
    return 0 if found >= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
