"""Implementations that are broken on purpose, each with the clause it breaks and what else may fail because of it."""
