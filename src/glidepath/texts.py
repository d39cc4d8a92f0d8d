"""Every sentence the runtime tells a model, in one value that an application can change."""

from glidepath.values.texts import Texts

__all__ = ["Texts"]
