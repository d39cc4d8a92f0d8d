"""Code mode: a model writes a program that calls its tools; every call in it is an ordinary tool call of the run."""

from glidepath.workspace.code import CodeMode

__all__ = ["CodeMode"]
