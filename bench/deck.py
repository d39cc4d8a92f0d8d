"""The flight deck under load: first paint of a run of 20,000 events, and 50 live runs on the list.

    make deck-build && .venv/bin/python bench/deck.py

Needs Chromium (scripts/install_test_programs.sh) and playwright. The server and the browser share this machine, so
read the CPU times of the page's main thread first: they do not depend on who else is at work here. The bars are judged
at the end, and the exit code is 1 when one is missed. It takes about two minutes.
"""

import argparse
import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).parents[1]
TOKEN = "control-token-0123456789"  # noqa: S105 - the fixture's own
PORT = 7461
BASE = f"http://127.0.0.1:{PORT}"
STATIC = ROOT / "src/glidepath/apps/server/static"
RATE = 60  # events a second of each live run


def ask(path, body=None):
    request = urllib.request.Request(f"{BASE}{path}", data=None if body is None else json.dumps(body).encode())  # noqa: S310
    for name, value in {"Authorization": f"Bearer {TOKEN}", "Accept": "application/json"}.items():
        request.add_header(name, value)
    if body is not None:
        request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
        return json.load(answer)


def fly(task, **more):
    return ask("/api/runs", {"agent": "sprinter", "prompt": task, **more})["run_id"]


def long_run(events):
    limits = {"max_iterations": events, "max_tokens": 10**12, "max_cost": "1000000", "timeout": 3600}
    run_id = fly("quick: a long run", limits=limits)
    while (found := ask(f"/api/runs/{run_id}"))["sequence"] < events and found["state"] == "running":
        time.sleep(1)
    if found["state"] == "running":
        ask(f"/api/runs/{run_id}/stop", {"reason": "long enough"})
    return run_id, ask(f"/api/runs/{run_id}")["sequence"]


def first_paint(browser, run_id, tab, selector):
    """Milliseconds from navigation to the browser's first paint and to the first row, in a fresh profile."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    session = measured(context, page)
    before = metrics(session)
    page.goto(f"{BASE}/#/runs/{run_id}{tab}?token={TOKEN}")
    page.wait_for_selector(selector)
    found = {
        "first_row_ms": page.evaluate("performance.now()"),
        "first_paint_ms": page.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"),
        "page_cpu_ms": (metrics(session)["TaskDuration"] - before["TaskDuration"]) * 1000,
        "rows_drawn": page.locator(".virtual-row").count(),
    }
    context.close()
    return {name: round(value) for name, value in found.items()}


def measured(context, page):
    """A session that counts the CPU time of the page's main thread."""
    session = context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    return session


def scrolling(browser, run_id, seconds=5):
    """Frames a second and the share of the main thread while the events of a long run are scrolled through."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.goto(f"{BASE}/#/runs/{run_id}/events?token={TOKEN}")
    page.wait_for_selector(".event-row .event-kind")
    session = measured(context, page)
    before, began = metrics(session), time.monotonic()
    frames = page.evaluate(
        """seconds => new Promise(done => {
            const box = document.querySelector('.events .virtual');
            const end = performance.now() + seconds * 1000;
            let frames = 0;
            const step = () => {
                frames += 1;
                box.scrollTop += 240;
                performance.now() < end ? requestAnimationFrame(step) : done(frames);
            };
            requestAnimationFrame(step);
        })""",
        seconds,
    )
    spent = metrics(session)["TaskDuration"] - before["TaskDuration"]
    context.close()
    return {
        "frames_per_second": round(frames / seconds, 1),
        "page_cpu_ms_per_frame": round(spent * 1000 / frames, 2),
        "page_cpu_share": round(spent / (time.monotonic() - began), 3),
    }


def metrics(session):
    return {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}


def server_cpu(pid):
    """Seconds of CPU that the server has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def busy_list(browser, runs, seconds, pid):
    """How far the list is behind the server, and what it costs the page and the server, while `runs` runs stream."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.goto(f"{BASE}/#token={TOKEN}")
    page.wait_for_selector(".run-row")
    ids = [fly(f"chat: run {number}") for number in range(runs)]
    time.sleep(3)
    session = measured(context, page)
    before, began, lags = metrics(session), time.monotonic(), []
    first = {run_id: ask(f"/api/runs/{run_id}")["sequence"] for run_id in ids}
    counted, used = time.monotonic(), server_cpu(pid)
    shown = page.evaluate("[...document.querySelectorAll('.run-row')].map(row => row.dataset.run)")
    while time.monotonic() - began < seconds:
        run_id = shown[len(lags) % len(shown)]
        now = ask(f"/api/runs/{run_id}")["sequence"]
        at = time.monotonic()
        page.wait_for_function(
            "([id, seen]) => Number(document.querySelector(`[data-run=${id}]`)?.dataset.sequence) >= seen",
            arg=[run_id, now],
            timeout=30_000,
        )
        lags.append(time.monotonic() - at)
    after, span = metrics(session), time.monotonic() - began
    last = sum(ask(f"/api/runs/{run_id}")["sequence"] for run_id in ids)
    passed = time.monotonic() - counted
    rate, used = (last - sum(first.values())) / passed, server_cpu(pid) - used
    for run_id in ids:
        ask(f"/api/runs/{run_id}/stop", {"reason": "measured"})
    context.close()
    lags.sort()
    return {
        "events_per_second": round(rate),
        "lag_median_ms": round(lags[len(lags) // 2] * 1000),
        "lag_worst_ms": round(lags[-1] * 1000),
        "page_cpu_share": round((after["TaskDuration"] - before["TaskDuration"]) / span, 3),
        "server_cpu_share": round(used / passed, 3),
        "heap_mb": round(after["JSHeapUsedSize"] / 1e6, 1),
        "samples": len(lags),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, ROOT / "tests/deck/flights.py", str(PORT), f"{folder}/store"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            server.stdout.readline()
            time.sleep(1)
            found = measure(sync_playwright, options, server.pid)
        finally:
            server.terminate()
            server.wait()
    print(json.dumps(found, indent=2))
    if options.out:
        options.out.write_text(json.dumps(found, indent=2) + "\n")
    return judged(found, options)


def judged(found, options):
    """Say which bars are met; 1 when one is not."""
    live = found[f"{options.runs}_live_runs"]
    bars = [
        (
            f"first paint of a run of {found['run']['events']:,} events",
            found["transcript"]["first_paint_ms"],
            1000,
            "ms",
        ),
        ("its first message", found["transcript"]["first_row_ms"], 1000, "ms"),
        ("the first row of its events", found["events"]["first_row_ms"], 1000, "ms"),
        (f"{options.runs} live runs: how far the list is behind, at worst", live["lag_worst_ms"], 1000, "ms"),
        ("all assets, gzipped", found["assets_kb"], 150, "kB"),
    ]
    for name, value, bar, unit in bars:
        print(f"{'PASS' if value <= bar else 'FAIL'}  {name}: {value} {unit} (at most {bar} {unit})")
    rate, wanted = live["events_per_second"], RATE * options.runs
    enough = rate >= wanted
    print(f"{'PASS' if enough else 'FAIL'}  events a second of the live runs: {rate} (at least {wanted})")
    if not enough:
        print(f"      the server used {live['server_cpu_share']:.0%} of a core: below 90 % the machine was too busy")
    return int(not enough or any(value > bar for _, value, bar, _ in bars))


def measure(sync_playwright, options, pid):
    files = [path for path in STATIC.rglob("*") if path.is_file()]
    if not files:
        raise SystemExit("the page is not built: run make deck-build first")
    run_id, events = long_run(options.events)
    with sync_playwright() as playwright:
        chromium = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        first_paint(browser, run_id, "", ".message")  # the server folds the journal once
        found = {
            "run": {"events": events},
            "transcript": first_paint(browser, run_id, "", ".message"),
            "events": first_paint(browser, run_id, "/events", ".event-row .event-kind"),
            "scrolling": scrolling(browser, run_id),
            f"{options.runs}_live_runs": busy_list(browser, options.runs, options.seconds, pid),
            "assets_kb": round(sum(len(gzip.compress(path.read_bytes())) for path in files) / 1000),
        }
        browser.close()
    return found


if __name__ == "__main__":
    sys.exit(main())
