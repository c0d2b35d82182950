"""`stemma export` and `stemma import`, as a user runs them."""

import json

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
