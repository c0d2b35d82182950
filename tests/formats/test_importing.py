"""A line of a dataset becomes a graph under a name of its own, with the line itself kept."""

import json

from stemma.formats.hermes import to_trajectory
from stemma.formats.importing import Importer
from stemma.formats.training import rows_of_graph

MESSAGES = [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A", "reasoning": "r"}]


def line(entry):
    return json.dumps(entry).encode()


def test_turns_of_the_model_are_recorded_as_sampled_by_the_model_the_line_names():
    entry = {"conversations": to_trajectory(MESSAGES), "model": "qwen", "completed": True, "level": "hard"}
    found = Importer("data").graph(entry, line(entry), 3)
    (sampled,) = found.graph.calls()
    assert sampled.call.model == "qwen"
    assert sampled.call.extra == {"imported": True}
    assert found.graph == MESSAGES
    assert found.metadata["stemma"]["imported"] == {"file": "data", "line": 3, "raw": line(entry).decode()}
    (row,) = rows_of_graph(found.graph, found.metadata)
    assert row.metadata == {"level": "hard"}


def test_equal_lines_are_graphs_of_their_own_and_every_run_gives_the_same_names():
    entry = {"messages": MESSAGES}
    names = [[Importer("d").graph(entry, line(entry), n).name for n in (1,)] for _ in range(2)]
    importer = Importer("d")
    twice = [importer.graph(entry, line(entry), n).name for n in (1, 2, 3)]
    assert names[0] == names[1] == twice[:1]
    assert len(set(twice)) == 3
