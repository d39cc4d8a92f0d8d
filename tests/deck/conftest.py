"""A server of scripted agents, a real browser, and a page that reports what went wrong inside it."""

import fcntl
import json
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DECK = ROOT / "deck"
STATIC = ROOT / "src/glidepath/apps/server/static"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
CONTROL = "control-token-0123456789"
VIEW = "view-token-0123456789012"


@pytest.fixture(scope="session")
def built():
    """The page, built anew when its sources are younger; skips where Node is missing."""
    if shutil.which("npm") is None:
        pytest.skip("npm is missing: install Node.js 20.19 or later to build the flight deck")
    (ROOT / "build").mkdir(exist_ok=True)
    with (ROOT / "build/deck.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        sources = [DECK / "index.html", DECK / "package-lock.json", DECK / "vite.config.ts", *DECK.glob("src/**/*.*")]
        index = STATIC / "index.html"
        if not index.exists() or index.stat().st_mtime < max(path.stat().st_mtime for path in sources):
            if not (DECK / "node_modules/vite").exists():
                npm("ci", "--no-audit", "--no-fund", "--loglevel=error")
            npm("run", "build", "--silent")
    return STATIC


def npm(*arguments):
    done = subprocess.run(["npm", *arguments], cwd=DECK, capture_output=True, text=True, check=False, timeout=240)
    if done.returncode and arguments[0] == "ci":
        pytest.skip(f"npm ci failed, so the flight deck cannot be built: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stdout + done.stderr


class Server:
    """A server process of flights.py, and a client of its API."""

    def __init__(self, folder, *, port=0):
        self.folder = folder
        self.port = port or free_port()
        self.start()

    def start(self):
        command = [sys.executable, str(ROOT / "tests/deck/flights.py"), str(self.port), str(self.folder)]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline().startswith("http"), "the server did not start"
        self.until(self.alive, "the server to answer")

    def alive(self):
        try:
            return urllib.request.urlopen(f"{self.base}/healthz", timeout=5).status == 200
        except OSError:
            return False

    @property
    def base(self):
        return f"http://127.0.0.1:{self.port}"

    def close(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()

    def ask(self, path, body=None):
        request = urllib.request.Request(f"{self.base}{path}", data=None if body is None else json.dumps(body).encode())
        request.add_header("Authorization", f"Bearer {CONTROL}")
        request.add_header("Accept", "application/json")
        if body is not None:
            request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def fly(self, task, agent="pilot", **more):
        """Start a run; its id."""
        return self.ask("/api/runs", {"agent": agent, "prompt": task, **more})["run_id"]

    def detail(self, run_id):
        return self.ask(f"/api/runs/{run_id}")

    def until(self, true, what, seconds=30):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if found := true():
                return found
            time.sleep(0.05)
        raise AssertionError(f"waited {seconds} s for {what}")

    def state(self, run_id, *wanted):
        """Wait until the run is in one of these states; its detail."""

        def found():
            detail = self.detail(run_id)
            return detail if detail["state"] in wanted else None

        return self.until(found, f"{run_id} to be {' or '.join(wanted)}")

    def turn(self, run_id, number):
        return self.until(lambda: self.detail(run_id)["turn"] >= number, f"turn {number}")

    def export(self, run_id, page_file):
        """Write one run into a file, as a person would."""
        command = [sys.executable, "-m", "glidepath", "deck", "export", run_id, str(page_file)]
        command += ["--store", str(self.folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
        assert done.returncode == 0, done.stderr
        return page_file

    def controls(self, run_id):
        """What the journal says that people did: (action, reason, who)."""
        records, page = [], None
        while page is None or page["records"]:
            page = self.ask(f"/api/runs/{run_id}/journal?limit=1000&after={len(records)}")
            records += page["records"]
        made = [record["payload"] for record in records if record["kind"] == "control"]
        return [(each["action"], each["reason"], each["who"]) for each in made]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as bound:
        return bound.getsockname()[1]


@pytest.fixture(scope="session")
def server(built, tmp_path_factory):
    found = Server(tmp_path_factory.mktemp("deck") / "store")
    yield found
    found.close()


@pytest.fixture(scope="module")
def browser():
    """A browser for one module: while Playwright runs, this thread has a loop, and asyncio.run refuses to start."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is missing: pip install playwright")
    if CHROMIUM is None:
        pytest.skip("chromium is missing: sh scripts/install_test_programs.sh installs it")
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield found
        found.close()


class Deck:
    """One tab with the flight deck in it."""

    def __init__(self, browser, server, *, token=CONTROL, width=1280, height=800, scheme="light"):
        self.server = server
        self.context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        self.context.set_default_timeout(20_000)
        self.page = self.context.new_page()
        self.errors = []
        self.elsewhere = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self.heard)
        self.page.on("request", self.asked)
        self.page.goto(f"{server.base}/#token={token}")

    def heard(self, message):
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.errors.append(message.text)

    def asked(self, request):
        if not request.url.startswith((self.server.base, "data:", "blob:")):
            self.elsewhere.append(request.url)

    def go(self, place):
        self.page.evaluate("place => { location.hash = place }", f"/{place}")

    def open(self, run_id, tab=""):
        self.go(f"runs/{run_id}{tab and '/'}{tab}")
        self.page.wait_for_selector(".flight-head")

    def press(self, *keys):
        self.page.wait_for_function("!document.querySelector('dialog[open]')")
        for key in keys:
            self.page.keyboard.press(key)

    def fill(self, **fields):
        for name, value in fields.items():
            self.page.fill(f"dialog [name={name}]", value)

    def confirm(self):
        self.page.click("dialog button[type=submit]")

    def said(self, text):
        """Wait for a report of what happened."""
        self.page.wait_for_selector(f".report-good:has-text({text!r})")

    def overflow(self):
        """Pixels by which the page is wider than the window."""
        return self.page.evaluate("document.documentElement.scrollWidth - innerWidth")

    def close(self):
        self.context.close()


@pytest.fixture
def deck(browser, server):
    made = []

    def make(**more):
        made.append(Deck(browser, more.pop("server", server), **more))
        return made[-1]

    yield make
    for each in made:
        each.close()
        assert each.errors == []
        assert each.elsewhere == []


class Paper:
    """An exported file in a browser without a network; everything it asks for, and all that goes wrong, is kept."""

    def __init__(self, browser, page_file):
        self.context = browser.new_context(offline=True)
        self.context.set_default_timeout(20_000)
        self.page, self.errors, self.asked = self.context.new_page(), [], []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(page_file.as_uri())


@pytest.fixture
def paper(browser):
    made = []

    def show(page_file):
        made.append((page_file, Paper(browser, page_file)))
        return made[-1][1].page

    yield show
    for page_file, each in made:
        each.context.close()
        assert each.errors == []
        assert each.asked == [page_file.as_uri()]


@pytest.fixture(scope="session")
def axe():
    """The serious and critical findings of axe-core on a page."""
    script = DECK / "node_modules/axe-core/axe.min.js"
    if not script.exists():
        pytest.skip("axe-core is missing: npm ci in deck/ installs it")
    text = script.read_text()

    def look(deck):
        # Through the debugger: the page's policy lets no other script in, which is as it should be.
        deck.page.evaluate(text)
        options = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]}
        found = deck.page.evaluate("options => axe.run(document, options)", options)
        bad = [each for each in found["violations"] if each["impact"] in ("serious", "critical")]
        return [(each["id"], [node["html"][:160] for node in each["nodes"]][:4]) for each in bad]

    return look
