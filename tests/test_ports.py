"""What passes for a port: whatever has the methods, on every Python."""

from glidepath.sessions import MemoryStore
from glidepath.spi import Inbox, SessionStore, WalletStore, is_implementing


class Wrapper:
    """Passes on what it does not know."""

    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.inner, name)


def test_a_wrapper_that_passes_methods_on_offers_what_is_inside():
    wrapped = Wrapper(MemoryStore())
    assert [is_implementing(wrapped, port) for port in (SessionStore, WalletStore, Inbox)] == [True] * 3


def test_an_object_without_all_the_methods_and_a_class_do_not():
    class Half:
        async def claim(self, session_id, owner, *, create=True):
            raise NotImplementedError

    assert [is_implementing(one, SessionStore) for one in (Half(), MemoryStore, None, object())] == [False] * 4
