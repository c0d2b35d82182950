import asyncio
import json
from collections import Counter

import msgspec
import pytest

from batches import add, adder, adding_agent, bytes_of, calls, lines_of, records_of
from stemma import open_store
from stemma.agent.agent import Agent
from stemma.agent.limits import Limits
from stemma.batch.batch import run_batch
from stemma.batch.budget import Budget
from stemma.batch.distributions import Distribution
from stemma.batch.files import RunFiles
from stemma.batch.outputs import shape_of
from stemma.batch.plan import Selection
from stemma.batch.recipe import ChangedRecipe
from stemma.batch.record import as_metadata
from stemma.formats.entries import entry_metadata
from stemma.models.errors import EndpointFailed, Refused
from stemma.models.scripted import ScriptedModel
from stemma.tools.toolsets import TOOL_TO_TOOLSET_MAP


def run(prompts, folder, **more):
    more = {"agent": adding_agent(), "name": "r", **more}
    batch = run_batch(prompts, folder=folder, **more)
    return batch, list(batch)


def test_every_prompt_is_asked_and_its_trajectory_saved(tmp_path):
    batch, results = run(["one", "three", "four"], tmp_path)
    assert sorted(result.answer for result in results) == ["It is 4.", "It is 5.", "It is 6."]
    entries = lines_of(tmp_path / "r" / "trajectories.jsonl")
    assert [entry["prompt_index"] for entry in entries] == [0, 1, 2]
    first = entries[0]
    assert [turn["from"] for turn in first["conversations"]] == ["system", "human", "gpt", "tool", "gpt"]
    assert (first["completed"], first["partial"], first["api_calls"]) == (True, False, 2)
    assert batch.statistics["tasks"]["completed"] == 3


def test_entries_count_all_known_tools_in_their_stable_order(tmp_path):
    run(["one"], tmp_path)
    entry = lines_of(tmp_path / "r" / "trajectories.jsonl")[0]
    known = [*TOOL_TO_TOOLSET_MAP]
    assert list(entry["tool_stats"])[: len(known)] == known
    assert sum(use["count"] for use in entry["tool_stats"].values()) == 1


def test_other_columns_come_out_as_metadata(tmp_path):
    run([{"prompt": "one", "level": "hard", "tags": ["a"]}], tmp_path)
    metadata = entry_metadata(lines_of(tmp_path / "r" / "trajectories.jsonl")[0])
    assert (metadata["level"], metadata["tags"]) == ("hard", ["a"])


def test_running_it_again_keeps_what_has_ended(tmp_path):
    run(["one", "three"], tmp_path)
    before = bytes_of(tmp_path / "r")
    model = ScriptedModel(adder)
    batch, results = run(["one", "three"], tmp_path, agent=adding_agent(model))
    assert results == []
    assert model.requests == []
    assert (batch.progress.kept, batch.progress.to_do) == (2, 0)
    assert bytes_of(tmp_path / "r") == before


def test_more_prompts_extend_a_run_and_their_order_does_not_matter(tmp_path):
    run(["one", "three"], tmp_path)
    _, results = run(["five", "three", "one"], tmp_path)
    assert [result.record.prompt_index for result in results] == [0]


def test_equal_prompts_are_tasks_of_their_own(tmp_path):
    _, results = run(["same"] * 7, tmp_path)
    assert len({result.record.name for result in results}) == 7
    assert len(lines_of(tmp_path / "r" / "trajectories.jsonl")) == 7
    _, again = run(["same"] * 9, tmp_path)
    assert len(again) == 2


def test_samples_of_a_prompt_are_a_group_with_seeds_of_their_own(tmp_path):
    _, results = run(["one", "two"], tmp_path, samples=4, seed=7)
    seeds = [result.record.params["seed"] for result in results]
    assert len(set(seeds)) == 8
    assert Counter(result.record.prompt_index for result in results) == {0: 4, 1: 4}
    _, other = run(["one", "two"], tmp_path / "other", samples=4, seed=7)
    assert sorted(seeds) == sorted(result.record.params["seed"] for result in other)
    call = results[0].graph.last_call().call
    assert call.params["seed"] == results[0].record.params["seed"]


def test_a_provider_failure_is_a_failure_and_is_tried_again(tmp_path):
    broken = ScriptedModel(lambda request: EndpointFailed("down", status=500))
    batch, results = run(["one", "three"], tmp_path, agent=adding_agent(broken))
    assert [result.record.status for result in results] == ["failed", "failed"]
    assert lines_of(tmp_path / "r" / "trajectories.jsonl") == []
    failures = lines_of(tmp_path / "r" / "failures.jsonl")
    assert [(f["prompt"], f["error"], f["text"], f["attempts"]) for f in failures] == [
        ("one", "EndpointFailed", "down", 1),
        ("three", "EndpointFailed", "down", 1),
    ]
    assert batch.statistics["errors"] == {"EndpointFailed": 2}
    batch, results = run(["one", "three"], tmp_path)
    assert batch.progress.retried == 2
    assert [result.record.status for result in results] == ["completed", "completed"]
    assert results[0].record.attempts == 2
    assert lines_of(tmp_path / "r" / "failures.jsonl") == []


def test_a_failure_after_a_good_turn_goes_on_from_that_turn(tmp_path):
    def breaks_second(request):
        return Refused("no", status=400) if request.messages[-1]["role"] == "tool" else adder(request)

    _, results = run(["one"], tmp_path, agent=adding_agent(ScriptedModel(breaks_second)))
    assert results[0].record.status == "failed"
    model = ScriptedModel(adder)
    _, results = run(["one"], tmp_path, agent=adding_agent(model))
    assert results[0].answer == "It is 4."
    assert len(model.requests) == 1, "the first reply was kept, not asked for again"
    record = results[0].record
    assert (record.api_calls, record.tools["add"].count) == (2, 1)


def test_a_task_that_breaks_does_not_take_the_others_along(tmp_path):
    def raises(request):
        return RuntimeError("a bug") if "bad" in str(request.messages) else adder(request)

    _, results = run(["good", "bad", "fine"], tmp_path, agent=adding_agent(ScriptedModel(raises)))
    assert Counter(result.record.status for result in results) == {"completed": 2, "failed": 1}
    assert lines_of(tmp_path / "r" / "failures.jsonl")[0]["error"] == "RuntimeError"


def test_conversations_without_reasoning_are_left_out_counted_and_kept_in_the_store(tmp_path):
    silent = ScriptedModel(lambda request: "Plain.")
    batch, _ = run(["one"], tmp_path, agent=adding_agent(silent))
    assert lines_of(tmp_path / "r" / "trajectories.jsonl") == []
    assert batch.statistics["left_out"] == {"no reasoning": 1}
    assert len(records_of(tmp_path, "r")) == 1
    batch, _ = run(["one"], tmp_path, agent=adding_agent(silent), keep_no_reasoning=True)
    assert len(lines_of(tmp_path / "r" / "trajectories.jsonl")) == 1


def test_calls_of_tools_that_were_not_offered_are_failures_and_left_out(tmp_path):
    def invents(request):
        return {"content": "Done.", "reasoning": "r"} if request.messages[-1]["role"] == "tool" else calls("todo", {})

    batch, _ = run(["one"], tmp_path, agent=adding_agent(ScriptedModel(invents)))
    assert batch.statistics["left_out"] == {"unknown tool": 1}
    assert batch.statistics["tool_statistics"]["todo"]["failure"] == 1
    batch, _ = run(["one"], tmp_path, agent=adding_agent(ScriptedModel(invents)), keep_unknown_tools=True)
    assert len(lines_of(tmp_path / "r" / "trajectories.jsonl")) == 1


def test_a_limit_ends_a_conversation_as_partial_and_it_is_not_tried_again(tmp_path):
    endless = ScriptedModel(lambda request: calls("add", {"a": 1, "b": 1}, f"c{len(request.messages)}"))
    agent = adding_agent(endless, limits=Limits(turns=3))
    _, results = run(["one"], tmp_path, agent=agent)
    assert (results[0].record.status, results[0].record.stop) == ("stopped", "turns")
    entry = lines_of(tmp_path / "r" / "trajectories.jsonl")[0]
    assert (entry["completed"], entry["partial"]) == (False, True)
    assert run(["one"], tmp_path, agent=agent)[1] == []


def test_a_conversation_that_takes_too_long_is_stopped_in_the_middle_of_a_call(tmp_path):
    async def slow(request):
        await asyncio.sleep(30)
        return "never"

    agent = adding_agent(ScriptedModel(slow), limits=Limits(seconds=0.2))
    _, results = run(["one"], tmp_path, agent=agent)
    assert (results[0].record.status, results[0].record.stop) == ("stopped", "seconds")


def test_several_prompts_of_a_row_are_one_conversation(tmp_path):
    _, results = run([{"prompt": ["one", "three"]}], tmp_path)
    roles = [message["role"] for message in results[0].graph]
    assert roles == ["user", "assistant", "tool", "assistant"] * 2
    assert results[0].record.turns_answered == 2


def test_a_row_has_its_own_system_prompt_files_and_limits(tmp_path):
    def look(name: str, here: "Workspace") -> str:
        """Look into a file.

        name: which
        """
        return (here.root / name).read_text()

    from stemma.tools.workspace import Workspace

    look.__annotations__["here"] = Workspace

    def looks(request):
        last = request.messages[-1]
        if last["role"] == "tool":
            return {"content": last["content"], "reasoning": "seen"}
        return calls("look", {"name": "in/a.txt"})

    agent = Agent(model=ScriptedModel(looks), tools=[look])
    row = {"prompt": "look", "system": "Be exact.", "files": {"in/a.txt": "hello"}, "limits": {"turns": 2}}
    _, results = run([row], tmp_path, agent=agent)
    assert results[0].answer == "hello"
    assert results[0].graph[0]["content"] == "Be exact."


def test_toolsets_are_drawn_by_seed_and_recorded(tmp_path):
    distribution = Distribution("mine", {"file": 50, "todo": 50})
    answers = ScriptedModel(lambda request: {"content": "ok", "reasoning": "r"})
    rows = [f"prompt {i}" for i in range(40)]
    _, results = run(rows, tmp_path, agent=Agent(model=answers), distribution=distribution, seed=3, samples=2)
    drawn = {r.record.name: tuple(r.record.toolsets) for r in results}
    assert {("file",), ("todo",), ("file", "todo")} == set(drawn.values())
    assert all(drawn[name] == drawn[name[:-1] + "0"] for name in drawn), "samples of a prompt share their tools"
    _, again = run(rows, tmp_path / "x", agent=Agent(model=answers), distribution=distribution, seed=3, samples=2)
    assert drawn == {r.record.name: tuple(r.record.toolsets) for r in again}


def test_another_configuration_is_refused_shown_and_can_be_amended(tmp_path):
    run(["one"], tmp_path)
    agent = adding_agent(params={"temperature": 0.5})
    with pytest.raises(ChangedRecipe, match="temperature") as refused:
        run(["one", "two"], tmp_path, agent=agent)
    assert list(refused.value.changes) == ["params"]
    _, results = run(["one", "two"], tmp_path, agent=agent, amend=True)
    assert len(results) == 1
    recipes = {record.recipe for record in records_of(tmp_path, "r").values()}
    assert len(recipes) == 2, "each task says under which configuration it ran"


def test_what_does_not_affect_sampling_is_no_change(tmp_path):
    run(["one"], tmp_path, concurrency=1, batch_size=5)
    run(["one", "two"], tmp_path, concurrency=9, batch_size=50)


def test_all_files_can_be_made_again_from_the_store_byte_for_byte(tmp_path):
    rows = [{"prompt": f"prompt {'x' * i}", "n": i} for i in range(25)]
    run(rows, tmp_path, batch_size=10, samples=2)
    folder = tmp_path / "r"
    before = bytes_of(folder)
    assert sorted(before) == [
        "batch_001_output.jsonl",
        "batch_002_output.jsonl",
        "batch_003_output.jsonl",
        "failures.jsonl",
        "statistics.json",
        "trajectories.jsonl",
    ]
    assert before["trajectories.jsonl"] == b"".join(before[f"batch_00{i}_output.jsonl"] for i in (1, 2, 3))
    for path in folder.glob("*.json*"):
        path.unlink()
    with open_store(folder / "stemma.db", create=False) as store:
        metadata = store.runs()[0].metadata
        RunFiles(folder, "r", store, shape_of(metadata), metadata["about"]).finish()
    assert bytes_of(folder) == before


def test_rewards_are_stored_beside_the_conversation(tmp_path):
    def length(scored):
        return {"reward": len(scored.answer), "level": scored.metadata["level"]}

    batch, results = run([{"prompt": "one", "level": 2}], tmp_path, reward=length)
    assert (results[0].record.reward, results[0].record.scores) == (8.0, {"level": 2})
    entry = lines_of(tmp_path / "r" / "trajectories.jsonl")[0]
    assert entry["metadata"]["stemma_reward"] == 8.0
    assert batch.statistics["rewards"]["scored"] == 1


def test_a_reward_function_that_fails_leaves_the_conversation_and_says_so(tmp_path):
    batch, results = run(["one"], tmp_path, reward=lambda scored: 1 / 0)
    assert results[0].record.status == "completed"
    assert results[0].record.reward_failure.kind == "ZeroDivisionError"
    assert batch.statistics["left_out"] == {"unscored": 1}


def test_why_a_reward_function_failed_is_in_the_statistics_and_in_the_failures(tmp_path):
    def picky(scored):
        raise ValueError(f"no key for {scored.metadata['level']}")

    batch, _ = run([{"prompt": f"p{i}", "level": i % 2} for i in range(3)], tmp_path, reward=picky)
    assert batch.statistics["reward_errors"] == {"ValueError: no key for 0": 2, "ValueError: no key for 1": 1}
    lines = lines_of(tmp_path / "r" / "failures.jsonl")
    assert [(line["what"], line["error"], line["text"]) for line in lines] == [
        ("reward", "ValueError", f"no key for {i % 2}") for i in range(3)
    ]


@pytest.mark.parametrize("rewards", [[1e308, 1e308, 1e308], [-1e308, -1e308], [1.7e308, -1.7e308, 5.0]])
def test_rewards_at_the_end_of_what_a_float_holds_have_statistics(tmp_path, rewards):
    rows = [{"prompt": f"p{i}", "score": reward} for i, reward in enumerate(rewards)]
    batch, _ = run(rows, tmp_path, reward=lambda scored: scored.metadata["score"])
    found = batch.statistics["rewards"]
    assert (found["scored"], found["max"]) == (len(rewards), max(rewards))
    assert abs(found["mean"]) <= 1.1e308


async def narrated(scored):
    """Says more than a trajectory can carry, for some conversations."""
    if scored.metadata["odd"]:
        scored.graph.append({"role": "narrator", "content": "And so it ended."})
    return 1.0


def test_a_conversation_that_cannot_be_exported_ends_no_run_and_is_named_with_the_reason(tmp_path):
    rows = [{"prompt": f"p{i}", "odd": i == 1} for i in range(4)]
    batch, results = run(rows, tmp_path, reward=narrated, batch_size=2)
    assert len(results) == 4
    assert (batch.statistics["exported"], batch.statistics["left_out"]) == (3, {"not exportable": 1})
    assert [entry["prompt_index"] for entry in lines_of(tmp_path / "r" / "trajectories.jsonl")] == [0, 2, 3]
    (line,) = lines_of(tmp_path / "r" / "failures.jsonl")
    assert (line["prompt_index"], line["what"], line["error"]) == (1, "export", "BadMessage")
    assert "narrator" in line["text"]
    (why,) = batch.statistics["export_errors"]
    assert "narrator" in why
    before = bytes_of(tmp_path / "r")
    again, results = run(rows, tmp_path, reward=narrated, batch_size=2)
    assert (results, again.statistics["exported"]) == ([], 3)
    assert bytes_of(tmp_path / "r") == before


def test_a_conversation_that_an_earlier_run_could_not_export_is_found_when_files_are_made_again(tmp_path):
    rows = [{"prompt": f"p{i}", "odd": i == 1} for i in range(4)]
    run(rows, tmp_path, reward=narrated)
    before = bytes_of(tmp_path / "r")
    with open_store(tmp_path / "r" / "stemma.db", create=False) as store:
        for name, record in records_of(tmp_path, "r").items():
            unmarked = msgspec.structs.replace(record, export_failure=None)
            store.save(store.load(name), name, metadata=as_metadata(unmarked))
        metadata = store.runs()[0].metadata
        files = RunFiles(tmp_path / "r", "r", store, shape_of(metadata), metadata["about"])
        assert files.finish()["left_out"] == {"not exportable": 1}
    assert bytes_of(tmp_path / "r") == before


def test_a_used_up_budget_stops_starting_and_the_rest_is_left_for_later(tmp_path):
    def costly(request):
        return {"content": "ok", "reasoning": "r"}

    class Counting(ScriptedModel):
        async def reply(self, request, on_delta=None):
            reply = await super().reply(request, on_delta)
            call = type(reply.call)(model="m", usage={"total_tokens": 100}, cost=0.01)
            return type(reply)(message=reply.message, call=call)

    rows = [f"prompt {i}" for i in range(20)]
    batch, results = run(rows, tmp_path, agent=Agent(model=Counting(costly)), budget=Budget(tokens=500), concurrency=1)
    assert len(results) == 5
    assert "500 tokens" in batch.progress.stopping
    batch, results = run(rows, tmp_path, agent=Agent(model=Counting(costly)), budget=Budget(cost=0.10), concurrency=1)
    assert len(results) == 5, "what was spent before counts"


def test_a_selection_of_rows(tmp_path):
    rows = [f"prompt {i}" for i in range(10)]
    _, results = run(rows, tmp_path, selection=Selection(start=2, stop=8, first=3))
    assert sorted(r.record.prompt_index for r in results) == [2, 3, 4]
    _, results = run(rows, tmp_path / "x", selection=Selection(keep=lambda row: row.text.endswith("7")))
    assert [r.record.prompt_index for r in results] == [7]


async def _some(batch, number):
    taken = []
    async for result in batch:
        taken.append(result)
        if len(taken) == number:
            break
    return taken


def test_stopping_lets_running_conversations_end_and_starts_no_more(tmp_path):
    rows = [f"p{'x' * i}" for i in range(30)]
    batch = run_batch(rows, agent=adding_agent(), name="r", folder=tmp_path, concurrency=2)
    seen = []
    for result in batch:
        seen.append(result)
        batch.stop()
    assert 1 <= len(seen) < 30
    assert all(record.ended for record in records_of(tmp_path, "r").values())
    _, rest = run(rows, tmp_path)
    assert len(seen) + len(rest) == 30


def test_who_leaves_early_can_come_back_and_nothing_is_lost_or_repeated(tmp_path):
    rows = [f"p{'x' * i}" for i in range(30)]
    taken = asyncio.run(_some(run_batch(rows, agent=adding_agent(), name="r", folder=tmp_path, concurrency=3), 5))
    assert len(taken) == 5
    run(rows, tmp_path)
    found = records_of(tmp_path, "r")
    assert len(found) == 30
    assert all(record.status == "completed" for record in found.values())
    with open_store(tmp_path / "r" / "stemma.db") as store:
        assert store.verify() == []
        assert all(len(store.load(name).calls()) == 2 for name in found)


def test_results_come_where_an_event_loop_runs_already(tmp_path):
    async def notebook():
        return [result.answer for result in run_batch(["one"], agent=adding_agent(), name="r", folder=tmp_path)]

    assert asyncio.run(notebook()) == ["It is 4."]


def test_a_row_that_cannot_be_asked_is_told_before_anything_runs(tmp_path):
    model = ScriptedModel(adder)
    with pytest.raises(Exception, match="row 2"):
        run(["fine", {"prompt": 3}], tmp_path, agent=adding_agent(model))
    assert model.requests == []


def test_the_ephemeral_prompt_guides_and_is_in_no_file(tmp_path):
    agent = adding_agent(ephemeral="CANARY guidance", prefill=[{"role": "user", "content": "CANARY prefill"}])
    run(["one"], tmp_path, agent=agent)
    assert "CANARY guidance" in json.dumps(agent.setup.model.requests[0].messages)
    for name, content in bytes_of(tmp_path / "r").items():
        assert b"CANARY" not in content, name


def test_tools_are_judged_by_their_own_outcome(tmp_path):
    def fails(a: int) -> int:
        """Always fails.

        a: anything
        """
        raise ValueError("no")

    def uses(request):
        done = [m for m in request.messages if m["role"] == "tool"]
        if len(done) == 2:
            return {"content": "ok", "reasoning": "r"}
        return calls(["add", "fails"][len(done)], [{"a": 1, "b": 2}, {"a": 1}][len(done)], f"c{len(done)}")

    _, results = run(["one"], tmp_path, agent=Agent(model=ScriptedModel(uses), tools=[add, fails]))
    uses_made = results[0].record.tools
    assert (uses_made["add"].success, uses_made["fails"].failure) == (1, 1)


def test_tools_that_cannot_be_offered_are_told_before_anything_runs(tmp_path):
    model = ScriptedModel(adder)
    with pytest.raises(Exception, match="there is no tool or toolset 'fiel'"):
        run(["fine", {"prompt": "two", "toolsets": ["fiel"]}], tmp_path, agent=adding_agent(model))
    with pytest.raises(Exception, match="needs to know how to reach the web"):
        run(["fine"], tmp_path, agent=adding_agent(model), distribution=Distribution("d", {"file": 99, "web": 1}))
    assert model.requests == []
