"""The embedded model: llama.cpp in its own process, and the files it runs."""

from glidepath.models.local.local_model import LocalModel
from glidepath.models.local.weights import KNOWN, Weights, cache_folder, find_weights_file, pull

__all__ = ["KNOWN", "LocalModel", "Weights", "cache_folder", "find_weights_file", "pull"]
