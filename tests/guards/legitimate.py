"""Traces of honest work that look a little like loops. None of them may lose a tool or be landed.

A trace is a list of steps, a step a list of calls, a call what the model asks and what comes back. An exception class
stands for a tool that raises it. Tools whose name begins with `poll` are declared as polling.
"""

__all__ = ["TRACES"]


def one(tool, result, **arguments):
    """A step of one call."""
    return [(tool, arguments, result)]


def both(*steps):
    """One step that makes all these calls at once."""
    return [call for step in steps for call in step]


def same(tool, results, **arguments):
    """The same call again and again, with these results."""
    return [one(tool, result, **arguments) for result in results]


def pages(tool, count, *, start=1, text="entries of page {}"):
    return [one(tool, text.format(page), page=page) for page in range(start, start + count)]


def retried(tool, failures, result="ok", error=TimeoutError, **arguments):
    """The same call fails a few times and then succeeds."""
    return [*same(tool, [error] * failures, **arguments), one(tool, result, **arguments)]


def edit_test(rounds, *, reports=None):
    """Edit a file, run the tests; the edits differ, the reports may not."""
    steps = []
    for number in range(rounds):
        steps.append(one("edit", "edited", path="app.py", text=f"version {number}"))
        steps.append(one("test", reports[number] if reports else f"{rounds - number} failed"))
    return steps


def files(count, tool="read"):
    return [one(tool, f"text of file {number}", path=f"src/f{number}.py") for number in range(count)]


TRACES = {
    # --- polling ---------------------------------------------------------------------------------------------------
    "polling a job forty times": same("poll_job", ["running"] * 40, job=7),
    "polling with a changing state": same("poll_job", [f"{percent} %" for percent in range(0, 100, 5)], job=7),
    "polling two jobs in turn": [
        step
        for _ in range(10)
        for step in (*same("poll_job", ["running"], job=1), *same("poll_job", ["running"], job=2))
    ],
    "polling between other work": [
        step
        for number in range(6)
        for step in (one("poll_job", "running", job=1), *files(1)[:0], one("read", f"text {number}", path=f"f{number}"))
    ],
    "a status that changes at every third look": same(
        "status", ["queued", "queued", "running", "running", "running again", "done"], job=1
    ),
    "a queue that is drained": same("next_message", [f"message {number}" for number in range(12)]),
    "a log that grows": same("tail_log", ["\n".join(f"line {n}" for n in range(k)) for k in range(1, 10)]),
    "the time of day": same("now", [f"10:{minute:02d}" for minute in range(10)]),
    "a counter that is read": same("metrics", [f"requests {n * 31}" for n in range(8)]),
    "waiting for a lock twice, then having it": retried("acquire_lock", 2, "acquired", BlockingIOError, name="db"),
    # --- pagination ------------------------------------------------------------------------------------------------
    "ten pages with new entries": pages("list", 10),
    "thirty pages with new entries": pages("list", 30),
    "pages that end with an empty one": [*pages("list", 8), one("list", "[]", page=9)],
    "pages of which three are empty": [
        *pages("list", 3),
        *pages("list", 3, start=4, text="[]"),
        *pages("list", 3, start=7),
    ],
    "pages by cursor": [one("scan", f"chunk {n}, next=c{n + 1}", cursor=f"c{n}") for n in range(15)],
    "pages by offset": [one("query", f"rows {n}-{n + 99}", offset=n, limit=100) for n in range(0, 1500, 100)],
    "the same page twice in a row, then on": [one("list", "entries of page 1", page=1), *pages("list", 5)],
    "two lists in turn": [
        step for n in range(8) for step in (one("list", f"a{n}", page=n), one("scan", f"b{n}", cursor=n))
    ],
    "search terms with different hits": [one("search", f"{n} hits for term {n}", query=f"term {n}") for n in range(15)],
    "five search terms without a hit": [one("search", "no hits", query=f"term {n}") for n in range(4)]
    + [one("search", "1 hit", query="the term")],
    # --- retries that succeed --------------------------------------------------------------------------------------
    "one retry": retried("fetch", 1, url="u"),
    "two retries": retried("fetch", 2, url="u"),
    "two retries, three times over": [step for n in range(3) for step in retried("fetch", 2, f"body {n}", url=f"u{n}")],
    "four retries with growing pauses": [
        *[one("fetch", TimeoutError, url="u", wait=n) for n in range(4)],
        one("fetch", "body", url="u", wait=9),
    ],
    "a flaky tool that fails every other time": [
        step
        for n in range(10)
        for step in (one("fetch", ConnectionError, url=f"u{n}"), one("fetch", f"body {n}", url=f"u{n}"))
    ],
    "errors of different kinds": [
        one("run", error, command=f"c{n}")
        for n, error in enumerate([ValueError, KeyError, OSError, TypeError, LookupError])
    ],
    "a missing file, then the right one": [
        one("read", FileNotFoundError, path="a"),
        one("read", FileNotFoundError, path="b"),
        one("read", FileNotFoundError, path="c"),
        one("read", "text", path="d"),
    ],
    "a wrong argument put right": [one("run", ValueError, count="two"), one("run", "ok", count=2)],
    "a login that expires and is renewed": [
        one("api", PermissionError, path="/x"),
        one("login", "ok"),
        one("api", "body", path="/x"),
        one("api", PermissionError, path="/y"),
        one("login", "ok again"),
        one("api", "body of y", path="/y"),
    ],
    "three tools that each fail once": [
        one("read", OSError, path="a"),
        one("list", OSError, page=1),
        one("search", OSError, query="q"),
        one("read", "x", path="a"),
        one("list", "y", page=1),
        one("search", "z", query="q"),
    ],
    "a build that fails until it is fixed": [
        step
        for n in range(4)
        for step in (one("build", f"error in line {40 + n}"), one("edit", "edited", path="main.c", text=f"fix {n}"))
    ]
    + [one("build", "ok")],
    "an error, other work, the same error, success": [
        one("deploy", RuntimeError, to="prod"),
        *files(2),
        one("deploy", RuntimeError, to="prod"),
        one("deploy", "deployed", to="prod"),
    ],
    # --- edit and test ---------------------------------------------------------------------------------------------
    "ten rounds of edit and test": edit_test(10),
    "three rounds with the same report": edit_test(3, reports=["1 failed: test_x"] * 3),
    "five rounds with the same report and different edits": edit_test(5, reports=["1 failed: test_x"] * 4 + ["passed"]),
    "read, edit, test": [
        step
        for n in range(6)
        for step in (
            one("read", f"app.py at version {n}", path="app.py"),
            one("edit", "edited", path="app.py", text=f"v{n + 1}"),
            one("test", f"{6 - n} failed"),
        )
    ],
    "edit, format, test, commit": [
        step
        for n in range(5)
        for step in (
            one("edit", "edited", path="a.py", text=f"v{n}"),
            one("format", "formatted"),
            one("test", f"{20 + n} passed"),
            one("commit", f"commit {n:04x}", message=f"step {n}"),
        )
    ],
    "many edits of one file": [one("edit", f"edited line {n}", path="a.py", line=n) for n in range(20)],
    "many files with the same edit": [one("edit", f"edited f{n}", path=f"f{n}", text="licence") for n in range(20)],
    "bisecting": [
        one("checkout", f"at {c}", commit=c) if i % 2 == 0 else one("test", "good" if i % 4 == 1 else f"bad: {i}")
        for i, c in enumerate("abcdefgh")
    ],
    "undo and redo": [
        one("edit", "edited", path="a", text="x"),
        one("undo", "undone 1"),
        one("edit", "edited", path="a", text="y"),
        one("undo", "undone 2"),
        one("edit", "edited", path="a", text="z"),
    ],
    # --- the same command with new output --------------------------------------------------------------------------
    "git status after every change": [
        step
        for n in range(6)
        for step in (one("git_status", f"{n} changed files"), one("edit", "edited", path=f"f{n}", text="x"))
    ],
    "ls after every new file": [
        step
        for n in range(6)
        for step in (one("ls", " ".join(f"f{k}" for k in range(n))), one("write", f"wrote f{n}", path=f"f{n}"))
    ],
    "the same query on changing data": same("query", [f"{n * 7} rows" for n in range(10)], sql="select count(*)"),
    "a random number": same("roll", ["4", "2", "6", "1", "6", "3", "5", "2"]),
    "a random number with repeats": same("roll", ["4", "4", "2", "2", "6", "6", "1", "1"]),
    "the next row of a cursor": same("fetch_one", [f"row {n}" for n in range(25)]),
    "a screen that changes": same("screenshot", [f"<screen {n}>" for n in range(8)]),
    "clicking the same button": [one("click", f"step {n} of the wizard", button="next") for n in range(7)],
    "scrolling": [one("scroll", f"lines {n * 40} to {n * 40 + 39}", by=40) for n in range(15)],
    # --- batches ---------------------------------------------------------------------------------------------------
    "a batch with one repeated and one new call": [
        both(one("status", "busy", job=1), one("read", f"text {n}", path=f"f{n}")) for n in range(10)
    ],
    "a batch of ten reads": [both(*files(10))],
    "batches of reads": [both(*[one("read", f"text {k}.{n}", path=f"d{k}/f{n}") for n in range(5)]) for k in range(6)],
    "a batch in which one call always fails": [
        both(one("fetch", TimeoutError, url=f"u{n}"), one("read", f"text {n}", path=f"f{n}")) for n in range(8)
    ],
    "the same call twice in one batch": [
        both(one("roll", "4"), one("roll", "4")),
        both(one("roll", "2"), one("roll", "5")),
    ],
    "a batch that shrinks": [
        both(*[one("read", f"text {n} at {k}", path=f"f{n}") for n in range(k)]) for k in range(5, 0, -1)
    ],
    "all shards, several times": [
        both(*[one("shard", f"shard {n} at {k}", number=n) for n in range(4)]) for k in range(5)
    ],
    # --- looking again ---------------------------------------------------------------------------------------------
    "reading a file again after working on others": [
        *files(3),
        *files(3),
        one("edit", "edited", path="src/f0.py", text="x"),
    ],
    "reading the same file three times": same("read", ["text"] * 3, path="README"),
    "two files in turn, compared twice": [one("read", "left", path="a"), one("read", "right", path="b")] * 2
    + [one("diff", "3 lines differ", a="a", b="b")],
    "three files in turn, twice": files(3) * 2,
    "four files in turn, twice": files(4) * 2,
    "writing the same text to many places": [one("write", "ok", path=f"p{n}", text="same") for n in range(4)]
    + [one("verify", "all four are there")],
    "confirmations that all read ok": [
        one("write" if n % 2 else "edit", "ok", path=f"p{n}", text=f"t{n}") for n in range(12)
    ],
    "short answers of different tools": [
        step for n in range(5) for step in (one("check_a", "ok", n=n), one("check_b", "ok", n=n))
    ],
    "a checklist": [
        one(f"check_{word}", "passed") for word in ("format", "types", "tests", "docs", "build", "links", "size")
    ],
    "a plan that is updated": [
        step for n in range(8) for step in (one("plan", f"{n} of 8 done", done=n), one("work", f"part {n}", part=n))
    ],
    "notes between steps": [
        step
        for n in range(8)
        for step in (one("note", f"noted {n}", text=f"found {n}"), one("search", f"hit {n}", query=f"q{n}"))
    ],
    "a calculator": [one("add", str(n + n), a=n, b=n) for n in range(12)],
    "translations, one after the other": [one("translate", f"Satz {n}", text=f"sentence {n}") for n in range(15)],
    "a long session of everything": [
        *files(4),
        *edit_test(4),
        *pages("list", 4),
        *retried("fetch", 2, url="u"),
        *same("poll_job", ["running"] * 9, job=1),
        *files(4),
        one("commit", "done", message="m"),
    ],
}
