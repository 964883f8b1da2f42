"""What SQL needs besides a plain install, asked for before any of it is imported."""

from __future__ import annotations

import importlib
from typing import Any

from nexo.vocabulary.errors import InvalidArgument

INSTALL = "pip install 'nexo-broker[sql]'"
_PACKAGES = {"duckdb": "DuckDB", "pyarrow": "PyArrow", "numpy": "NumPy"}


def duckdb_or_refusal() -> Any:
    """The module; who has not installed it, or what it gets messages with, is told how."""
    for package, name in _PACKAGES.items():
        try:
            importlib.import_module(package)
        except ImportError:
            raise InvalidArgument(f"SQL needs {name}, which is not installed", INSTALL) from None
    return importlib.import_module("duckdb")
