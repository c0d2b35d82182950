"""Imports point one way, the core is pure, and importing stemma does nothing but make its names known."""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from statistics import median
from types import ModuleType

import pytest

import stemma

HOME = Path(stemma.__file__).parent

LAYERS = [
    {"errors", "redact"},
    {"core"},
    {"formats", "store"},
    {"tools", "models"},
    {"agent", "compress"},
    {"batch"},
    {"viewer", "proxy"},
    {"cli"},
    {"__main__"},
]
"""From the bottom up, as in DESIGN §4: a part imports itself and parts further down, never one beside it. The command
line starts the viewer and the proxy, so it stands above them."""

NEVER = {("agent", "store")}
"""The loop yields facts and knows no store."""

PURE = {
    "abc", "array", "bisect", "collections", "collections.abc", "contextlib", "copy", "dataclasses", "difflib", "enum",
    "functools", "hashlib", "heapq", "itertools", "json", "math", "msgspec", "msgspec.structs", "operator", "re",
    "string", "struct", "sys", "textwrap", "threading", "types", "typing", "unicodedata", "weakref",
}  # fmt: skip
"""What the core may import beside itself: no file, clock, chance, process, environment or log is in there, and of
threads only the question which one it is in."""

PURE_OF_SYS = {"byteorder", "maxsize", "intern", "version_info"}

IMPURE_NAMES = {"open", "print", "input", "exec", "eval", "__import__", "breakpoint"}


# ── reading the source ───────────────────────────────────────────────────────────────────────────────────────────


def modules(part: str = "") -> list[Path]:
    where = HOME / part
    return sorted(where.rglob("*.py")) if where.is_dir() else [where.with_suffix(".py")]


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def dotted(path: Path) -> list[str]:
    """`…/stemma/core/graph.py` → stemma, core, graph; a package is its `__init__`."""
    return ["stemma", *path.relative_to(HOME).with_suffix("").parts]


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Every module that a file imports, anywhere in it: inside functions and under TYPE_CHECKING as well."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = dotted(path)[: -node.level] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield node.lineno, module
            if module == "stemma":  # `from stemma import core` imports a part of it by another spelling
                yield from ((node.lineno, f"stemma.{alias.name}") for alias in node.names)


def part_of(module: str) -> str | None:
    """Which part of stemma a module belongs to; None for other packages, and for the names of stemma itself."""
    head, _, rest = module.partition(".")
    part = rest.partition(".")[0]
    return part if head == "stemma" and ((HOME / part).is_dir() or (HOME / f"{part}.py").is_file()) else None


def level(part: str) -> int:
    return next(i for i, layer in enumerate(LAYERS) if part in layer)


PARTS = sorted({dotted(path)[1] for path in modules()} - {"__init__"})


# ── promises ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_part_has_its_layer():
    known = set().union(*LAYERS)
    assert set(PARTS) <= known, "give the new part a place in LAYERS"


@pytest.mark.parametrize("part", PARTS)
def test_imports_point_one_way(part):
    wrong = [
        f"{path.relative_to(HOME)}:{line} imports {module}"
        for path in modules(part)
        for line, module in imports(path)
        if (other := part_of(module)) not in (None, "", part)
        and (level(other) >= level(part) or (part, other) in NEVER)
    ]
    assert wrong == []


@pytest.mark.parametrize("part", [part for part in PARTS if level(part) < level("viewer")])
def test_no_part_takes_its_names_from_the_front_door(part):
    """`from stemma import MessageGraph` inside stemma would close a circle."""
    wrong = [
        f"{path.relative_to(HOME)}:{line} imports from stemma itself"
        for path in modules(part)
        for line, module in imports(path)
        if module == "stemma"
    ]
    assert wrong == []


@pytest.mark.parametrize("path", modules("core") + modules("errors"), ids=lambda path: path.stem)
def test_the_core_imports_nothing_but_what_is_pure(path):
    wrong = [module for _, module in imports(path) if module not in PURE and part_of(module) not in ("core", "errors")]
    assert wrong == []


@pytest.mark.parametrize("path", modules("core") + modules("errors"), ids=lambda path: path.stem)
def test_the_core_touches_nothing_outside_itself(path):
    called = {
        node.func.id for node in ast.walk(tree(path)) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert called & IMPURE_NAMES == set()
    of_sys = {
        node.attr
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "sys"
    }
    assert of_sys <= PURE_OF_SYS


def test_the_lazy_imports_of_the_front_door_lead_somewhere():
    assert all(getattr(stemma, name) is not None for name in stemma.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing_of_the_kind'"):
        stemma.nothing_of_the_kind  # noqa: B018


def test_all_is_sorted_and_is_what_is_public():
    assert list(stemma.__all__) == sorted(set(stemma.__all__))
    assert [name for name in dir(stemma) if not name.startswith("_")] == stemma.__all__
    ours = {
        name
        for name, value in vars(stemma).items()
        if not name.startswith("_")
        and not isinstance(value, ModuleType)
        and str(getattr(value, "__module__", "")).startswith("stemma")
    }
    assert ours <= set(stemma.__all__)


# ── importing does nothing ───────────────────────────────────────────────────────────────────────────────────────

WATCH = """
import collections.abc, json, os, sys, sysconfig, time

homes = {os.path.realpath(p) for p in (sys.prefix, sys.base_prefix, *sys.path, *sysconfig.get_paths().values()) if p}
harmful = (
    "ctypes.", "fcntl.", "ftplib.", "glob.", "http.", "mmap.", "os.chmod", "os.exec", "os.fork", "os.kill", "os.link",
    "os.mkdir", "os.posix_spawn", "os.putenv", "os.remove", "os.rename", "os.rmdir", "os.spawn", "os.startfile",
    "os.symlink", "os.system", "os.truncate", "os.unsetenv", "os.utime", "shutil.", "signal.", "smtplib.", "socket.",
    "sqlite3.connect", "subprocess.", "tempfile.", "urllib.", "webbrowser.", "_thread.start_new_thread",
)
writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
found, watching = [], False


def at_home(path):
    path = os.path.realpath(os.fsdecode(path))
    return any(path == home or path.startswith(home + os.sep) for home in homes)


def watch(event, args):
    global watching
    if not watching:
        return
    watching = False
    if event == "open" and not isinstance(args[0], int):
        mode, flags = args[1] or "", args[2] or 0
        if set(mode) & set("wax+") or flags & writing or not at_home(args[0]):
            found.append(f"opens {args[0]} {mode} {flags}")
    elif event.startswith(harmful):
        found.append(f"{event} {args}")
    watching = True


class Environment(collections.abc.MutableMapping):
    def __init__(self, name, real):
        self.name, self.real = name, real

    def note(self, *what):
        if watching:
            frame, files = sys._getframe(2), []
            while frame is not None and len(files) < 4:
                files.append(frame.f_code.co_filename)
                frame = frame.f_back
            found.append(f"{self.name} {what} by {files}")

    def __getitem__(self, key):
        self.note("read", key)
        return self.real[key]

    def __setitem__(self, key, value):
        self.note("set", key)
        self.real[key] = value

    def __delitem__(self, key):
        self.note("delete", key)
        del self.real[key]

    def __iter__(self):
        self.note("list")
        return iter(self.real)

    def __len__(self):
        self.note("count")
        return len(self.real)


os.environ, os.environb = Environment("environ", os.environ), Environment("environb", os.environb)
threads = len(sys._current_frames())
sys.addaudithook(watch)
watching = True
exec(sys.argv[1])
watching = False
if len(sys._current_frames()) != threads:
    found.append("starts a thread")
print(json.dumps(found))
"""

TIME = """
import time
clock, work = time.perf_counter(), time.process_time()
import stemma
print(time.perf_counter() - clock, time.process_time() - work)
"""


def child(*args: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HOME.parent), os.environ.get("PYTHONPATH", "")])}
    return subprocess.run(
        [sys.executable, *args], capture_output=True, text=True, env=environment, timeout=60, check=True
    )


def what_happens(code: str) -> list[str]:
    # -B: the interpreter's own cache of compiled modules is none of ours.
    ran = child("-B", "-c", WATCH, code)
    *printed, found = ran.stdout.splitlines()
    return [*json.loads(found), *(f"prints {line}" for line in [*printed, *ran.stderr.splitlines()])]


def test_importing_stemma_does_nothing():
    assert what_happens("import stemma") == []


@pytest.mark.parametrize("part", [part for part in PARTS if level(part) <= level("store")])
def test_importing_all_of_a_part_does_nothing_either(part):
    names = [".".join(dotted(path)).removesuffix(".__init__") for path in modules(part)]
    assert what_happens("import " + ", ".join(names)) == []


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("open('/etc/hostname')", "opens /etc/hostname"),
        ("open('/tmp/x', 'w') if False else os.open('/dev/null', os.O_RDWR)", "opens /dev/null"),
        ("os.environ.get('HOME')", "environ ('read', 'HOME')"),
        ("os.getenv('HOME')", "environ ('read', 'HOME')"),
        ("os.environb.get(b'HOME')", "environb ('read', b'HOME')"),
        ("os.putenv('X', '1')", "os.putenv"),
        ("import socket; socket.socket()", "socket."),
        ("import subprocess; subprocess.run(['true'])", "subprocess."),
        ("print('hello')", "prints hello"),
        ("sys.stderr.write('hello')", "prints hello"),
        ("import threading; threading.Thread(target=lambda: time.sleep(5), daemon=True).start()", "starts a thread"),
    ],
)
def test_the_watch_would_have_seen_it(code, what):
    assert any(what in found for found in what_happens(code))


def test_importing_stemma_takes_no_more_than_150_milliseconds():
    child("-c", TIME)  # once, so that the modules are compiled
    runs = [child("-c", TIME).stdout.split() for _ in range(5)]
    clock, work = (median(map(float, column)) for column in zip(*runs, strict=True))
    # On a machine with more to do than it has cores the clock counts the others' turns; then our own work must do.
    busy = os.getloadavg()[0] > len(os.sched_getaffinity(0))
    assert (work if busy else clock) <= 0.150
