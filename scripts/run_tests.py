"""Run the suite; try the few tests that failed once more, alone, before the verdict.

python scripts/run_tests.py [what pytest takes]

Tests that kill processes or drive a browser can fail because the machine is busy. A test that fails beside others
and passes alone is named at the end: that is a defect of the test, to be mended, but not a reason to stop. Failures
that repeat, more than FEW of them, or a suite that could not run to its end fail at once.
"""

import json
import subprocess
import sys
from pathlib import Path

FEW = 5
SOME_FAILED = 1
"""pytest's exit code for a suite that ran to its end with failures."""


def pytest(*given: str) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *given], check=False).returncode


def failed() -> list[str]:
    """The tests that pytest remembers as failed in the run that just ended."""
    remembered = Path(".pytest_cache/v/cache/lastfailed")
    return sorted(json.loads(remembered.read_text())) if remembered.exists() else []


def main(given: list[str]) -> int:
    Path(".pytest_cache/v/cache/lastfailed").unlink(missing_ok=True)
    code = pytest(*given)
    names = failed()
    if code != SOME_FAILED or not 0 < len(names) <= FEW:
        return code
    print(f"\n{len(names)} failed. Once more, alone:", *names, sep="\n  ", flush=True)
    measured = ["--cov-append"] if "--cov" in given else []
    alone = ["-n", "0"] if "-n" in given else []
    again = pytest(*given, *measured, *alone, "--last-failed")
    if again == 0:
        print("\nThese tests passed only on their second try, alone. Mend them:", *names, sep="\n  ", flush=True)
    return again


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
