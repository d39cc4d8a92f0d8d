"""The contract of a `SessionStore`, clause by clause."""

from glidepath.testing.conformance.store_contract import SessionStoreContract

__all__ = ["SessionStoreContract"]
