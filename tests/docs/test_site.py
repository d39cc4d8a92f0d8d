"""The site that `make docs` builds, in a real browser: nothing is wider than its column, and no code is shown."""

import re
import shutil

import pytest

from .pages import ROOT

SITE = ROOT / "build" / "site"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
WIDE = """() => {
    const wide = [];
    for (const pre of document.querySelectorAll("article pre")) {
        const code = pre.querySelector("code") || pre;
        if (Math.max(pre.scrollWidth - pre.clientWidth, code.scrollWidth - code.clientWidth) > 1)
            wide.push(code.innerText.split("\\n").sort((a, b) => b.length - a.length)[0]);
    }
    return wide;
}"""
OVERFLOW = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None or not SITE.exists():
        pytest.skip("needs Chromium, and the site: run make docs")
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_wider_than_its_column(browser, width):
    page = browser.new_context(viewport={"width": width, "height": 900}).new_page()
    page.route("**/*.js", lambda route: route.abort())  # the search index of a page costs a second
    wide = []
    pages = set(SITE.rglob("*.html")) - {SITE / "404.html"}  # its styles are those of a server's root
    for path in sorted(pages):
        page.goto(path.as_uri(), wait_until="domcontentloaded")
        name = path.relative_to(SITE).as_posix()
        if width == 1280:
            wide += [f"{name}: {line[:100]}" for line in page.evaluate(WIDE)]
        if page.evaluate(OVERFLOW) > 0:
            wide.append(f"{name} is wider than the screen")
    assert not wide, "\n".join(wide)


@pytest.mark.slow
@pytest.mark.skipif(not SITE.exists(), reason="needs the site: run make docs")
def test_the_reference_shows_no_expression_that_fills_an_attribute():
    shown = []
    for path in sorted((SITE / "reference").glob("*.html")):
        blocks = re.findall(r'doc-attribute">.*?<pre>(.*?)</pre>', path.read_text(encoding="utf-8"), re.DOTALL)
        texts = [re.sub(r"<[^>]+>", "", block).strip() for block in blocks]
        shown += [f"{path.name}: {text}" for text in texts if re.match(r"(\w+)(: .*)? = (\1\b|_\w+[.(])", text)]
    assert not shown, "scripts/site_griffe.py leaves these out"
