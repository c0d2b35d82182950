"""What a test needs of the machine beyond Python; without it the test is skipped, naming the package."""

import shutil

import pytest


def command(name, package=None):
    """A mark for tests that run a program."""
    return pytest.mark.skipif(shutil.which(name) is None, reason=f"needs {name}: apt install {package or name}")
