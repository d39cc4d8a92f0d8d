"""Agents on many machines: an engine feeds runs to many worker processes. There is one: `glidepath.engines.dbos`."""
