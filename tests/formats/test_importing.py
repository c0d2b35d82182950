"""A line of a dataset becomes a graph under a name of its own, with the line itself kept."""

import json

from stemma.formats.hermes import to_trajectory
from stemma.formats.importing import Importer, read_line, read_numbered
from stemma.formats.training import rows_of_graph

MESSAGES = [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A", "reasoning": "r"}]


def line(entry):
    return json.dumps(entry).encode()


def test_turns_of_the_model_are_recorded_as_sampled_by_the_model_the_line_names():
    entry = {"conversations": to_trajectory(MESSAGES), "model": "qwen", "completed": True, "level": "hard"}
    found = Importer("data").named(read_line(line(entry)), line(entry), 3)
    graph = found.conversation.graph()
    (sampled,) = graph.calls()
    assert sampled.call.model == "qwen"
    assert sampled.call.extra == {"imported": True}
    assert graph == MESSAGES
    assert found.metadata["stemma"]["imported"] == {"file": "data", "line": 3, "raw": line(entry).decode()}
    (row,) = rows_of_graph(graph, found.metadata)
    assert row.metadata == {"level": "hard"}


def test_equal_lines_are_graphs_of_their_own_and_every_run_gives_the_same_names():
    raw = line({"messages": MESSAGES})
    names = [Importer("d").named(read_line(raw), raw, 1).name for _ in range(2)]
    importer = Importer("d")
    twice = [importer.named(read_line(raw), raw, number).name for number in (1, 2, 3)]
    assert names == [twice[0]] * 2
    assert len(set(twice)) == 3


def test_a_value_that_cannot_be_a_message_is_a_bad_line_and_not_the_end_of_the_import():
    nameless = line({"messages": [{"role": "", "content": "Q"}]})
    fine = line({"messages": MESSAGES})
    found = read_numbered([(1, nameless), (2, None), (3, b"{"), (4, fine)])
    assert [getattr(one, "problem", None) is None for one in found] == [False, False, False, True]
    assert "needs a role" in str(found[0])
    assert "too long" in str(found[1])
    assert found[3].content == read_line(fine).content
    assert found[3].conversation.graph() == MESSAGES
