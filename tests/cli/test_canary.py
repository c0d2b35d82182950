"""A key is put into every place a key can come from, everybody echoes it, and no byte written or printed has it.

Not even a part of it: what is looked for are ten characters in a row. What holds a key because the test put it there
(the user's config file, a project's `.env`) is not looked at, and nothing else is left out: the store with its journal,
the files of runs, exports, pages, histories, temporary files, standard output, standard error and the terminal.
"""

import io
import json
import os
import stat
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pexpect
import pytest
import yaml

import needs
from cli.conftest import SOURCE
from cli.endpoint import endpoint
from completions import call, completion
from faultserver import Exchange, FaultServer
from stemma import open_store
from stemma.cli.main import main
from stemma.models.redact import BODY, MESSAGE
from stemma.redact import MASK

pytestmark = pytest.mark.filterwarnings("ignore:.*forkpty:DeprecationWarning")  # the endpoint runs in a thread

SERVER = Path(__file__).with_name("leaky_server.py")
WINDOW = 10


def key(place: str) -> str:
    """A key that nothing else looks like."""
    return f"sk-{sha256(place.encode()).hexdigest()[:32]}"


PLACES = (
    "variable of the model",
    "variable of the search",
    "variable that nobody names",
    "password in a variable",
    "Bearer header",
    "header of any name",
    "query of the model",
    "body of the request",
    "address of the search",
    "environment of MCP",
    "argument of MCP",
    "header of MCP",
    "query of MCP",
    "parameter by flag",
    "query by flag",
    "password by flag",
)
KEYS = {place: key(place) for place in PLACES}


# ── everybody echoes ─────────────────────────────────────────────────────────────────────────────────────────────


def heard(exchange: Exchange) -> str:
    """All that came with a request."""
    request = exchange.request
    return f"{request.path} {json.dumps(request.headers)} {json.dumps(request.body)}"


async def echo(exchange: Exchange) -> None:
    """Answer by what the user said: refuse, repeat, or have tools run."""
    everything = heard(exchange)
    said = [str(m.get("content")) for m in (exchange.request.body or {}).get("messages") or [] if m["role"] == "user"]
    wish = said[-1] if said else "refuse"
    secrets = [one for one in KEYS.values() if one in everything]
    if "/search" in exchange.request.path:
        await exchange.whole(f"{'.' * 185}{' '.join(secrets)}".encode(), 401)
    elif wish == "refuse" or "/v1/" not in exchange.request.path:
        at_the_cut = [".".ljust(limit - 20, ".") + one for limit in (300, MESSAGE, BODY) for one in secrets]
        message = at_the_cut[len(exchange.server.requests) % len(at_the_cut)] if at_the_cut else "no"
        await exchange.json({"error": {"message": message, "came": everything}}, 400)
    elif wish == "repeat":
        await exchange.completion(completion(f"You sent {everything}", reasoning_content=f"I saw {everything}"))
    elif exchange.request.body["messages"][-1]["role"] == "tool":
        await exchange.completion(completion("Done.", reasoning_content="All have answered."))
    else:
        await exchange.completion(completion(None, finish="tool_calls", tool_calls=list(calls(exchange))))


def calls(exchange: Exchange) -> list[dict[str, Any]]:
    """A call of each tool that could show a key, with outputs that are cut in the midst of one."""
    offered = {tool["function"]["name"] for tool in exchange.request.body.get("tools") or ()}
    asked = [
        ("read_file", {"path": ".env"}),
        ("read_file", {"path": "long.env"}),
        ("search_files", {"pattern": "sk-"}),
        ("terminal", {"command": "cat .env; env"}),
        ("terminal", {"command": "cat cut.env"}),
        ("terminal", {"command": "base64 -w0 .env; xxd -p .env | tr -d '\\n'"}),
        ("environment", {}),
        ("web_search", {"query": "keys"}),
        ("mcp_leaky_tell", {}),
        ("mcp_leaky_tell", {"padding": 14_990}),
        ("no_such_tool", {}),
    ]
    wanted = [one for one in asked if one[0] in offered or one[0] == "no_such_tool"]
    return [call(name, json.dumps(given), f"c{i}") for i, (name, given) in enumerate(wanted)]


# ── where keys come from ─────────────────────────────────────────────────────────────────────────────────────────


class House:
    """A user's home with a key in every place, and all that was printed there."""

    def __init__(self, home: Path, temporary: Path, server: FaultServer, caught: pytest.CaptureFixture[str]) -> None:
        self.home, self.temporary, self.server, self.printed = home, temporary, server, ""
        self._caught = caught
        self.root = server.base_url.removesuffix("/v1")
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "TMPDIR": str(temporary),
            "LANG": "C.UTF-8",
            "TERM": "xterm",
            "PROMPT_TOOLKIT_NO_CPR": "1",
            "PYTHONPATH": os.pathsep.join([str(SOURCE), *filter(None, [os.environ.get("PYTHONPATH")])]),
            "CANARY_API_KEY": KEYS["variable of the model"],
            "SEARCH_VARIABLE": KEYS["variable of the search"],
            "GITHUB_TOKEN": KEYS["variable that nobody names"],
            "INDEX_URL": f"https://me:{KEYS['password in a variable']}@example.org/simple",
        }
        self.sources = [home / ".config/stemma/config.yaml", home / "project"]
        self._furnish()

    def _furnish(self) -> None:
        (self.home / ".config/stemma").mkdir(parents=True)
        (self.home / "tools.py").write_text(TOOLS)
        (self.home / "scoring.py").write_text(REWARD)
        self.configure()

    def configure(self, **more: Any) -> None:
        model = {
            "base_url": f"{self.server.base_url}?api_key={KEYS['query of the model']}&api-version=1",
            "model": "m",
            "api_key_env": "CANARY_API_KEY",
            "headers": {
                "X-Auth": f"Bearer {KEYS['Bearer header']}",
                "X-Team": KEYS["header of any name"],
                "X-Title": "the title",
            },
            "extra_body": {"auth": {"api_key": KEYS["body of the request"]}},
            "retries": {"attempts": 1},
        }
        search = f"{self.root.replace('://', '://me:' + KEYS['address of the search'] + '@')}/search"
        web = {"provider": "serper", "api_key_env": "SEARCH_VARIABLE", "search_url": search}
        config = {"model": "canary", "models": {"canary": model}, "web": web, **more}
        self.sources[0].write_text(yaml.safe_dump(config))

    def project(self, *flags: str) -> None:
        """A project whose files hold every key that is known here: set, configured or given by a flag."""
        known = json.dumps([self.environ, self.sources[0].read_text(), flags])
        keys = [one for one in KEYS.values() if one in known]
        folder = self.home / "project"
        folder.mkdir()
        (folder / ".env").write_text("".join(f"KEY_{i}={one}\n" for i, one in enumerate(keys)))
        (folder / "long.env").write_text("\n".join("." * (1_990 - i) + one for i, one in enumerate(keys)))
        (folder / "cut.env").write_text("." * 14_980 + " ".join(keys) * 30 + "." * 14_980)

    def with_mcp(self, *arguments: str) -> None:
        told = {"command": sys.executable, "args": [str(SERVER), "--token", KEYS["argument of MCP"], *arguments]}
        self.configure(mcp={"leaky": {**told, "env": {"LEAKY_AUTH": KEYS["environment of MCP"], "PYTHONPATH": ""}}})

    def stemma(self, *arguments: str, code: int | None = 0) -> str:
        """Run a command in this process; what it printed."""
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.home)
            for name in os.environ:
                patch.delenv(name)
            for name, value in self.environ.items():
                patch.setenv(name, value)
            ended = main(list(arguments))
        printed = "".join(self._caught.readouterr())
        self.printed += printed
        assert code is None or ended == code, printed
        return printed

    def stemma_alone(self, *arguments: str, code: int = 0) -> None:
        """The same in a process of its own."""
        done = subprocess.run(
            [sys.executable, "-c", "from stemma.cli.main import run; run()", *arguments],
            cwd=self.home,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=120,
        )
        self.printed += done.stdout + done.stderr
        assert done.returncode == code, done.stdout + done.stderr

    def at_terminal(self, *arguments: str) -> pexpect.spawn:
        """Start a command at a terminal; `self.shown` gets all that it prints there."""
        self.shown = io.StringIO()
        child = pexpect.spawn(
            sys.executable,
            ["-c", "from stemma.cli.main import run; run()", *arguments],
            cwd=str(self.home),
            env=self.environ,
            dimensions=(40, 200),
            encoding="utf-8",
            timeout=60,
        )
        child.logfile_read, child.delaybeforesend = self.shown, None
        return child

    def hunt(self) -> None:
        """No byte anywhere has a part of a key."""
        assert_clean(self.printed.encode("utf-8", "replace"), "the output")
        for file in [*self.home.rglob("*"), *self.temporary.rglob("*")]:
            if file.is_file() and not any(file == one or one in file.parents for one in self.sources):
                assert_clean(file.read_bytes(), str(file))


def assert_clean(content: bytes, where: str) -> None:
    for place, one in KEYS.items():
        for form in (one.encode(), one.encode().hex().encode()):
            for at in range(3, len(form) - WINDOW + 1):
                found = content.find(form[at : at + WINDOW])
                assert found < 0, f"{where} has a part of the {place}: {content[max(found - 80, 0) : found + 80]!r}"


TOOLS = '''
import json, os

def environment(key: str = os.environ["GITHUB_TOKEN"]) -> str:
    """Tell all variables."""
    return json.dumps(dict(os.environ))
'''
ODD = '''
import os

class Odd(BaseException):
    """No mistake that anybody expects."""

raise Odd(os.environ["GITHUB_TOKEN"])
'''
REWARD = """
import os

def leaks(scored):
    if scored.answer == "Done.":
        return {"reward": 1.0, "note": os.environ["GITHUB_TOKEN"]}
    raise ValueError("cannot ask with " + os.environ["CANARY_API_KEY"])
"""


@pytest.fixture
def house(tmp_path, capfd):
    with endpoint() as server, TemporaryDirectory() as temporary:
        os.chmod(temporary, 0o711)  # who runs as nobody must get through
        server.always = echo
        yield House(tmp_path, Path(temporary), server, capfd)


# ── the hunt ─────────────────────────────────────────────────────────────────────────────────────────────────────


@needs.command("bwrap", "bubblewrap")
def test_a_batch_with_its_files_exports_and_pages(house):
    house.with_mcp()
    rows = [{"prompt": "tools", "cwd": str(house.home / "project")}, {"prompt": "repeat"}, {"prompt": "refuse"}]
    (house.home / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    flags = ["--toolsets", "file,terminal,web", "--tools", "tools.py", "--reward", "scoring:leaks"]
    flags += ["--param", f"api_key={KEYS['parameter by flag']}", "--keep-no-reasoning", "--keep-unknown-tools"]
    house.project(*flags)
    house.stemma_alone("batch", "rows.jsonl", "--name", "r", "--display", "plain", *flags, code=3)
    sent = " ".join(json.dumps([one.headers, one.path, one.body]) for one in house.server.requests)
    absent = {"header of MCP", "query of MCP", "query by flag", "password by flag"}
    in_context = {"environment of MCP", "argument of MCP", "variable that nobody names", "password in a variable"}
    for place in set(PLACES) - absent - in_context - {"address of the search", "variable of the search"}:
        assert KEYS[place] in sent, f"the {place} was never used"

    house.stemma("stats", "r")
    house.stemma("stats", "r", "--html", "page.html")
    house.configure()
    house.stemma("batch", "rows.jsonl", "--name", "r", "--dry-run", *flags)
    house.stemma("batch", "--rescore", "r", "--reward", "scoring:leaks", code=None)
    house.stemma("log", "--store", "runs/r/stemma.db", "--json", code=None)
    for preset in ("trl", "hermes", "openai"):
        house.stemma("export", "runs/r/stemma.db", "--for", preset, "-o", f"out-{preset}", code=None)
    house.hunt()
    with open_store(house.home / "runs/r/stemma.db", create=False) as store:
        found = {store.load(name)[0]["content"]: (store.load(name), store.metadata(name)) for name in store.names()}
    assert MASK in found["repeat"][0][-1]["content"]
    assert found["repeat"][0].last_call().call.extra["trainable"] is False
    assert found["repeat"][1]["reward_failure"]["text"] == f"cannot ask with {MASK}"
    assert found["tools"][1]["scores"] == {"note": MASK}
    results = [m["content"] for m in found["tools"][0] if m["role"] == "tool"]
    assert [MASK in result for result in results] == [True] * 10 + [False], "a tool showed no key"
    assert MASK.encode() in (house.home / "runs/r/failures.jsonl").read_bytes()
    assert MASK.encode() in (house.home / "runs/r/stemma.db").read_bytes()


def test_a_batch_at_a_terminal_and_one_that_repeats_it(house):
    (house.home / "rows.jsonl").write_text('{"prompt": "repeat"}\n{"prompt": "refuse"}\n')
    base_url = f"{house.server.base_url}?api_key={KEYS['query by flag']}"
    at = ["-m", "m", "--base-url", base_url, "--param", f"api_key={KEYS['parameter by flag']}"]
    child = house.at_terminal("batch", "rows.jsonl", "--name", "r", "--toolsets", "", *at)
    child.expect(pexpect.EOF)
    child.wait()
    house.printed += house.shown.getvalue()
    house.stemma_alone("batch", "rows.jsonl", "--name", "j", "--display", "json", "--toolsets", "", code=3)
    again = ["batch", "--config", "runs/r/config.yaml", "--name", "again"]
    assert "give it again with --base-url" in house.stemma(*again, code=1)
    assert "give it again with --param" in house.stemma(*again, "--base-url", base_url, code=1)
    house.stemma_alone(*again, *at, code=3)
    house.hunt()


@needs.command("bwrap", "bubblewrap")
def test_a_model_is_told_of_no_key_by_a_tool(house):
    """What the model sees is what is recorded: the key goes before either."""
    house.project()
    house.stemma("chat", "-p", "tools", "--workspace", "project", "--tools", "tools.py", "--name", "x")
    told = [m for request in house.server.requests for m in request.body["messages"] if m["role"] == "tool"]
    assert told
    assert_clean(json.dumps(told).encode(), "what the model was told")
    with open_store(house.home / "stemma.db", create=False) as store:
        recorded = [m["content"] for m in store.load("x") if m["role"] == "tool"]
    assert recorded == [m["content"] for m in told]


def test_a_chat_its_settings_and_its_failures(house):
    base_url = f"{house.server.base_url}?api_key={KEYS['query by flag']}"
    at = ["-m", "m", "--base-url", base_url, "--param", f"api_key={KEYS['parameter by flag']}", "--toolsets", ""]
    house.stemma("chat", "-p", "repeat", "--name", "x", *at)
    house.stemma("chat", "-p", "repeat", "--json", "--name", "y", "--toolsets", "")
    house.stemma("chat", "-p", "refuse", "--name", "z", "--toolsets", "", code=1)
    house.stemma("chat", "-p", "refuse", "--json", "--name", "w", *at, code=1)
    again = house.stemma("chat", "--resume", "x", "-p", "repeat", "--toolsets", "", code=1)
    assert "give it again with --base-url" in again
    house.stemma("chat", "--resume", "x", "-p", "repeat", *at)
    for wrong in ("http://me:{}@127.0.0.1/v1", "htp://127.0.0.1/v1?api_key={}", "me:{}@example.org", "{0}//x:{0}@y"):
        house.stemma("chat", "-p", "hi", "-m", "m", "--base-url", wrong.format(KEYS["password by flag"]), code=1)
    house.stemma("config", "show", "--origin")
    house.stemma("config", "show", "--json")
    house.stemma("models", "list")
    house.stemma("doctor", code=None)
    house.stemma("show", "x", "--json", code=None)
    (house.home / "odd.py").write_text(ODD)
    house.stemma_alone("chat", "-p", "hi", "--tools", "odd.py", code=1)
    assert "Odd: [secret]" in house.printed
    house.hunt()


def leave(child: pexpect.spawn) -> None:
    """End a chat; a key that is pressed between two prompts may be lost, so it is pressed until the chat has ended."""
    for _ in range(30):
        child.send("\x04")
        if child.expect([pexpect.EOF, pexpect.TIMEOUT], timeout=2) == 0:
            break
    child.wait()


def test_a_terminal_shows_no_key_that_streams_in_pieces_and_the_history_is_the_users_alone(house):
    child = house.at_terminal("chat", "--name", "x", "--toolsets", "")
    child.expect("/help helps")
    for wish, sign in (("repeat", "You sent"), ("refuse", "no answer")):
        child.send(f"{wish}\r")
        child.expect(sign)
        child.expect("❯")
    assert (house.home / "stemma.db-wal").stat().st_size
    house.hunt()  # the store while it is open, too
    child.send(f"my key is {KEYS['variable of the model']}\x01/undo \r")  # typed by mistake, and made a command
    child.expect("❯")
    leave(child)
    history = house.home / ".local/state/stemma/chat_history"
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    assert "repeat" in history.read_text()
    before_typing = house.shown.getvalue().partition("my key")[0]
    assert MASK in before_typing
    house.printed += before_typing
    house.hunt()


def test_a_server_of_tools_that_fails_tells_no_key(house):
    house.with_mcp("--fail")
    assert "did not start" in house.stemma("chat", "-p", "hi", code=1)
    far = {"url": f"{house.root}/mcp?token={KEYS['query of MCP']}"}
    house.configure(mcp={"far": {**far, "headers": {"X-Whatever": f"Bearer {KEYS['header of MCP']}"}}})
    assert "did not start" in house.stemma("chat", "-p", "hi", code=1)
    assert KEYS["header of MCP"] in " ".join(heard_headers(house.server))
    house.hunt()


def heard_headers(server: FaultServer) -> list[str]:
    return [value for request in server.requests for value in request.headers.values()]
