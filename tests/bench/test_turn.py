"""What an ordinary turn costs, counted: opcodes, frames and blocks of memory do not depend on the machine."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent.parent / "bench" / "turn.py"
MOST = {(3, 11): {"stream": 5_090, "batches": 4_764, "run": 4_135, "constraints": 8_066, "plugins": 8_583}}
"""Opcodes a turn, those of asyncio apart, which looks at the clock now and then.

Lower them when a turn gets cheaper; raise them only with a reason in the commit message.
"""
MOST_FRAMES, MOST_BLOCKS = {"stream": 174, "batches": 148, "run": 122, "constraints": 276, "plugins": 361}, 17
WAYS = list(MOST_FRAMES)


@pytest.fixture(scope="module")
def counted():
    done = subprocess.run([sys.executable, str(SCRIPT), "--json"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("way", WAYS)
def test_a_turn_takes_no_more_opcodes_than_it_did(counted, way):
    most = MOST.get(sys.version_info[:2])
    if most is None:
        pytest.skip(f"nobody has counted the opcodes of Python {sys.version_info[0]}.{sys.version_info[1]}")
    opcodes = counted[way]["opcodes"]
    assert sum(opcodes.values()) - opcodes["asyncio"] <= most[way]


@pytest.mark.parametrize("way", WAYS)
def test_a_turn_takes_no_more_frames_and_keeps_no_more_memory_than_it_did(counted, way):
    assert counted[way]["frames"] <= MOST_FRAMES[way]
    assert counted[way]["blocks"] <= MOST_BLOCKS


def test_every_part_of_a_turn_is_named(counted):
    assert counted["stream"]["opcodes"].get("the rest", 0) < 20
