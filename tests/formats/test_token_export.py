"""Token exports on disk: whole, repeatable, accounted for, and proven; every change is found."""

import json
import random
from pathlib import Path

import pytest

import needs
from stemma.core.exclusions import Rules
from stemma.errors import BadName, BadRecord, NotFound
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
    assert (checked.calls, checked.trained, checked.rows) == (6, 6, 4)
    assert manifest.breaks == report.breaks == {"edit": 2}
    assert report.counts["row_tokens"] > report.counts["tree_tokens"] > report.counts["trained_tokens"]


@pytest.mark.parametrize("name", TOKEN_NAMES)
def test_any_changed_byte_of_the_data_is_found(name, tmp_path):
    data = Path(write(tmp_path, name).file)
    content, rng = data.read_bytes(), random.Random(1)
    for place in rng.sample(range(len(content)), 20):
        data.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        try:
            _, checked = prove_export(manifest_of(tmp_path))
        except (BadRecord, OSError):
            continue
        assert checked.findings


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


def test_missing_and_unreadable_files_are_named(tmp_path):
    write(tmp_path, "verl")
    manifest = manifest_of(tmp_path)
    (tmp_path / "train.jsonl").write_text("[]\n")
    with pytest.raises(BadRecord, match=r"train\.jsonl:1"):
        prove_export(manifest)
    (tmp_path / "receipts.jsonl").unlink()
    with pytest.raises(NotFound, match=r"receipts\.jsonl is missing"):
        prove_export(manifest)
    manifest.write_text("{")
    with pytest.raises(BadRecord, match="no manifest"):
        prove_export(manifest)
    assert manifest_of(tmp_path / "elsewhere" / "x") is None
