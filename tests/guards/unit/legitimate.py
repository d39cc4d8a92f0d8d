"""Work that looks a little like a loop and is none: no guard may take a tool away or land on any of it."""

from .trace import err, malformed, ok

N = range(12)


def _edit_and_test(rounds, result):
    return [step for n in range(rounds) for step in (ok("edit", f"edited line {n}", line=n), result(n))]


LEGITIMATE = {
    # one call after the other
    "no step at all": [],
    "one call": [ok("search", "a", q="x")],
    "the same call twice": [ok("search", "a", q="x")] * 2,
    "the same call three times, then another": [*[ok("search", "a", q="x")] * 3, ok("read", "b", path="b")],
    "three times the same, a look elsewhere, three times again": (
        [*[ok("search", "a", q="x")] * 3, ok("read", "b", path="b"), *[ok("search", "a", q="x")] * 3]
    ),
    "a search for every word": [ok("search", f"hit {n}", q=f"w{n}") for n in N],
    "different tools, the same answer": [
        ok(name, "ok") for name in ("search", "read", "run", "fetch", "query", "edit", "send")
    ],
    "the same question again after new work": [
        step for n in N for step in (ok("search", f"v{n}", q="x"), ok("read", f"text {n}", path=str(n)))
    ],
    # polling
    "waiting with a polling tool": [ok("wait", "running")] * 40,
    "polling a job until it is done": [*[ok("job_status", "running", id=1)] * 25, ok("job_status", "done", id=1)],
    "polling with other arguments": [ok("job_status", "running", id=n) for n in range(25)],
    "two polling tools in turn": [ok("wait", "w"), ok("job_status", "running")] * 15,
    "polling tools side by side": [[ok("wait", "w"), ok("job_status", "running")]] * 15,
    "polling beside new work": [[ok("wait", "running"), ok("read", f"text {n}", path=str(n))] for n in N],
    "polling between two equal looks": [ok("read", "a", path="a"), *[ok("wait", "w")] * 20, ok("read", "a", path="a")],
    "an ordinary tool whose status changes": [ok("query", f"{n} %", job=1) for n in N],
    # pagination and reading
    "pages with new results": [ok("fetch", f"page {n}", page=n) for n in range(30)],
    "pages through one cursor": [ok("fetch", f"rows {n}", cursor="next") for n in N],
    "pages of which three are empty": [ok("fetch", "" if n in (4, 5, 6) else f"rows {n}", page=n) for n in N],
    "pages that end in an empty one": [*[ok("fetch", f"rows {n}", page=n) for n in N], ok("fetch", "", page=12)],
    "five probes with the same answer, then a hit": [
        *[ok("search", "nothing", q=f"w{n}") for n in range(5)],
        ok("search", "found", q="y"),
    ],
    "reading many files": [ok("read", f"text {n}", path=f"f{n}") for n in range(30)],
    "reading many files, some of them equal": [ok("read", f"text {n // 3}", path=f"f{n}") for n in range(30)],
    "reading long files": [ok("read", "x" * 5000 + str(n), path=f"f{n}") for n in N],
    "long files that differ only at the end": [ok("read", "x" * 100_000 + str(n), path="log") for n in N],
    "reading a file in slices": [ok("read", f"slice {n}", path="big", offset=n * 100) for n in N],
    "tailing a growing log": [ok("read", "line\n" * n, path="log") for n in N],
    "listing, then reading each": [
        step for n in N for step in (ok("list_dir", f"a b c {n}", path=f"d{n}"), ok("read", f"t{n}", path=f"d{n}/a"))
    ],
    "five empty directories": [*[ok("list_dir", "", path=f"d{n}") for n in range(5)], ok("list_dir", "a", path="e")],
    "grep for one word in many places": [ok("grep", f"{n}: x", word="x", path=f"d{n}") for n in N],
    "arguments that differ only far behind": [ok("search", f"hit {n}", q="y" * 5000 + str(n)) for n in N],
    "arguments in another order, new results": [
        ok("query", f"row {n}", **({"a": 1, "b": 2} if n % 2 else {"b": 2, "a": 1})) for n in N
    ],
    # the same command, new output
    "the same command with new output": [ok("run", f"out {n}", cmd="make") for n in N],
    "the same command, two outputs in turn, other work between": [
        step for n in N for step in (ok("run", f"{n % 2}", cmd="git status"), ok("edit", f"edited {n}", line=n))
    ],
    "git status between edits": [
        step for n in N for step in (ok("run", "clean", cmd="git status"), ok("edit", f"edited {n}", line=n))
    ],
    "a counter that goes up": [ok("query", str(n), key="count") for n in range(50)],
    "a game of moves": [ok("click", f"board {n}", x=n % 3, y=n % 2) for n in range(30)],
    "one step of a simulation": [ok("run", f"t={n}", cmd="step") for n in range(50)],
    # edit and test
    "edit and test, fewer failures each time": _edit_and_test(9, lambda n: ok("run_tests", f"{9 - n} failed")),
    "edit and test, the same failure": _edit_and_test(9, lambda n: ok("run_tests", "1 failed")),
    "edit, build, test": [
        step
        for n in N
        for step in (ok("edit", f"edited {n}", line=n), ok("run", "built", cmd="make"), ok("run_tests", "1 failed"))
    ],
    "read, edit, test, read": [
        step
        for n in N
        for step in (
            ok("read", f"v{n}", path="a"),
            ok("edit", f"line {n}", n=n),
            ok("run_tests", "1 failed"),
            ok("read", f"v{n}'", path="a"),
        )
    ],
    "five edits that answer ok, then a test": [*[ok("edit", "ok", n=n) for n in range(5)], ok("run_tests", "passed")]
    * 3,
    "writing files that are named in the answer": [ok("write", f"wrote f{n}", path=f"f{n}", text="t") for n in N],
    "writing and reading back": [
        step for n in N for step in (ok("write", "ok", path=f"f{n}", text="t"), ok("read", f"text {n}", path=f"f{n}"))
    ],
    # errors
    "a retry that succeeds": [err("fetch", "timeout"), ok("fetch", "a")],
    "two retries, then success": [err("fetch", "timeout"), err("fetch", "timeout"), ok("fetch", "a")],
    "every fetch needs two tries": [
        step for n in N for step in (err("fetch", "timeout", page=n), ok("fetch", f"page {n}", page=n))
    ],
    "every fetch needs three tries, with different errors": [
        step
        for n in N
        for step in (err("fetch", "timeout", page=n), err("fetch", "OSError", page=n), ok("fetch", f"page {n}", page=n))
    ],
    "four failures, then success, again and again": [
        step
        for n in range(4)
        for step in (*[err("fetch", "timeout", page=(n, k)) for k in range(4)], ok("fetch", f"p{n}", page=n))
    ],
    "four kinds of errors": [
        err("fail", kind, item=n) for n, kind in enumerate(("OSError", "timeout", "ValueError", "KeyError"))
    ],
    "arguments wrong twice, then right": [
        err("query", "invalid_arguments", a=1),
        err("query", "invalid_arguments", a=2),
        ok("query", "r", a="3"),
    ],
    "a malformed call, then a good one": [malformed("query", "{a:"), ok("query", "r", a=1)],
    "a wrong name, then the right one": [err("functions.search", "unknown_tool"), ok("search", "a", q="x")],
    "two wrong names, then the right one": [
        err("lookup", "unknown_tool"),
        err("find", "unknown_tool"),
        ok("search", "a", q="x"),
    ],
    "a missing file here and there": [
        err("read", "FileNotFoundError", path=f"f{n}") if n % 3 == 2 else ok("read", f"text {n}", path=f"f{n}")
        for n in range(30)
    ],
    "blocked twice, then another way": [
        err("send", "blocked", "no mail"),
        err("send", "blocked", "no mail"),
        ok("write", "ok", path="mail"),
    ],
    "skipped calls are sent again": [
        [ok("read", f"text {n}", path=n), err("read", "skipped", "too many", path=n + 1)] for n in N
    ],
    "cancelled siblings": [[err("run", "OSError", cmd=n), err("run", "cancelled", cmd=n + 1)] for n in range(4)],
    # batches
    "a batch with one repeated and one new call": [
        [ok("read", "same", path="a"), ok("read", f"text {n}", path=f"f{n}")] for n in N
    ],
    "a batch whose results are partly new": [[ok("run", "a", cmd="x"), ok("run", f"b{n}", cmd="y")] for n in N],
    "the same batch in another order, new results": [
        [ok("run", f"a{n}", cmd="x"), ok("run", "b", cmd="y")][:: 1 if n % 2 else -1] for n in N
    ],
    "a large batch, once": [[ok("fetch", "Nothing new.", page=n) for n in range(500)]],
    "five large batches with the same answers": [[ok("fetch", "ok", page=(k, n)) for n in range(20)] for k in range(5)],
    "growing batches": [[ok("read", f"t{k}", path=str(k)) for k in range(n + 1)] for n in N],
    "equal calls within one batch": [[ok("search", f"a{n}", q="x")] * 3 for n in N],
    # cycles that stop in time
    "two tools in turn, twice": [ok("search", "a", q="x"), ok("read", "b", path="b")] * 2 + [ok("run", "c", cmd="c")],
    "two tools in turn, three times": [ok("search", "a", q="x"), ok("read", "b", path="b")] * 3
    + [ok("run", "c", cmd="c")],
    "a tour of three, three times": [ok("search", "a"), ok("read", "b"), ok("run", "c")] * 3 + [ok("send", "sent")],
    "a tour of four, three times": [ok("search", "a"), ok("read", "b"), ok("run", "c"), ok("grep", "d")] * 3
    + [ok("send", "sent")],
    "a tour of five, many times": [ok(name, "r") for name in ("search", "read", "run", "grep", "query")] * 4,
    "a tour of three with one new result": [
        step for n in N for step in (ok("search", "a"), ok("read", f"b{n}"), ok("run", "c"))
    ],
    # text of every kind
    "empty results, different tools": [ok(name, "") for name in ("search", "read", "run", "grep")] * 2,
    "results in other scripts": [ok("search", "你好" + "é" * n, q="x") for n in N],
    "results that are not text a store can write": [ok("read", "\udcff" * (n + 1), path="bin") for n in N],
}
