"""Recipes of rivals: the settings of `arr-coc train`, as files."""

from pathlib import Path

QUERY_BLIND = Path(__file__).with_name("query-blind.toml")
