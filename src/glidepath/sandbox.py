"""Sandboxes for programs: which files they see, what they can write, whom they can reach, what they may use."""

from glidepath.tools.sandbox import Boxed, Sandbox, SandboxError

__all__ = ["Boxed", "Sandbox", "SandboxError"]
