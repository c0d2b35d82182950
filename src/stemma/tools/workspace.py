"""A conversation's own place: its folder, its fence, its shell, and what belongs to it alone.

It is made when the conversation starts and gone when it ends; no process outlives it. Our own credentials are taken
out of everything a tool returns before a model sees it, so neither the model nor the store ever has them. A fence that
is not the usual one, or that lets commands reach the network, is noted in every call. What tools may not write there
is told in `tools/protected.py`.
`tests/tools/test_workspace.py` proves it.
"""

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from stemma.errors import HarnessFailed
from stemma.redact import Redactor
from stemma.tools.protected import Mount, Protected, mounts
from stemma.tools.sandbox import Bubblewrap, ResourceLimits, Sandbox, choose_sandbox

if TYPE_CHECKING:
    from stemma.tools.shell import Shell

NOBODY = 65534
_TO_START = 30.0
"""How long a command that does nothing may take."""


class Workspace:
    """Where the tools of one conversation work."""

    def __init__(
        self,
        *,
        root: Path | None = None,
        sandbox: Sandbox | None = None,
        limits: ResourceLimits | None = None,
        secrets: Iterable[str] | Redactor = (),
        protected: Protected | None = None,
    ) -> None:
        self._given_root = root
        self._lasting = True
        self._sandbox = sandbox
        self.limits = limits or ResourceLimits()
        self.redactor = secrets if isinstance(secrets, Redactor) else Redactor(secrets)
        self.root = root or Path()
        self.protected = (protected or Protected()).resolved()
        """What tools may not write there, beside what is never written."""
        self.state: dict[str, Any] = {}
        """What tools remember for this conversation, such as its list of things to do."""
        self._shell: Shell | None = None
        self._starting = asyncio.Lock()

    @property
    def sandbox(self) -> Sandbox:
        """The fence; chosen when first needed, so that a conversation without commands needs none."""
        if self._sandbox is None:
            self._sandbox = choose_sandbox()
        return self._sandbox

    def openings(self) -> dict[str, Any]:
        """What every call made here must say of the fence: nothing if it is the usual one, and closed."""
        found: dict[str, Any] = {}
        if self._sandbox is not None and self._sandbox.name != Bubblewrap.name:
            found["sandbox"] = self._sandbox.name
        if self._sandbox is not None and self._sandbox.network:
            found["network"] = True
        return found

    def kept_in(self, root: Path) -> Self:
        """Work in `root`, which stays when the conversation ends: who gave it removes it."""
        self._given_root = self.root = root
        self._lasting = False
        return self

    def behind(self, sandbox: Sandbox) -> Self:
        """Have commands run behind this fence."""
        self._sandbox = sandbox
        return self

    async def open(self) -> Self:
        """Make the folder, unless one was given."""
        if self._given_root is not None:
            if not self._given_root.is_dir():  # to make one that is there waits for whoever changes the folder above
                self._given_root.mkdir(parents=True, exist_ok=True)
            self.root = Path(os.path.realpath(self._given_root))
        else:
            self.root = Path(tempfile.mkdtemp(prefix="stemma-")).resolve()
            own_folder(self.root)
        return self

    async def close(self) -> None:
        """End all processes, and remove the folder if it was ours."""
        if self._shell is not None:
            await self._shell.close()
            self._shell = None
        if self._given_root is None:
            await asyncio.to_thread(remove_folder, self.root)

    async def shell(self) -> "Shell":
        """The conversation's shell, started when first needed and again if it has ended."""
        from stemma.tools.shell import Shell

        async with self._starting:  # tools run side by side, and all of them share one shell
            if self._shell is not None and not self._shell.alive:
                await self._shell.close()
                self._shell = None
            if self._shell is None:
                mounted = self._mounts()
                self._shell = await Shell.start(self.sandbox, self.root, self.limits, mounted, self.redactor)
            return self._shell

    def _mounts(self) -> list[Mount]:
        """What of the folder is mounted by itself; nothing of a fresh one, which nobody will use but its tools."""
        return [] if self._given_root is None else mounts(self.root, self.protected, lasting=self._lasting)

    async def try_sandbox(self) -> None:
        """Start the fence around a fresh folder and run a command in it; `HarnessFailed` if that does not work.

        Installed is not enough: where namespaces are forbidden, nothing runs.
        """
        await self.open()
        try:
            ran = await (await self.shell()).run("true", _TO_START)
        finally:
            await self.close()
        if ran.code != 0:
            raise HarnessFailed(f"the sandbox {self.sandbox.name} runs nothing: {ran.output.strip()[-300:]}")

    def without_secrets(self, text: str) -> str:
        """`text` with our own credentials taken out."""
        return self.redactor.text(text)


def remove_folder(root: Path) -> None:
    """Remove a folder, however deep a command has made it."""
    with suppress(RecursionError):
        shutil.rmtree(root, ignore_errors=True)
    if os.path.lexists(root):
        if not root.is_symlink():  # a command may have closed its folders to us, too
            subprocess.run(["chmod", "-R", "u+rwx", "--", root], stderr=subprocess.DEVNULL, check=False)
        subprocess.run(["rm", "-rf", "--", root], stderr=subprocess.DEVNULL, check=False)


def own_folder(root: str | Path) -> None:
    """Give a folder of ours to nobody if we are root: commands run as its owner, and root's are not bounded."""
    if os.geteuid() != 0:
        return
    os.chown(root, NOBODY, NOBODY)
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            os.chown(os.path.join(folder, name), NOBODY, NOBODY, follow_symlinks=False)
