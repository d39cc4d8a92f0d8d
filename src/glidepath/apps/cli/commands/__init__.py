"""The subcommands: one module each, imported when it is called.

A module of this package has `add_arguments(parser)` and `execute(options, world) -> int`. To add a command, write the
module and give it a line here.
"""

COMMANDS: dict[str, str] = {
    "run": "give an agent one task and print its answer",
    "chat": "talk with an agent in a full-screen terminal",
    "resume": "continue a run that was stopped, limited, paused or killed",
    "runs": "list, show, stop, export, import, prune, repair, replay runs",
    "send": "send a message to a run, in any process",
    "decide": "approve, deny or answer a call of a paused run, from anywhere",
    "wallets": "list, show, set, close, open, remove stored budgets",
    "sessions": "list, search, show, tag, fork, export, import and delete sessions",
    "fork": "make a new session from a turn of another one",
    "worker": "start a worker of a fleet in this process",
    "submit": "submit a run to a fleet",
    "fleet": "show a fleet, and set what it may spend and how fast",
    "serve": "serve agents over HTTP, with the flight deck in the browser",
    "gate": "put a gate before any agent: claude, codex, opencode and others land in a budget",
    "replay": "replay a recorded run of another agent offline, or continue from one of its turns",
    "keys": "add, list, revoke the keys that others call your server with",
    "acp": "connect an editor to an agent over the Agent Client Protocol",
    "deck": "open the flight deck on a store, on a demo fleet, or export a run",
    "demo": "see a limit land, a budget hold and a loop get noticed, no key needed",
    "team": "give a team of agents one goal and watch its steps",
    "mcp": "list, test and pin MCP servers, or serve agents as one",
    "skills": "list, check and show skills, and agents and slash commands from files",
    "models": "list model providers, fetch the embedded model",
    "sim": "run your configuration against misbehaving models and tools",
    "eval": "try an agent on a dataset: pass rate, cost, and what a smaller budget would buy",
    "approvals": "ask what a set of approval rules would have decided about stored runs",
    "whatif": "ask what other limits, prices or guards would have done to stored runs",
    "tune": "replay stored runs and propose guard thresholds",
    "config": "show, check and describe the configuration",
    "trust": "trust this folder's configuration, list or revoke trust",
    "completion": "print a completion script for your shell",
    "init": "write a configuration file, for this folder or for you",
}
"""Every command with the line that `glidepath --help` shows."""
GROUPS: dict[str, dict[str, str]] = {
    "work with agents": {
        "run": "give an agent one task and print its answer",
        "chat": "talk with an agent in a full-screen terminal",
        "resume": "continue a run that was stopped, limited, paused or killed",
        "runs": "list, show, stop, export, prune, repair, replay runs",
        "sessions": "list, search, show, tag, fork, export and delete sessions",
    },
    "limit and test": {
        "gate": "land any agent in a budget: claude, codex, opencode and others",
        "demo": "see an agent land and a budget hold, no key needed",
        "sim": "test your limits on misbehaving models; sim whatif, sim tune",
        "eval": "try an agent on a dataset: pass rate, cost, smaller budgets",
        "wallets": "list, show, set, close, open, remove stored budgets",
    },
    "serve and set up": {
        "serve": "serve agents over HTTP, with the flight deck in the browser",
        "deck": "open the flight deck on a store, on a demo fleet, or export a run",
        "mcp": "list, test and pin MCP servers, or serve agents as one",
        "models": "list model providers, keep a key, fetch the embedded model",
        "config": "show, check and describe the configuration",
        "init": "write a configuration file, for this folder or for you",
    },
}
"""What `glidepath --help` shows: it fits a small terminal. `--help-all` shows every command."""
FAMILIES: dict[str, dict[str, str]] = {"sim": {"whatif": "whatif", "tune": "tune"}}
"""A word behind a command that leads to another command: `glidepath sim whatif`."""
