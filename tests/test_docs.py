"""The documents run: every Python block works, and every command is documented and has help."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])


def python_blocks(path):
    return re.findall(r"```python\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_the_python_blocks_of_a_document_run_one_after_another(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in python_blocks(path):
        exec(compile(block, str(path), "exec"), names)


def command_names():
    from typer.main import get_command

    from stemma.cli.main import commands

    return sorted(get_command(commands()).commands)


@pytest.mark.parametrize("name", command_names())
def test_every_command_is_in_the_readme_and_has_help(name):
    assert f"`stemma {name}" in (ROOT / "README.md").read_text(encoding="utf-8")
    told = subprocess.run([sys.executable, "-m", "stemma", name, "--help"], capture_output=True, text=True, check=True)
    assert len(told.stdout.splitlines()) > 5


def test_no_module_path_named_in_a_document_is_missing():
    for path in [*DOCUMENTS, ROOT / "ARCHITECTURE.md", ROOT / "SECURITY.md"]:
        for named in re.findall(r"`((?:core|store|formats|models|tools|agent|cli)/\w+\.(?:py|sql))`", path.read_text()):
            assert (ROOT / "src" / "stemma" / named).exists(), f"{path.name} names {named}"
