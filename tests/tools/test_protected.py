"""Tools never write the settings of a project, the hooks and settings of git, or what is stemma's own."""

import asyncio
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

import needs
from stemma import MessageGraph, open_store
from stemma.tools.files import TOOLS as FILE_TOOLS
from stemma.tools.protected import CannotProtect, Protected, store_files
from stemma.tools.running import run_tool
from stemma.tools.sandbox import ResourceLimits
from stemma.tools.terminal import terminal
from stemma.tools.workspace import Workspace

LIMITS = ResourceLimits(seconds=20, memory_mb=1024, processes=64, file_mb=8, output_chars=2000)
TOOLS = {tool.name: tool for tool in FILE_TOOLS}


@pytest.fixture
def project():
    """A repository with settings, a store that is open, a run and a user's home in it."""
    root = Path(tempfile.mkdtemp(prefix="project-"))
    for folder in (".stemma", ".git/hooks", "runs/one", "home/.config/stemma"):
        (root / folder).mkdir(parents=True)
    for file in (".stemma/config.yaml", ".git/config", ".git/hooks/pre-commit", "runs/one/config.yaml", "notes"):
        (root / file).write_text("as it was")
    yield root
    shutil.rmtree(root)


def protecting(root, **options):
    own = Protected(store_files(root / "stemma.db"), (root / "runs", root / "home/.config/stemma"))
    return Workspace(root=root, limits=LIMITS, protected=own, **options)


def session(workspace, *commands):
    async def run():
        here = await workspace.open()
        try:
            return [await terminal(command, here, 15) for command in commands]
        finally:
            await here.close()

    return asyncio.run(run())


def everything(root):
    """All that must not change: content and mode of every protected file."""
    names = [".stemma", ".git/hooks", ".git/config", "runs", "home/.config/stemma"]
    found = [path for name in names for path in (root / name, *sorted((root / name).rglob("*")))]
    return {str(path): (path.stat().st_mode, path.read_bytes() if path.is_file() else None) for path in found}


WRITES = [
    ".stemma/config.yaml",
    ".stemma/new",
    "sub/.stemma/config.yaml",
    ".STEMMA/config.yaml",
    ".git/hooks/pre-commit",
    ".git/hooks/post-checkout",
    ".git/config",
    ".Git/Config",
    "sub/.git/hooks/x",
    "sub/.git",
    "stemma.db",
    "stemma.db-wal",
    "stemma.db-lock",
    "stemma.db-journal",
    "runs/one/config.yaml",
    "runs/two/new",
    "home/.config/stemma/config.yaml",
    "/workspace/.stemma/config.yaml",
    "./.stemma/./config.yaml",
]


@pytest.mark.parametrize("path", WRITES)
def test_the_file_tools_refuse_to_write_there(project, path):
    async def run():
        here = await protecting(project).open()
        written = await run_tool(TOOLS, "write_file", {"path": path, "content": "evil"}, here)
        patched = await run_tool(TOOLS, "patch", {"path": path, "old": "as it was", "new": "evil"}, here)
        return written, patched

    before = everything(project)
    written, patched = asyncio.run(run())
    assert not written.ok
    assert "is not written" in written.text
    assert not patched.ok
    assert everything(project) == before
    assert not (project / "sub").exists()


def test_the_file_tools_read_there_and_write_beside_it(project):
    async def run():
        here = await protecting(project).open()
        shown = await run_tool(TOOLS, "read_file", {"path": ".stemma/config.yaml"}, here)
        for path in (".git/info/exclude", "notes", "stemma.db.txt", ".gitignore", "src/hooks/config"):
            assert (await run_tool(TOOLS, "write_file", {"path": path, "content": "mine"}, here)).ok
        return shown

    assert "as it was" in asyncio.run(run()).text


ATTACKS = {
    "write settings": "echo evil > .stemma/config.yaml",
    "remove settings": "rm -rf .stemma",
    "move settings away": "mv .stemma old; mkdir .stemma; echo evil > .stemma/config.yaml",
    "write a hook": "echo evil > .git/hooks/pre-commit; echo evil > .git/hooks/post-checkout; chmod +x .git/hooks/*",
    "write git's settings": "echo evil > .git/config; git config core.fsmonitor evil",
    "move the repository away": "mv .git old; mkdir -p .git/hooks; echo evil > .git/config; echo evil > .git/hooks/x",
    "remove the repository": "rm -rf .git; mkdir -p .git/hooks && echo evil > .git/config",
    "remove the store": "rm -f stemma.db*",
    "empty the store": "for f in stemma.db*; do : > $f; done",
    "move the store away": "mv stemma.db other; cp other stemma.db; echo > stemma.db-wal",
    "link to the store": "ln stemma.db mine && echo evil > mine; ln -f notes stemma.db",
    "write a run": "echo evil > runs/one/config.yaml; rm -r runs/one; mkdir runs/two",
    "move the runs away": "mv runs old; mkdir runs; echo evil > runs/x",
    "write the user's settings": "echo evil > home/.config/stemma/config.yaml",
    "move the user's home away": "mv home old; mv home/.config old; rm -rf home/.config",
    "mount over it": "umount .stemma; umount -l .git/hooks; mount --bind /tmp .stemma; unshare -Urm umount .stemma",
    "remount it": "mount -o remount,rw .stemma; chmod -R 777 .stemma .git/hooks; chown nobody .stemma",
}


@needs.command("bwrap", "bubblewrap")
@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
@pytest.mark.parametrize("owner", ["ours", "nobody's"])
def test_a_command_cannot_write_there(project, attack, owner):
    if owner == "nobody's":
        if os.geteuid() != 0:
            pytest.skip("only root can give a folder away")
        subprocess.run(["chown", "-R", "65534:65534", project], check=True)
    with open_store(project / "stemma.db") as store:
        store.save(MessageGraph([{"role": "user", "content": "first"}]), "one")
        before = everything(project)
        session(protecting(project), attack, "echo done > notes")
        assert everything(project) == before
        assert (project / "notes").read_text() == "done\n"
        store.save(MessageGraph([{"role": "user", "content": "second"}]), "two")
    with open_store(project / "stemma.db") as store:
        assert store.names() == ["one", "two"]
        assert store.verify() == []


@needs.command("bwrap", "bubblewrap")
@pytest.mark.parametrize(
    "path", [".stemma/config.yaml", "stemma.db", "stemma.db-wal", "runs/x", "home/.config/stemma/x"]
)
def test_what_is_not_there_yet_cannot_be_made_by_a_command(path):
    root = Path(tempfile.mkdtemp(prefix="project-"))
    try:
        (result,) = session(protecting(root), f"mkdir -p $(dirname {path}); echo evil > {path}")
        assert not result.ok
        assert not (root / path).is_file() or not (root / path).read_bytes()
    finally:
        shutil.rmtree(root)


@needs.command("bwrap", "bubblewrap")
@needs.command("git")
def test_git_still_commits_in_the_workspace():
    root = Path(tempfile.mkdtemp(prefix="project-"))
    try:
        subprocess.run(["git", "init", "-q", root], check=True)
        who = "git -c user.name=a -c user.email=a@b -c safe.directory='*'"
        (result,) = session(
            protecting(root), f"echo 1 > f; {who} add f && {who} commit -qm first && {who} log --oneline"
        )
        assert result.ok, result.text
        assert "first" in result.text
    finally:
        shutil.rmtree(root)


@needs.command("bwrap", "bubblewrap")
def test_a_repository_that_is_a_file_cannot_be_pointed_elsewhere(project):
    shutil.rmtree(project / ".git")
    (project / ".git").write_text("gitdir: /elsewhere\n")
    session(protecting(project), "echo gitdir: evil > .git; mv .git x; rm -f .git; echo evil > .git")
    assert (project / ".git").read_text() == "gitdir: /elsewhere\n"


@needs.command("bwrap", "bubblewrap")
def test_what_a_link_stands_for_cannot_be_protected_and_is_refused(project):
    shutil.rmtree(project / ".stemma")
    (project / ".stemma").symlink_to("notes")
    with pytest.raises(CannotProtect, match="symbolic link"):
        session(protecting(project), "echo hi")


@needs.command("bwrap", "bubblewrap")
def test_a_folder_that_goes_with_its_conversation_is_left_as_it_is():
    root = Path(tempfile.mkdtemp(prefix="task-"))
    (result,) = session(Workspace(limits=LIMITS).kept_in(root), "ls -A")
    assert result.text == "[no output]"
    root.rmdir()


def test_a_workspace_inside_of_what_is_protected_is_written(tmp_path):
    async def run():
        here = await Workspace(root=tmp_path / "runs/work", protected=Protected(folders=(tmp_path / "runs",))).open()
        return await run_tool(TOOLS, "write_file", {"path": "a", "content": "mine"}, here)

    assert asyncio.run(run()).ok
