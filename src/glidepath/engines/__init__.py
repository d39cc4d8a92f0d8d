"""Agents past one machine: an engine feeds runs to many worker processes. There is one: `glidepath.engines.dbos`."""
