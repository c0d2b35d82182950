"""`stemma batch` and `stemma stats`: the real command with a scripted model, its files, its words, its exit codes."""

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

from batches import bytes_of, lines_of
from cli.conftest import Outcome, Run
from stemma import open_store


@pytest.fixture
def batch(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `stemma batch` in the folder of the test, with no one's settings."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", "")

    def command(*arguments: str) -> Outcome:
        return run("batch", *arguments)

    return command


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A model that answers as many questions as any test here asks, always the same."""
    reply = {"content": "Four.", "reasoning": "Two and two."}
    (tmp_path / "replies.jsonl").write_text(f"{json.dumps(reply)}\n" * 200)
    return "scripted:replies.jsonl"


@pytest.fixture
def prompts(tmp_path: Path) -> str:
    rows = [{"prompt": f"What is {i} and {i}?", "level": i % 3, "id": f"q{i}"} for i in range(12)]
    (tmp_path / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return "sums.jsonl"


def test_a_batch_writes_its_folder_and_says_what_comes_next(batch, model, prompts, tmp_path):
    done = batch(prompts, "-m", model, "--toolsets", "todo", "--name", "first")
    assert done.code == 0
    assert "0 kept, 12 to do" in done.err
    assert "stemma export runs/first/stemma.db" in done.err
    names = {path.name for path in (tmp_path / "runs" / "first").iterdir()}
    wanted = {"stemma.db", "config.yaml", "trajectories.jsonl", "batch_001_output.jsonl", "statistics.json"}
    assert names >= wanted | {"failures.jsonl"}


def test_the_same_command_again_keeps_what_is_done(batch, model, prompts):
    assert batch(prompts, "-m", model).code == 0
    again = batch(prompts, "-m", model)
    assert again.code == 0
    assert "12 kept, 0 to do" in again.err


def test_config_yaml_repeats_the_run(batch, model, prompts, tmp_path):
    batch(prompts, "-m", model, "--name", "first", "-r", "2", "--seed", "5", "--param", "top_p=0.5", "-n", "3")
    assert batch("--config", "runs/first/config.yaml", "--name", "second").code == 0
    first, second = (lines_of(tmp_path / "runs" / run / "trajectories.jsonl") for run in ("first", "second"))
    assert len(first) == 6
    assert first == second


def test_a_changed_configuration_is_shown_and_refused_forked_or_amended(batch, model, prompts, tmp_path):
    batch(prompts, "-m", model, "--name", "first", "-n", "2")
    refused = batch(prompts, "-m", model, "--name", "first", "--temperature", "0.5")
    assert refused.code == 1
    assert "temperature" in refused.err
    assert "--fork" in refused.err
    assert batch(prompts, "-m", model, "--name", "first", "--temperature", "0.5", "--fork").code == 0
    assert (tmp_path / "runs" / "first-2").is_dir()
    assert batch(prompts, "-m", model, "--name", "first", "--temperature", "0.5", "--amend").code == 0


def test_a_forked_run_is_taken_up_again_under_its_own_name(batch, model, prompts):
    batch(prompts, "-m", model, "--name", "first", "-n", "2")
    assert batch(prompts, "-m", model, "--name", "first-2", "--temperature", "0.5", "-n", "2").code == 0
    assert "2 kept" in batch(prompts, "-m", model, "--name", "first-2", "--temperature", "0.5", "-n", "2").err


def test_rebuilding_gives_the_same_bytes(batch, model, prompts, tmp_path):
    batch(prompts, "-m", model, "--name", "first", "--batch-size", "5")
    folder = tmp_path / "runs" / "first"
    before = bytes_of(folder)
    for name in before:
        (folder / name).unlink()
    assert batch("--rebuild", "first").code == 0
    assert bytes_of(folder) == before


def test_rows_can_be_sliced_filtered_and_read_from_standard_input(batch, model, prompts, monkeypatch, tmp_path):
    batch(prompts, "-m", model, "--name", "sliced", "--slice", "2:5")
    assert len(lines_of(tmp_path / "runs" / "sliced" / "trajectories.jsonl")) == 3
    batch(prompts, "-m", model, "--name", "filtered", "--filter", "^q1")
    assert len(lines_of(tmp_path / "runs" / "filtered" / "trajectories.jsonl")) == 3
    with open(prompts, "rb") as rows:
        monkeypatch.setattr("sys.stdin", type("Stdin", (), {"buffer": rows, "isatty": lambda self: False})())
        assert batch("-", "-m", model, "--name", "piped").code == 0
    assert len(lines_of(tmp_path / "runs" / "piped" / "trajectories.jsonl")) == 12


def test_failures_end_in_code_3_and_are_listed(batch, prompts, tmp_path):
    (tmp_path / "short.jsonl").write_text('{"content": "Four.", "reasoning": "r"}\n' * 5)
    done = batch(prompts, "-m", "scripted:short.jsonl", "--name", "first")
    assert done.code == 3
    assert "goes on with what is left" in done.err
    failures = lines_of(tmp_path / "runs" / "first" / "failures.jsonl")
    assert len(failures) == 7
    assert failures[0]["error"] == "NoMoreReplies"


TOOLS_THAT_FAIL = """
from stemma.errors import HarnessFailed

class Down(HarnessFailed):
    retryable = False

def look_up(word: str) -> str:
    '''Look a word up.

    word: which
    '''
    if word == "odd":
        raise LookupError("there is no such word")
    raise Down("the dictionary is not mounted")
"""


def test_what_the_harness_could_not_do_ends_in_code_3_and_what_the_model_did_wrong_does_not(batch, tmp_path):
    (tmp_path / "mine.py").write_text(TOOLS_THAT_FAIL)
    replies = []
    for word in ("odd", "even"):
        function = {"name": "look_up", "arguments": json.dumps({"word": word})}
        asks = {
            "content": None,
            "reasoning": "r",
            "tool_calls": [{"id": "c", "type": "function", "function": function}],
        }
        replies += [asks, {"content": "There is none."}] if word == "odd" else [asks]
    (tmp_path / "replies.jsonl").write_text("".join(json.dumps(reply) + "\n" for reply in replies))
    (tmp_path / "words.jsonl").write_text('{"prompt": "odd"}\n{"prompt": "even"}\n')
    given = (
        "words.jsonl",
        "-m",
        "scripted:replies.jsonl",
        "--tools",
        "mine.py",
        "--toolsets",
        "look_up",
        "--name",
        "r",
    )
    done = batch(*given, "-c", "1")
    assert done.code == 3
    assert "failed: " in done.err
    assert "Down: the dictionary is not mounted" in done.err
    (entry,) = lines_of(tmp_path / "runs" / "r" / "trajectories.jsonl")
    assert "no such word" in json.dumps(entry)
    assert entry["tool_stats"]["look_up"]["failure"] == 1
    (failure,) = lines_of(tmp_path / "runs" / "r" / "failures.jsonl")
    assert (failure["error"], failure["text"]) == ("Down", "the dictionary is not mounted")


def test_a_batch_whose_sandbox_is_missing_asks_nothing_and_says_what_to_install(
    batch, model, prompts, monkeypatch, tmp_path
):
    monkeypatch.setenv("PATH", str(tmp_path))
    done = batch(prompts, "-m", model, "--toolsets", "terminal", "--name", "r")
    assert done.code == 1
    assert "apt install bubblewrap" in done.err
    assert not (tmp_path / "runs" / "r" / "trajectories.jsonl").exists()


def test_a_dry_run_shows_configuration_question_and_plan_and_does_nothing(batch, model, prompts, tmp_path):
    shown = batch(prompts, "-m", model, "--system", "Be brief.", "--dry-run")
    assert shown.code == 0
    for words in ("agent.turns", "system: Be brief.", "user: What is 0 and 0?", "0 kept, 12 to do", "unknown"):
        assert words in shown.out
    assert not (tmp_path / "runs").exists()


def test_json_display_is_an_object_a_line(batch, model, prompts):
    done = batch(prompts, "-m", model, "--display", "json")
    events = [json.loads(line) for line in done.out.splitlines()]
    assert [events[0]["event"], events[-1]["event"]] == ["plan", "end"]
    assert sum(event["event"] == "result" for event in events) == 12
    assert events[1]["answer"] == "Four."


def test_distributions_are_listed_and_may_be_ones_own(batch, model, prompts, tmp_path):
    assert "terminal_tasks" in batch("--list-distributions").out
    (tmp_path / "mine.yaml").write_text("files_only: {file: 100}\n")
    assert "files_only" in batch("--list-distributions", "--distributions", "mine.yaml").out
    done = batch(prompts, "-m", model, "--distribution", "files_only", "--distributions", "mine.yaml", "--name", "d")
    assert done.code == 0
    assert lines_of(tmp_path / "runs" / "d" / "trajectories.jsonl")[0]["toolsets_used"] == ["file"]
    assert "did you mean" in batch(prompts, "-m", model, "--distribution", "reserch", "--name", "e").err


def test_rewards_by_name_and_again_later(batch, model, prompts, tmp_path):
    (tmp_path / "scoring_a.py").write_text(
        "def level(scored):\n    return scored.metadata['level']\n\nasync def one(scored):\n    return {'reward': 1}\n"
    )
    assert batch(prompts, "-m", model, "--name", "first", "--reward", "scoring_a:level").code == 0
    entries = lines_of(tmp_path / "runs" / "first" / "trajectories.jsonl")
    assert [entry["metadata"]["stemma_reward"] for entry in entries[:3]] == [0.0, 1.0, 2.0]
    assert batch("--rescore", "first", "--reward", "scoring_a:one").code == 0
    entries = lines_of(tmp_path / "runs" / "first" / "trajectories.jsonl")
    assert {entry["metadata"]["stemma_reward"] for entry in entries} == {1.0}
    with open_store(tmp_path / "runs" / "first" / "stemma.db") as store:
        assert store.verify() == []


def test_wrong_words_get_one_clear_line(batch, model, prompts):
    assert "name a file of prompts" in batch("-m", model).err
    assert "there is no file nowhere.jsonl" in batch("nowhere.jsonl", "-m", model).err
    assert "$5" in batch(prompts, "-m", model, "--budget", "much").err
    assert "A:B" in batch(prompts, "-m", model, "--slice", "x").err
    assert "module:function" in batch(prompts, "-m", model, "--reward", "nothing").err
    assert "choose one of" in batch(prompts, "-m", model, "--display", "loud").err


def test_the_number_of_processes_is_kept_and_makes_no_other_run(batch, model, prompts, tmp_path):
    assert batch(prompts, "-m", model, "--name", "first", "-n", "2", "--processes", "3").code == 0
    assert "processes: 3" in (tmp_path / "runs" / "first" / "config.yaml").read_text()
    again = batch(prompts, "-m", model, "--name", "first", "--processes", "1")
    assert (again.code, "2 kept" in again.err) == (0, True)
    assert "--processes" in batch(prompts, "-m", model, "--processes", "0").err


def test_stats_shows_tables_json_and_one_page_that_needs_nothing_else(batch, run, model, prompts, tmp_path):
    batch(prompts, "-m", model, "--name", "first")
    shown = run("stats", "first")
    assert "12 completed" in shown.out
    assert "delegate_task" in shown.out
    assert json.loads(run("stats", "runs/first", "--json").out)["tasks"]["completed"] == 12
    assert run("stats", "first", "--html", "page.html").code == 0
    page = Page()
    text = (tmp_path / "page.html").read_text()
    page.feed(text)
    assert page.outside == []
    assert page.depth == 0
    assert page.bars >= 3
    assert "there is no run" in run("stats", "nothing").err


def test_rewards_at_the_end_of_what_a_float_holds_are_shown(batch, run, model, prompts, tmp_path):
    (tmp_path / "huge.py").write_text("def reward(scored):\n    return 1e308 if scored.metadata['level'] else -1e308\n")
    assert batch(prompts, "-m", model, "--name", "huge", "--reward", "huge:reward").code == 0
    assert "max 1e+308" in run("stats", "huge").out
    assert run("stats", "huge", "--json").code == 0
    assert run("stats", "huge", "--html", "page.html").code == 0


def test_why_a_reward_function_failed_is_shown_at_the_end_and_by_stats(batch, run, model, prompts, tmp_path):
    (tmp_path / "broken.py").write_text("def reward(scored):\n    raise ValueError('the answers file is missing')\n")
    done = batch(prompts, "-m", model, "--name", "broken", "--reward", "broken:reward")
    assert done.code == 3
    assert "reward error        ValueError: the answers file is missing (12)" in done.err
    assert "not scored: " in done.err
    shown = run("stats", "broken")
    assert "the answers file is missing" in shown.out
    run("stats", "broken", "--html", "page.html")
    assert "the answers file is missing" in (tmp_path / "page.html").read_text()


def test_a_row_that_no_file_could_carry_is_refused_before_anything_is_asked(batch, model, prompts, tmp_path):
    rows = [{"prompt": "fine"}, {"prompt": [{"role": "function", "content": "x"}, {"role": "user", "content": "y"}]}]
    (tmp_path / "odd.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    refused = batch("odd.jsonl", "-m", model, "--name", "odd")
    assert refused.code == 1
    assert "odd.jsonl, row 2" in refused.err
    assert "'function'" in refused.err


@pytest.mark.parametrize(
    "chosen", [("-m", "scripted:replies.jsonl"), ("-m", "m", "--base-url", "http://127.0.0.1:1/v1")]
)
def test_a_budget_in_dollars_without_prices_is_refused_with_how_to_give_them(batch, model, prompts, tmp_path, chosen):
    refused = batch(prompts, *chosen, "--name", "dear", "--budget", "$5")
    assert refused.code == 1
    assert "models.NAME.prices" in refused.err
    assert not (tmp_path / "runs" / "dear").exists()


class Page(HTMLParser):
    """Counts what a page draws, and lists what it would load from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.outside: list[str] = []
        self.bars = self.depth = 0

    def handle_starttag(self, tag, attrs):
        self.bars += tag == "rect"
        self.depth += tag in ("table", "svg", "figure", "div", "body", "html")
        self.outside += [value for name, value in attrs if name in ("src", "href")]
        self.outside += [tag] if tag in ("script", "link", "img", "iframe") else []

    def handle_endtag(self, tag):
        self.depth -= tag in ("table", "svg", "figure", "div", "body", "html")
