"""What the model says in each job, by the user's first words."""

import re

from provider import Asked, Call, Given, Reply, Script


def reply(asked: Asked) -> Reply:
    first = asked.users[0]
    return next((script for words, script in SCRIPTS.items() if words in first), unknown)(asked)


def unknown(asked: Asked) -> Reply:
    raise LookupError(f"no script for {asked.users[0]!r}")


def says(text: str) -> Script:
    return lambda _: text


def invoice(asked: Asked) -> Reply:
    tries = max(asked.turns, len(asked.users) - 1)
    return Given({"number": "A1", "total": (-3, 0, 3)[min(tries, 2)]})


def city(_: Asked) -> Reply:
    return Given({"name": "Lisbon", "people": 548000})


def balance(asked: Asked) -> Reply:
    return f"You have {asked.results[0]}." if asked.results else Call("balance", {})


def delegate(asked: Asked) -> Reply:
    return asked.results[0] if asked.results else Call("research", {asked.argument("research"): "Research bees."})


def research(asked: Asked) -> Reply:
    return f"I read that {asked.results[0]}." if asked.results else Call("search", {"words": "bees"})


def desk(asked: Asked) -> Reply:
    handover = next((name for name in asked.tools if "billing" in name), None)
    if handover is not None and asked.results:
        return "Handed over."
    if handover is not None:
        named = asked.argument(handover)
        return Call(handover, {named: "a refund"} if named else {})
    return "Tomorrow." if "When" in asked.last else "Your refund is on its way."


def remember(asked: Asked) -> Reply:
    return f"You said: {asked.users[0]}" if "Who" in asked.last else "Hello, Eve."


def refund(asked: Asked) -> Reply:
    return f"Done: {asked.results[0]}." if asked.results else Call("refund", {"order": 7})


def leave(asked: Asked) -> Reply:
    return f"The handbook says: {asked.results[0]}" if asked.results else Call("search", {"words": "leave"})


def add(asked: Asked) -> Reply:
    name = next((name for name in asked.tools if "add" in name), "add")
    return f"It is {asked.results[0]}." if asked.results else Call(name, {"a": 2, "b": 3})


def greet(asked: Asked) -> Reply:
    knows = re.fullmatch(r"\s*You help (\w+)\. Today is \w+day\.\s*", asked.system)
    return f"You are {knows[1]}, and I know the day." if knows else "I do not know."


def look(asked: Asked) -> Reply:
    content = asked.body["input"][-1]["content"]
    kinds = [part["type"] for part in content if part["type"] != "input_text"]
    return " and ".join(kinds)


def think(asked: Asked) -> Reply:
    return f"effort {asked.body['reasoning']['effort']}"


def search_web(asked: Asked) -> Reply:
    found = next((tool for tool in asked.body.get("tools") or [] if tool["type"].startswith("web_search")), {})
    return f"I may use {found.get('type')}, only on {', '.join(found.get('filters', {}).get('allowed_domains', []))}."


def price(asked: Asked) -> Reply:
    return f"{asked.results[0]}." if asked.results else Call("price", {"item": "tea"})


def plan(asked: Asked) -> Reply:
    facts, text = "Collect facts", "Write one sentence"
    rows = [{"id": "facts", "description": facts}, {"id": "text", "description": text, "depends_on": ["facts"]}]
    return Given([facts, text] if asked.fields else {"steps": rows})


def work(asked: Asked) -> Reply:
    if "Collect facts" in asked.last.partition("Your step")[2]:
        return "Bees dance."
    return "Bees dance. Source: a beekeeper." if "name a source" in asked.last else "Bees dance."


def review(asked: Asked) -> Reply:
    good = "Collect facts" in asked.last or "Source:" in asked.last
    advice = "" if good else "name a source"
    if "verdict" not in asked.fields:
        return Given({"good": good, "advice": advice})
    return Given({"verdict": "PASS" if good else "REVISE", "score": float(good), "feedback": advice, "suggestions": []})


SCRIPTS = {
    "Make a plan": plan,
    "You review": review,
    "how bees talk": work,
    "Read this invoice": invoice,
    "largest city": city,
    "How much do I have": balance,
    "Write about bees": delegate,
    "Research bees": research,
    "I want a refund": desk,
    "I am Eve": remember,
    "Refund order 7": refund,
    "Tell me something": says("Hello from a stream."),
    "How much leave": leave,
    "2 and 3": add,
    "Translate word": lambda asked: asked.last.replace("Translate ", ""),
    "2 + 2": says("4"),
    "3 + 3": says("7"),
    "5 + 5": says("10"),
    "Who am I, and": greet,
    "What are these": look,
    "bill me": says("It is done. " * 300),
    "Hello.": says("Hello from the second provider."),
    "Think hard": think,
    "Search the web": search_web,
    "What is tea": price,
}
