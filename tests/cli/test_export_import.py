"""`stemma export` and `stemma import`, as a user runs them."""

import json

import pytest

from stemma import Call, MessageGraph, open_store, to_trajectory
from stemma.formats.files import load_trajectories

MESSAGES = [
    {"role": "user", "content": "Q"},
    {"role": "assistant", "content": "A", "reasoning": "r"},
]


def dataset(path, *entries):
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8")
    return str(path)


def entry(question="Q", **more):
    messages = [{"role": "user", "content": question}, MESSAGES[1]]
    return {"conversations": to_trajectory(messages), "model": "qwen", "completed": True, **more}


def test_a_dataset_goes_in_and_comes_out_the_same(run, tmp_path):
    file = dataset(tmp_path / "data.jsonl", entry(level="hard"), entry("Q2", level="easy"), {"messages": MESSAGES})
    store = str(tmp_path / "s.db")
    told = run("import", file, "--store", store, "--json")
    assert json.loads(told.out) == {"lines": 3, "added": 3, "unreadable": []}
    again = run("import", file, "--store", store)
    assert "0 graphs added, 3 already there" in again.out

    out = run("export", store, "--for", "hermes", "-o", str(tmp_path / "out"), "--json")
    report = json.loads(out.out)
    assert (report["written"], report["left_out"]) == (3, {})
    rows = list(load_trajectories(tmp_path / "out" / "train.jsonl"))
    told = [[{"from": turn["from"], "value": turn["value"]} for turn in row["conversations"]] for row in rows]
    assert sorted(map(json.dumps, told)) == sorted(
        json.dumps(to_trajectory([{"role": "user", "content": q}, MESSAGES[1]])) for q in ("Q", "Q2", "Q")
    )
    with open_store(store) as opened:
        assert opened.verify() == []


def test_a_reply_that_saved_forks_share_is_trained_once(run, tmp_path):
    store, call = str(tmp_path / "s.db"), Call(model="m")
    graph = MessageGraph([{"role": "user", "content": "Q"}])
    graph.record({"role": "assistant", "content": "A"}, call)
    fork = graph.fork()
    for one, answer in ((graph, "left"), (fork, "right")):
        one.append({"role": "user", "content": "go on"})
        one.record({"role": "assistant", "content": answer}, call)
    with open_store(store) as opened:
        opened.save(graph, "first")
        opened.save(fork, "second")
        opened.save(graph.fork(), "third")  # which has nothing of its own
    report = json.loads(run("export", store, "--for", "openai", "-o", str(tmp_path / "out"), "--json").out)
    assert (report["written"], report["trained_messages"]) == (2, 3)
    rows = [json.loads(line) for line in (tmp_path / "out/train.jsonl").read_text().splitlines()]
    trained = [
        [m["content"] for m in row["messages"] if m["role"] == "assistant" and m.get("weight", 1)] for row in rows
    ]
    assert trained == [["A", "left"], ["right"]]


def test_lines_that_cannot_be_read_are_named_and_the_rest_is_kept(run, tmp_path):
    file = tmp_path / "data.jsonl"
    file.write_text(json.dumps(entry()) + "\nnot json\n\n" + json.dumps({"x": 1}) + "\n")
    told = run("import", str(file), "--store", str(tmp_path / "s.db"))
    assert told.code == 1
    assert "data.jsonl" in told.out
    assert "1 graphs added" in told.out
    assert "2 lines could not be read" in told.out


def test_an_import_of_which_nothing_could_be_read_fails_in_either_form_of_report(run, tmp_path):
    store = str(tmp_path / "s.db")
    (tmp_path / "empty.jsonl").write_text("\n")
    (tmp_path / "bad.jsonl").write_text('{"x": 1}\n')
    for name in ("empty.jsonl", "bad.jsonl"):
        for form in ((), ("--json",)):
            assert run("import", str(tmp_path / name), "--store", store, *form).code == 1


def test_what_is_trained_stays_so_from_export_to_import_to_export(run, tmp_path):
    """Context replies, odd turns, cut replies and the datasets' own columns survive a store in between."""
    odd = 'A\n<tool_call>{"name":"f","arguments":{"x": 1.0}}</tool_call> and more'
    turns = [
        {"from": "system", "value": "Be brief."},
        {"from": "human", "value": "Q"},
        {"from": "gpt", "value": "context  "},
        {"from": "human", "value": "Q2"},
        {"from": "gpt", "value": odd},
        {"from": "tool", "value": '<tool_response>\n{"tool_call_id":"a","name":"f","content":"r"}\n</tool_response>'},
        {"from": "gpt", "value": "<think>\n</think>\nlast"},
    ]
    about = {"model": "m", "timestamp": "2026-01-02T03:04:05", "completed": False, "metadata": {"reward": 0.5}}
    file = dataset(tmp_path / "data.jsonl", {"conversations": turns, "trained_turns": [6], **about})
    store = str(tmp_path / "s.db")
    assert run("import", file, "--store", store, "--as", "hermes").code == 0
    assert run("export", store, "--for", "hermes", "-o", str(tmp_path / "out")).code == 0
    (row,) = map(json.loads, (tmp_path / "out/train.jsonl").read_text().splitlines())
    assert [{"from": turn["from"], "value": turn["value"]} for turn in row["conversations"]] == turns
    assert row["trained_turns"] == [6]
    assert (row["model"], row["timestamp"], row["completed"]) == ("m", "2026-01-02T03:04:05", False)
    assert json.loads(row["metadata"]["json"])["reward"] == 0.5


def test_an_export_from_files_counts_what_it_leaves_out(run, tmp_path):
    file = dataset(tmp_path / "data.jsonl", entry(), entry("forged <|im_end|>"), {"x": 1})
    told = run("export", file, "--for", "openai", "-o", str(tmp_path / "out"))
    assert told.code == 0
    assert "1 rows, 1 of 2 replies trained" in told.out
    assert "1 replies, 1 rows: control marker" in told.out
    assert "0 replies, 1 rows: unreadable" in told.out
    allowed = run("export", file, "--for", "openai", "-o", str(tmp_path / "out"), "--allow-markers")
    assert "2 rows" in allowed.out


def test_wrong_words_are_told_in_one_line(run, tmp_path):
    file = dataset(tmp_path / "data.jsonl", entry())
    for words, said in [
        (("export", file, "--for", "megatron", "-o", "x"), "no preset 'megatron'"),
        (("export", "nowhere.db", "--for", "trl", "-o", "x"), "there is no nowhere.db"),
        (("export", file, "--for", "trl", "-o", str(tmp_path / "x.parquet")), "trl writes .jsonl"),
        (("import", file, "--as", "alpaca", "--store", str(tmp_path / "s.db")), "no kind 'alpaca'"),
    ]:
        told = run(*words)
        assert told.code == 1
        assert said in told.err
        assert len(told.err.splitlines()) == 1


# ── one export, one folder, one file ─────────────────────────────────────────────────────────────────────────────────


def recorded(path, name="c", answer="A", reward=None, **call):
    graph = MessageGraph([{"role": "user", "content": "Q"}])
    graph.record({"role": "assistant", "content": answer, "reasoning": "r"}, Call(model="m", **call))
    with open_store(path) as opened:
        opened.save(graph, name, metadata={} if reward is None else {"reward": reward})
    return str(path)


def rows_of(folder):
    return [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()]


def test_verify_checks_the_file_that_is_named_and_no_other(run, tmp_path):
    store = recorded(tmp_path / "s.db")
    assert run("export", store, "--for", "trl", "-o", str(tmp_path / "out" / "a.jsonl")).code == 0
    for path, code in [("a.jsonl", 0), ("", 0), ("manifest.json", 0), ("train_sft.py", 1), ("nowhere.jsonl", 1)]:
        assert run("verify", str(tmp_path / "out" / path)).code == code, path


def test_an_export_does_not_replace_the_receipts_of_another(run, tmp_path):
    store, out = recorded(tmp_path / "s.db"), tmp_path / "out"
    assert run("export", store, "--for", "trl", "-o", str(out / "a.jsonl")).code == 0
    before = (out / "receipts.jsonl").read_bytes()
    for words in (("trl", str(out / "b.jsonl")), ("openai", str(out / "a.jsonl")), ("tokens", str(out))):
        told = run("export", store, "--for", words[0], "-o", words[1])
        assert told.code == 1
        assert "holds another export" in told.err
    assert (out / "receipts.jsonl").read_bytes() == before
    assert run("export", store, "--for", "trl", "-o", str(out / "a.jsonl")).code == 0


def test_an_export_with_the_real_system_prompt_is_read_back_as_it_was(run, tmp_path):
    graph = MessageGraph([{"role": "system", "content": "S"}, {"role": "user", "content": "Q"}])
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    graph.record({"role": "assistant", "content": None, "tool_calls": [call]}, Call(model="m"))
    graph.append({"role": "tool", "tool_call_id": "c1", "content": "3"})
    graph.record({"role": "assistant", "content": "three"}, Call(model="m"))
    with open_store(tmp_path / "s.db") as opened:
        opened.save(graph, "c")
    words = ("--for", "hermes", "--system", "own", "-o")
    assert run("export", str(tmp_path / "s.db"), *words, str(tmp_path / "one")).code == 0
    again = str(tmp_path / "again.db")
    assert run("import", str(tmp_path / "one" / "train.jsonl"), "--store", again).code == 0
    assert run("export", again, *words, str(tmp_path / "two")).code == 0
    one, two = (rows_of(tmp_path / name)[0]["conversations"] for name in ("one", "two"))
    assert one == two
    assert run("export", again, "--for", "trl", "-o", str(tmp_path / "trl")).code == 0
    assert [m["content"] for m in rows_of(tmp_path / "trl")[0]["completion"]] == ["", "3", "three"]


@pytest.mark.parametrize(
    ("said", "reason"),
    [(None, "imported, not recorded"), (False, "imported as off-policy"), (True, "")],
)
def test_an_imported_reply_is_on_policy_only_if_its_file_says_so(run, tmp_path, said, reason):
    line = entry() | ({} if said is None else {"on_policy": said})
    file = dataset(tmp_path / "data.jsonl", line)
    assert run("import", file, "--store", str(tmp_path / "s.db")).code == 0
    for number, source in enumerate((file, str(tmp_path / "s.db"))):
        assert run("export", source, "--for", "openai", "-o", str(tmp_path / str(number))).code == 0
        assert [row["off_policy"] for row in rows_of(tmp_path / str(number))] == [reason]


def test_a_truncated_reply_that_is_trained_says_that_its_end_was_added(run, tmp_path):
    store = recorded(tmp_path / "s.db", finish_reason="length")
    assert run("export", store, "--for", "openai", "-o", str(tmp_path / "out"), "--keep-truncated").code == 0
    (row,) = rows_of(tmp_path / "out")
    assert (row["on_policy"], row["off_policy"], row["finish_reason"]) == (
        False,
        "end added to a truncated reply",
        "length",
    )


def test_what_is_not_there_is_an_error_and_leaves_nothing_behind(run, tmp_path):
    store = recorded(tmp_path / "s.db")
    for words in (("--run", "nowhere"), ("--model", "nobody")):
        for trainer in ("trl", "tokens"):
            told = run("export", store, "--for", trainer, "-o", str(tmp_path / f"{words[1]}-{trainer}"), *words)
            assert told.code == 1 or trainer == "tokens"
    assert not (tmp_path / "nowhere-trl").exists()
    assert run("import", str(tmp_path / "nowhere.jsonl"), "--store", str(tmp_path / "new.db")).code == 1
    assert not (tmp_path / "new.db").exists()
