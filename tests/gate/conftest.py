"""What several tests of the gate start from."""

import threading
from http.server import ThreadingHTTPServer

import pytest


@pytest.fixture
def provider():
    """A provider that answers at once, in this process: `seen` are the heads and bodies that reached it."""
    from .test_run import Provider

    server = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    server.seen = []
    server.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()
