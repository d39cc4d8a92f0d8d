"""Runs that get nowhere. Each is one lap of the circle (or a function of the lap); all of them must be landed."""

from .trace import err, malformed, ok

STUCK = {
    "the same call": [ok("search", "Nothing new.", query="same")],
    "the same call with the keys in another order": lambda n: [
        ok("query", "r", **({"a": 1, "b": [1, {"c": 2, "d": 3}]} if n % 2 else {"b": [1, {"d": 3, "c": 2}], "a": 1}))
    ],
    "the same long call": [ok("search", "no " * 5000, query="y" * 5000)],
    "the same batch": [[ok("search", "a", q=1), ok("read", "b", path="b")]],
    "the same batch in another order": lambda n: [
        [ok("search", "a", q=1), ok("read", "b", path="b")][:: 1 if n % 2 else -1]
    ],
    "two in turn": [ok("search", "Nothing new.", query="same"), ok("read", "Nothing new.", doc="same")],
    "one tool, two questions in turn": [ok("search", "a", q=1), ok("search", "b", q=2)],
    "a tour of three": [ok("search", "a"), ok("read", "b"), ok("run", "c", cmd="x")],
    "a tour of four": [ok("search", "a"), ok("read", "b"), ok("run", "c", cmd="x"), ok("grep", "d")],
    "a tour of three with polling": [ok("search", "a"), ok("wait", "w"), ok("read", "b"), ok("wait", "w")],
    "incrementing arguments of a tool that only reads, the same answer": lambda n: [ok("grep", "no hits", word=n)],
    "incrementing arguments of a tool that only reads, no answer": lambda n: [ok("list_dir", "", path=n)],
    "batches of a tool that only reads, the same answer": lambda n: [
        [ok("grep", "no hits", word=n), ok("grep", "no hits", word=-n - 1)]
    ],
    "the same error, the same arguments": [err("fail", item=1)],
    "the same error, other arguments": lambda n: [err("fail", item=n)],
    "the same error in other whitespace": lambda n: [err("fail", text="permission " + " " * n + "denied", item=n)],
    "an error without a class": lambda n: [err("fail", kind="", item=n)],
    "time-outs": lambda n: [err("fetch", "timeout", page=n)],
    "two tools that fail in turn": lambda n: [err("fail", item=n), err("fetch", "timeout", page=n)],
    "arguments that never fit": lambda n: [err("query", "invalid_arguments", a=n)],
    "arguments that never parse": lambda n: [malformed("query", "{" * (n + 1))],
    "the same malformed call": [malformed("query", "{a:")],
    "one unknown name": [err("lookup_db", "unknown_tool", key="k")],
    "one unknown name, other arguments": lambda n: [err("lookup_db", "unknown_tool", key=n)],
    "many unknown names": lambda n: [err(f"lookup_{n}", "unknown_tool")],
    "always blocked": [err("send", "blocked", "no mail today", to="x")],
}


def laps(circle, count=16):
    """The whole trace, and the number of steps in a lap."""
    made = [circle(n) if callable(circle) else circle for n in range(count)]
    return [step for lap in made for step in lap], len(made[0])
