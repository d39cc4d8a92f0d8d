"""Run a scripted upstream until a signal ends it, then print what it served as JSON."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from pathlib import Path

from glidepath._wire import encode
from glidepath.testing.upstream.conduct import CONDUCTS
from glidepath.testing.upstream.script import FAULTS
from glidepath.testing.upstream.scripted_upstream import ScriptedUpstream
from glidepath.values import ConfigurationError


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    lines = [f"behaviors: {', '.join(CONDUCTS)}, stubborn", "faults, added with + (options at, first, every, rate):"]
    lines += [f"  {name:13} {text}" for name, text in FAULTS.items()]
    parser = argparse.ArgumentParser(
        prog="python -m glidepath.testing.upstream",
        description="A scripted model provider on 127.0.0.1.",
        epilog="\n".join(lines),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--behavior", default="honest", help="a script such as 'loop' or 'honest:calls=5 + 429:every=3'"
    )
    parser.add_argument(
        "--port", type=int, default=0, help="0 (default): any free port; the first line of output tells"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", type=Path, help="append a line of JSON for each call to this file")
    parser.add_argument("--bodies", action="store_true", help="with the requests' bodies")
    parser.add_argument("--rate", type=float, default=10_000.0, help="tokens a second of a long reply")
    parser.add_argument("--pace", type=float, default=0.0, help="seconds between the events of a stream")
    parser.add_argument("--delta", type=int, default=24, help="characters in an event of a stream")
    return parser


async def serve(options: argparse.Namespace) -> None:
    """Serve until SIGINT or SIGTERM."""
    upstream = ScriptedUpstream(
        options.behavior,
        port=options.port,
        seed=options.seed,
        log=options.log,
        bodies=options.bodies,
        keep=0,
        delta=options.delta,
        rate=options.rate,
        pace=options.pace,
    )
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    async with upstream:
        sys.stdout.write(upstream.url + "\n")
        sys.stdout.flush()
        await ended.wait()
    sys.stdout.write(encode({"usage": upstream.usage, "runs": upstream.runs}).decode() + "\n")


def main() -> int:
    """Entry point; exit code 2 for a script that makes no sense."""
    parser = build_parser()
    options = parser.parse_args()
    try:
        asyncio.run(serve(options))
    except (ConfigurationError, OSError) as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
