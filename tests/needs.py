"""What a test needs of the machine beyond Python; without it the test is skipped, naming the package."""

import shutil

import pytest


def command(name, package=None):
    """A mark for tests that run a program."""
    return pytest.mark.skipif(shutil.which(name) is None, reason=f"needs {name}: apt install {package or name}")


def package(name, extra):
    """An optional package, or a skip that names it; for a module at its top, or for one test inside it."""
    return pytest.importorskip(name, reason=f"needs {name.partition('.')[0]}: pip install 'stemmata[{extra}]'")
