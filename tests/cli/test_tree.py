"""The tree holds every node of every line exactly once, and folds only what the reader sees elsewhere."""

import random

from cli.conversations import by, demo, edited_from_the_end, head_edited_every_turn, say
from stemma import MessageGraph
from stemma.cli.tree import Branch, grow
from stemma.core.ids import ROOT, Id, chain


def branches(trunk: Branch) -> list[Branch]:
    found = [trunk]
    for branch in found:
        found += [other for others in branch.forks.values() for other in others.values()]
    return found


def lines(graph: MessageGraph) -> dict[int | None, list[Id]]:
    """The nodes of every line, derived from the root."""
    found: dict[int | None, list[Id]] = {None: graph.node_ids()}
    for number, version in enumerate(graph.versions):
        found[number] = chain(ROOT, (m.id for m in version.line()))
    return found


def random_graph(chance: random.Random) -> MessageGraph:
    """Edits, deletions, insertions and reverts at random places."""
    graph = MessageGraph([say("system", "0")])
    for number in range(chance.randrange(4, 40)):
        act = chance.randrange(7)
        if act < 2:
            graph.append(say("user", str(chance.randrange(3))))
        elif act < 4:
            graph.record(say("assistant", str(chance.randrange(3))), by(str(number)))
        elif act == 4 and len(graph):
            graph[chance.randrange(len(graph))]["content"] = str(chance.randrange(3))
        elif act == 5 and len(graph):
            del graph[chance.randrange(len(graph)) :]
        else:
            graph.insert(chance.randrange(len(graph) + 1), say("user", str(chance.randrange(3))))
    return graph


def check(graph: MessageGraph) -> None:
    trunk, known = grow(graph), lines(graph)
    all_nodes = {node for line in known.values() for node in line}
    assert sum(len(branch.own) for branch in branches(trunk)) == len(all_nodes)
    for branch in branches(trunk):
        line = known[branch.version]
        for index, node in branch.nodes.items():
            assert line[index] == node
        for start, stop, folded in branch.stretches():
            assert folded or (stop == start + 1 and start in branch.nodes)
        covered = [index for start, stop, _ in branch.stretches() for index in range(start, stop)]
        assert covered == list(range(branch.start, branch.stop))
    check_folds(graph, trunk)
    check_calls(graph, trunk)


def check_folds(graph: MessageGraph, trunk: Branch) -> None:
    """What is folded away stands, in the same order, in the line that replaced it; nothing sampled is."""
    newer = [*(version.messages() for version in graph.versions), graph.messages()]
    for branch in branches(trunk)[1:]:
        assert branch.version is not None
        for start, stop, folded in branch.stretches():
            if folded:
                hidden = [branch.message(index).to_dict() for index in range(start, stop)]
                line = newer[branch.version + 1]
                assert any(line[i : i + len(hidden)] == hidden for i in range(len(line)))
                assert not set(range(start, stop)) & branch.calls.keys()


def check_calls(graph: MessageGraph, trunk: Branch) -> None:
    placed = [
        (call.model, branch.nodes[index].hex())
        for branch in branches(trunk)
        for index, calls in branch.calls.items()
        for call in calls
    ]
    assert sorted(placed) == sorted((sampled.call.model, sampled.made) for sampled in graph.calls())


def test_the_demo_has_a_branch_for_each_version():
    graph = demo()
    check(graph)
    assert sorted(branch.version for branch in branches(grow(graph))[1:] if branch.version is not None) == [0, 1, 2]


def test_random_graphs_keep_every_node_once():
    for seed in range(300):
        check(random_graph(random.Random(seed)))


def test_hard_graphs_keep_every_node_once():
    check(head_edited_every_turn(30))
    check(edited_from_the_end(30))


def test_a_version_that_an_edit_brought_back_has_no_branch():
    graph = MessageGraph([say("user", "a")])
    graph.record(say("assistant", "b"), by())
    graph[0]["content"] = "c"
    graph[0]["content"] = "a"
    trunk = grow(graph)
    assert trunk.ends == {1: [0]}
    assert [branch.version for branch in branches(trunk)] == [None, 1]
    assert list(trunk.calls) == [1]


def test_a_cleared_graph_keeps_its_lines():
    graph = MessageGraph([say("user", "a"), say("assistant", "b")])
    graph.clear()
    check(graph)
    assert [len(branch.own) for branch in branches(grow(graph))] == [0, 2]
