"""Third-party warnings are theirs; and without the package there is nothing to test."""

import importlib.util
from pathlib import Path

import pytest


def pytest_collection_modifyitems(items):
    missing = [name for name in ("atroposlib", "httpx") if not importlib.util.find_spec(name)]
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("default"))
            if missing:
                item.add_marker(pytest.mark.skip(reason=f"needs the package {missing[0]} (make test-trainers)"))
