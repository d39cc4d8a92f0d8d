"""Every cell of the page about notebooks, in a real IPython kernel."""

import queue
import sys
import time

import pytest

from .pages import ROOT, blocks

PAGE = ROOT / "docs" / "notebooks.md"
CELLS = [block for block in blocks(PAGE) if block.info.startswith("python cell")]
SECONDS = 120
pytestmark = pytest.mark.process


class Notebook:
    """A kernel, and the cells it is asked to run."""

    def __init__(self):
        client = pytest.importorskip("jupyter_client", reason="ipykernel is missing: pip install ipykernel")
        pytest.importorskip("ipykernel")
        self.manager = client.KernelManager(kernel_name="python3")
        self.manager.kernel_spec.argv[0] = sys.executable
        self.manager.start_kernel(cwd=str(ROOT))
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=SECONDS)

    def run(self, code, *, interrupt_after=None):
        """What a cell printed and displayed; it is interrupted as soon as it prints `interrupt_after`."""
        sent = self.client.execute(code)
        printed, displayed, until = "", None, time.monotonic() + SECONDS
        while time.monotonic() < until:
            try:
                message = self.client.get_iopub_msg(timeout=1)
            except queue.Empty:
                continue
            kind, content = message["header"]["msg_type"], message["content"]
            if kind == "stream":  # of a thread: it may not know which cell it belongs to
                printed += content["text"]
                if interrupt_after is not None and interrupt_after in printed:
                    printed, interrupt_after = printed.replace(interrupt_after, ""), None
                    self.manager.interrupt_kernel()
            elif message["parent_header"].get("msg_id") != sent:
                continue
            elif kind == "execute_result":
                displayed = content["data"]
            elif kind == "error":
                raise AssertionError("\n".join(content["traceback"]))
            elif kind == "status" and content["execution_state"] == "idle":
                return printed, displayed
        raise AssertionError(f"the cell did not end: {printed}")

    def close(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


@pytest.fixture(scope="module")
def notebook():
    opened = Notebook()
    yield opened
    opened.close()


SPY = """
from glidepath.events import StreamChunk

def told(event):
    if isinstance(event, StreamChunk) and "answer" in event.text:
        print("flying", flush=True)

_make_agent = make_agent
def make_agent(*turns):
    return _make_agent(*turns).replace(event_sink=told)
"""


def test_the_cells_of_the_page_run_in_a_kernel(notebook):
    first, plain, streamed, sync_stop, stream_stop = CELLS
    assert [cell.info for cell in CELLS] == ["python cell"] * 3 + ["python cell interrupted"] * 2

    _, shown = notebook.run(first.text)
    chart = shown["text/html"]
    assert "COMPLETED / DONE, 3 turns" in chart
    for limit in ("turns: 3 of 8", "tokens: ", "dollars: ", "seconds: "):
        assert limit in chart
    assert "<svg" in chart
    assert "<script" not in chart
    assert shown["text/plain"].startswith("<RunResult ")

    assert notebook.run(plain.text) == ("Hello.\n", None)

    printed, shown = notebook.run(streamed.text)
    assert printed == "One word after the other."
    assert "COMPLETED / DONE" in shown["text/html"]

    notebook.run(SPY)
    for cell in (sync_stop, stream_stop):
        printed, _ = notebook.run(cell.text, interrupt_after="flying")
        assert printed.split() == ["CANCELLED", "Half", "of", "the", "answer"]
