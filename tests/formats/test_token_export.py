"""Token exports on disk: whole, repeatable, accounted for, and proven; every change is found."""

import json
import random
from collections import Counter
from pathlib import Path

import pytest

import needs
from stemma.core.exclusions import Rules
from stemma.errors import BadName
from stemma.formats.token_export import MixedModels, export_tokens, rollout_of
from stemma.formats.token_presets import TOKEN_NAMES, token_preset
from stemma.formats.token_proof import manifest_of, prove_export
from token_conversations import Chat, Words, user


def conversation(words=None, answer="yes", **extra):
    chat = Chat(user("hi there"), words=words).says("hello").hears("and").says(answer, **extra)
    chat.graph[0]["content"] = "hi you"
    return chat.hears("so").says("well").graph


def rollouts(**rewards):
    """Conversations about one prompt, each with its reward."""
    words = Words()
    return [
        rollout_of(name, {"group": "p1", "reward": reward}, lambda n=name: conversation(words, answer=n))
        for name, reward in rewards.items()
    ]


def write(folder, preset="tokens", some=None, rules=None, **options):
    some = rollouts(a=1.0, b=0.0) if some is None else some
    return export_tokens(some, token_preset(preset), folder, rules or Rules(), version="0", **options)


@pytest.mark.parametrize("name", TOKEN_NAMES)
def test_what_every_preset_writes_is_proven_from_its_files(name, tmp_path):
    report = write(tmp_path, name)
    manifest, checked = prove_export(manifest_of(tmp_path))
    assert checked.findings == []
    whole = name not in ("trl-grpo", "verl")  # which take one sequence a rollout
    assert (checked.calls, checked.trained, checked.rows) == ((6, 6, 4) if whole else (6, 4, 2))
    assert checked.excluded == ({} if whole else {"split": 2})
    assert manifest.breaks == report.breaks == {"edit": 2}
    assert report.counts["row_tokens"] >= report.counts["tree_tokens"] > report.counts["trained_tokens"]
    assert (report.counts["row_tokens"] > report.counts["tree_tokens"]) == whole


@pytest.mark.parametrize("name", TOKEN_NAMES)
def test_any_changed_byte_of_the_data_is_found(name, tmp_path):
    data = Path(write(tmp_path, name).file)
    content, rng = data.read_bytes(), random.Random(1)
    for place in rng.sample(range(len(content)), 20):
        data.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        assert prove_export(manifest_of(tmp_path))[1].findings


def test_parquet_and_json_lines_hold_the_same_rows(tmp_path):
    write(tmp_path / "a.parquet"), write(tmp_path / "lines" / "a.jsonl")
    pq = needs.package("pyarrow.parquet", "columns")
    columns = pq.read_table(tmp_path / "a.parquet").to_pylist()
    lines = [json.loads(line) for line in (tmp_path / "lines" / "a.jsonl").read_text().splitlines()]
    assert columns == lines
    assert prove_export(manifest_of(tmp_path))[1].tokens == prove_export(manifest_of(tmp_path / "lines"))[1].tokens


def test_the_same_rollouts_give_the_same_bytes(tmp_path):
    words = [rollouts(a=1.0, b=0.0) for _ in range(2)]
    for folder, some in zip("xy", words, strict=True):
        write(tmp_path / folder, some=some)
    for file in ("train.parquet", "receipts.jsonl", "manifest.json"):
        assert (tmp_path / "x" / file).read_bytes() == (tmp_path / "y" / file).read_bytes()


def test_advantages_are_relative_to_the_group_and_count_a_split_rollout_once(tmp_path):
    write(tmp_path / "a.jsonl", some=rollouts(a=1.0, b=0.0, c=0.0))
    rows = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    by_rollout = {row["rollout_id"]: row["advantage"] for row in rows}
    assert by_rollout["a"] == pytest.approx(2 / 3 / (3**-0.5 + 1e-4))
    assert by_rollout["b"] == by_rollout["c"] == pytest.approx(-by_rollout["a"] / 2)


def test_a_batch_puts_the_samples_of_a_prompt_into_one_group():
    one, other = ({"key": "k", "ordinal": 1, "sample": n, "reward": 1} for n in range(2))
    assert rollout_of("x", one, conversation).group == rollout_of("y", other, conversation).group == "k-1"
    assert rollout_of("z", {"reward": True}, conversation) == rollout_of("z", {}, conversation)
    assert rollout_of("z", {}, conversation).group == "z"


def test_calls_shared_by_forks_are_trained_once(tmp_path):
    chat = Chat(user("hi")).says("hello")
    fork = chat.graph.fork()
    for n, graph in enumerate((chat.graph, fork)):
        for recorded in graph._recorded:
            recorded.event = b"saved"
        graph.append(user(f"more {n}"))
    some = [rollout_of(name, {}, lambda g=graph: g) for name, graph in (("a", chat.graph), ("b", fork))]
    report = write(tmp_path, some=some)
    assert report.counts["trained"] == 1
    assert prove_export(manifest_of(tmp_path))[1].findings == []


def test_two_models_are_not_mixed_unless_one_is_chosen(tmp_path):
    graph = Chat(user("hi")).says("hello").hears("and").says("yes", model="judge").graph
    some = [rollout_of("a", {}, lambda: graph)]
    with pytest.raises(MixedModels, match=r"'judge'.*'m'.*--model"):
        write(tmp_path, some=some)
    assert not list(tmp_path.iterdir())
    report = write(tmp_path, some=some, rules=Rules(model="m"))
    assert report.excluded == {"other model": 1}
    assert prove_export(manifest_of(tmp_path))[1].findings == []


def test_exclusions_are_counted_by_reason_with_the_tokens_they_cost(tmp_path):
    words = Words()
    some = [rollout_of("a", {}, lambda: conversation(words, extra={"ephemeral": "psst"}))]
    report = write(tmp_path, some=some)
    assert (report.excluded, report.excluded_tokens) == ({"ephemeral": 1}, {"ephemeral": 2})
    text = (tmp_path / "receipts.jsonl").read_text() + (tmp_path / "report.json").read_text()
    assert "psst" not in text
    assert prove_export(manifest_of(tmp_path))[1].excluded == {"ephemeral": 1}


def test_rollouts_without_a_reward_are_left_out_of_formats_that_need_one(tmp_path):
    report = write(tmp_path, "atropos", some=rollouts(a=1.0, b=None))
    assert report.excluded == {"no reward": 3}
    assert prove_export(manifest_of(tmp_path))[1].findings == []


def test_distilled_rows_are_proven_as_what_they_are(tmp_path):
    words = Words()
    chat = Chat(user("hi"), words=words).says("hello", extra={"ephemeral": "psst"})
    from stemma.core.call import pack_ids

    some = [rollout_of("a", {}, lambda: chat.graph)]
    report = write(
        tmp_path, some=some, rules=Rules(ephemeral="distill"), render=lambda one: pack_ids(words("<user> hi </>"))
    )
    _, checked = prove_export(manifest_of(tmp_path))
    assert (checked.findings, checked.off_policy, report.off_policy_rows) == ([], 1, 1)


def test_breaks_are_told_with_the_text_of_the_tokens(tmp_path):
    words = Words()
    report = write(tmp_path, some=[rollout_of("a", {}, lambda: conversation(words))], decode=words.text)
    example = report.examples["edit"]
    assert (example.rollout, example.was, example.now) == ("a", "there", "you")


def test_an_empty_source_makes_an_empty_export_that_is_proven(tmp_path):
    write(tmp_path, some=[])
    assert prove_export(manifest_of(tmp_path))[1].findings == []


def test_a_name_that_does_not_fit_the_layout_is_refused(tmp_path):
    with pytest.raises(BadName, match=r"atropos writes \.jsonl"):
        write(tmp_path / "a.parquet", "atropos")


def kinds(folder):
    return {(finding.kind, finding.subject) for finding in prove_export(manifest_of(folder))[1].findings}


@pytest.mark.parametrize("name", TOKEN_NAMES)
def test_a_file_that_is_cut_short_is_a_finding(name, tmp_path):
    data = Path(write(tmp_path, name).file)
    for file in (data, tmp_path / "receipts.jsonl", tmp_path / "manifest.json"):
        content = file.read_bytes()
        for size in (0, 1, len(content) // 2, len(content) - 2):
            file.write_bytes(content[:size])
            assert kinds(tmp_path), f"{file.name} cut to {size} bytes"
        file.write_bytes(content)
    assert not kinds(tmp_path)


@pytest.mark.parametrize("content", [b"[]\n", b"\xff\xfe\n", b"{}\n", b"null\n", b"[" * 100_000, b"\n"])
def test_missing_and_unreadable_files_are_findings(tmp_path, content):
    data = Path(write(tmp_path, "verl").file)
    whole = data.read_bytes()
    data.write_bytes(content)
    assert ("damaged", "train.jsonl, line 1") in kinds(tmp_path)
    data.unlink()
    assert ("missing", "train.jsonl") in kinds(tmp_path)
    data.mkdir()
    assert ("damaged", "train.jsonl") in kinds(tmp_path)
    data.rmdir()
    data.write_bytes(whole)
    receipts = tmp_path / "receipts.jsonl"
    receipts.write_bytes(content)
    assert ("damaged", "receipts line 1") in kinds(tmp_path)
    receipts.unlink()
    assert ("missing", "receipts.jsonl") in kinds(tmp_path)
    (tmp_path / "manifest.json").write_bytes(content)
    assert kinds(tmp_path) == {("damaged", "manifest.json")}
    assert manifest_of(tmp_path / "elsewhere" / "x") is None


def test_parquet_that_is_none_is_a_finding(tmp_path):
    data = Path(write(tmp_path).file)
    data.write_bytes(b"PAR1" + b"x" * 100 + b"PAR1")
    assert ("damaged", "train.parquet") in kinds(tmp_path)


def test_an_export_of_an_older_stemma_is_told_as_such(tmp_path):
    write(tmp_path)
    path = tmp_path / "manifest.json"
    old = json.loads(path.read_text())
    del old["receipts"]
    path.write_text(json.dumps(old))
    [finding] = prove_export(manifest_of(tmp_path))[1].findings
    assert "export again" in finding.detail


def unequal_groups():
    """Groups of one, two, three and two rollouts, each rollout split in two."""
    words, rollouts = Words(), []
    for prompt, samples in enumerate((1, 2, 3, 2)):
        rollouts += [
            rollout_of(
                f"{prompt}-{n}", {"group": str(prompt), "reward": float(n)}, lambda n=n: conversation(words, f"a{n}")
            )
            for n in range(samples)
        ]
    return rollouts


def test_trl_gets_one_row_a_rollout_in_groups_of_one_size(tmp_path):
    report = write(tmp_path, "trl-grpo", some=unequal_groups())
    rows = [json.loads(line) for line in (tmp_path / "train.jsonl").read_text().splitlines()]
    groups = Counter(row["group_id"] for row in rows)
    assert groups == {"0": 3, "1": 3, "2": 3, "3": 3}
    assert (report.group_size, report.counts["filler_rows"], report.excluded) == (3, 4, {"split": 8})
    fillers = [row for row in rows if not row["rollout_id"]]
    assert all(row["reward"] is None and not any(row["env_mask"]) for row in fillers)
    kept = {row["rollout_id"]: row["weight"] for row in rows if row["rollout_id"]}
    assert len(kept) == 8
    assert set(kept.values()) == {1.0}
    assert prove_export(manifest_of(tmp_path))[1].findings == []


def test_atropos_gets_groups_of_which_none_waits_for_ever(tmp_path):
    report = write(tmp_path, "atropos", some=unequal_groups())
    groups = [json.loads(line) for line in (tmp_path / "train.jsonl").read_text().splitlines()]
    assert [len(group["tokens"]) for group in groups] == [8, 4, 8, 4]
    assert (report.group_size, report.excluded) == (8, {})
    assert report.counts["filler_rows"] == 24 - 16
    for group in groups:
        real = [score for score, one in zip(group["scores"], group["overrides"], strict=True) if one["rollout_id"]]
        assert sum(group["scores"]) / len(group["scores"]) == pytest.approx(sum(real) / len(real))
    assert prove_export(manifest_of(tmp_path))[1].findings == []


def test_a_filler_that_trains_something_is_found(tmp_path):
    write(tmp_path, "trl-grpo", some=unequal_groups())
    data = tmp_path / "train.jsonl"
    rows = [json.loads(line) for line in data.read_text().splitlines()]
    at = next(n for n, row in enumerate(rows) if not row["rollout_id"])
    rows[at]["env_mask"] = [1]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    details = [finding.detail for finding in prove_export(manifest_of(tmp_path))[1].findings]
    assert "it is a filler, and yet it trains something" in details


def test_a_group_of_which_nothing_can_be_trained_is_not_filled(tmp_path):
    some = [*rollouts(a=1.0, b=0.0), rollout_of("c", {"group": "p2", "reward": None}, lambda: conversation())]
    report = write(tmp_path, "atropos", some=some)
    assert (report.counts["filler_rows"], report.excluded) == (0, {"no reward": 3})
    assert prove_export(manifest_of(tmp_path))[1].findings == []


def test_two_models_are_not_mixed_in_a_format_that_takes_one_row_either(tmp_path):
    graph = Chat(user("hi")).says("hello").hears("and").says("yes", model="judge").graph
    with pytest.raises(MixedModels):
        write(tmp_path, "verl", some=[rollout_of("a", {}, lambda: graph)])


def test_the_manifest_says_of_what_the_logprobs_are(tmp_path):
    words = Words()
    own = {"extra": {"sampler": {"temperature": 0.3, "logprobs": "model"}}}
    write(tmp_path, some=[rollout_of("a", {}, lambda: conversation(words, **own))])
    manifest, _ = prove_export(manifest_of(tmp_path))
    assert manifest.logprobs == {"model": 1, "unknown": 2}


def test_a_call_of_which_every_token_was_forced_is_left_out(tmp_path):
    words = Words()
    some = [rollout_of("a", {}, lambda: conversation(words, extra={"forced": [[0, 2]]}))]
    assert write(tmp_path, some=some).excluded == {"forced": 1}
    assert prove_export(manifest_of(tmp_path))[1].findings == []
