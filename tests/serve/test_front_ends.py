"""The front ends that people use, from npm: one call is one run, a page has its own tool and a stop button."""

import json
import shutil
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from .deck import HEADERS, TOKEN
from .live import LiveServer

HERE = Path(__file__).parent / "front_ends"
BUILD = Path(__file__).parents[2] / "build" / "front_ends"
AI_SDK = ("ai@6.0.326", "@ai-sdk/react@3.0.325", "@ai-sdk/openai-compatible@2.0.87", "zod@4.6.7")
COPILOT = ("@copilotkit/react-core@1.74.0",)
PAGE = ("react@18.3.1", "react-dom@18.3.1", "esbuild@0.28.2", "zod@4.6.7")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


def installed(name, *packages):
    """A folder with these packages; without npm, or a registry to install from, the test is skipped."""
    folder = BUILD / name
    marker = folder / "installed"
    if not marker.is_file() or marker.read_text() != "\n".join(packages):
        npm = shutil.which("npm")
        if npm is None or shutil.which("node") is None:
            pytest.skip("npm and node are not here, so the front ends cannot be installed")
        folder.mkdir(parents=True, exist_ok=True)
        flags = ["--no-audit", "--no-fund", "--ignore-scripts", "--legacy-peer-deps", "--loglevel=error"]
        command = [npm, "install", "--prefix", str(folder), *flags, *packages]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=400, check=False)
        if done.returncode:
            pytest.skip(f"npm could not install {packages[0]}: {done.stderr.strip()[-200:]}")
        marker.write_text("\n".join(packages))
    return folder


def list_runs(url):
    return httpx.get(f"{url}/api/runs", headers=HEADERS).json()["runs"]


@pytest.mark.process
def test_one_call_of_the_ai_sdk_is_one_run_with_a_tool_and_when_it_fails(tmp_path):
    script = installed("ai", *AI_SDK) / "ai_sdk.mjs"
    shutil.copyfile(HERE / "ai_sdk.mjs", script)  # a module finds its packages from where it lies
    with LiveServer(
        tmp_path, "--store", "none", "--agent", "editor_agents:broken", agent="fleet_agents:mapper"
    ) as server:
        command = ["node", str(script), server.url, TOKEN]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        runs = list_runs(server.url)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert (seen["text"], seen["steps"]) == ("It says: a map of Oslo", 2)
    assert (seen["streamed"], seen["shown"]) == ("Look.It says: a map of Oslo", ["Oslo", "Oslo"])
    assert seen["failed"].startswith("422 the run failed: provider: RejectedError: no such key")
    assert [(run["agent"], run["outcome"]) for run in runs] == [
        ("broken", "failed"),
        ("mapper", "done"),
        ("mapper", "done"),
    ]


@pytest.fixture
def site(tmp_path):
    """A server for pages, on an origin of its own; its address and its folder."""
    folder = tmp_path / "site"
    folder.mkdir()

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    pages = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=pages.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{pages.server_port}", folder
    pages.shutdown()
    pages.server_close()


def bundle(name, packages, folder):
    """The page of this name, with its packages, in a folder."""
    place = installed(name, *packages, *PAGE)
    shutil.copyfile(HERE / f"{name}.jsx", place / f"{name}.jsx")
    loaders = [f"--loader:.{kind}=empty" for kind in ("css", "woff", "woff2", "ttf")]
    command = [str(place / "node_modules/.bin/esbuild"), f"{name}.jsx", "--bundle", "--format=esm", "--splitting"]
    command += [f"--outdir={folder}", '--define:process.env.NODE_ENV="production"', "--log-level=error", *loaders]
    subprocess.run(command, cwd=place, check=True, timeout=120)
    page = f'<!doctype html><meta charset="utf-8"><div id="root"></div><script type="module" src="{name}.js"></script>'
    (folder / f"{name}.html").write_text(page)


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux" or CHROMIUM is None, reason="Chromium is missing")
@pytest.mark.parametrize(("name", "packages"), [("usechat", AI_SDK), ("copilot", COPILOT)])
@pytest.mark.parametrize("store", ["none", "sqlite:store"])
def test_a_page_of_another_origin_has_its_own_tool_and_a_stop_button(tmp_path, site, name, packages, store):
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is missing: pip install playwright")
    origin, folder = site
    bundle(name, packages, folder)
    flags = ("--store", store, "--allow-origin", origin)
    with LiveServer(tmp_path, *flags, agent="fleet_agents:mapper") as server, sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        page.goto(f"{origin}/{name}.html?server={server.url}&key={TOKEN}")
        page.click("#ask")
        page.wait_for_function("document.querySelector('#text').textContent.includes('It says: ')", timeout=60_000)
        assert page.inner_text("#map") == "Oslo"
        assert page.inner_text("#text").endswith("It says: a map of Oslo")
        assert [run["outcome"] for run in list_runs(server.url)] == ["done"], "one run, over the pause"
        page.click("#long")
        page.wait_for_function("document.querySelector('#text').textContent.includes('word word')", timeout=60_000)
        page.click("#stop")
        page.wait_for_function("document.querySelector('#status').textContent === 'ready'", timeout=60_000)
        for _ in range(100):
            stopped = list_runs(server.url)[0]
            if stopped["state"] != "running":
                break
            page.wait_for_timeout(50)
        assert (stopped["outcome"], page.inner_text("#text").count("word") < 400) == ("cancelled", True)
        browser.close()
