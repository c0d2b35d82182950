"""The cover: every call once, in its exact context, in the fewest rows and then the fewest tokens."""

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stemma.core.call import pack_ids
from stemma.core.cover import TokenCall, cover
from stemma.core.token_trie import WIDTH, TokenTrie, shared

IDS = st.lists(st.integers(1, 2), max_size=5)


def call(prompt, sampled, before=None):
    return TokenCall(pack_ids(prompt), pack_ids(sampled), before)


def full(one):
    return one.prompt + one.sampled


def rows_and_tokens(calls, rows):
    return len(rows), sum(len(full(calls[row[-1]])) for row in rows) // WIDTH


def best_by_trying_all(calls):
    """Over every way to let calls follow one another: the fewest rows, then tokens."""
    follows = [[j for j, later in enumerate(calls) if later.prompt.startswith(full(one))] for one in calls]
    sizes = [len(full(one)) // WIDTH for one in calls]

    def best(number, taken, rows, tokens):
        if number == len(calls):
            return rows, tokens
        found = best(number + 1, taken, rows + 1, tokens + sizes[number])  # the row ends here
        for j in follows[number]:
            if j not in taken:
                found = min(found, best(number + 1, taken | {j}, rows, tokens))
        return found

    return best(0, frozenset(), 0, 0)


def random_calls(rng):
    """A few calls, most of them built on what others saw and sampled, with twins and overlaps among them."""
    calls = []
    for number in range(rng.randint(1, 6)):
        prompt, before = [], None
        if calls and rng.random() < 0.8:
            before = rng.randrange(number)
            seen, made = calls[before][:2]
            whole = seen + made
            prompt = whole[: rng.randint(0, len(whole))] if rng.random() < 0.3 else whole
        prompt = prompt + rng.choices((1, 2), k=rng.randint(0, 2))
        sampled = rng.choices((1, 2), k=rng.randint(1, 2))
        calls.append((prompt, sampled, before if rng.random() < 0.7 else None))
    return [call(*one) for one in calls]


def check_against_brute_force(seed, cases):
    rng = random.Random(seed)
    for _ in range(cases):
        calls = random_calls(rng)
        assert rows_and_tokens(calls, cover(calls).rows) == best_by_trying_all(calls), calls


def test_the_example_of_the_docstring():
    calls = [
        call([1, 2], [3]),
        call([1, 2, 3, 4], [5], 0),
        call([1, 2, 3, 4], [8], 0),
        call([1, 2, 3, 4, 5, 6], [7], 1),
    ]
    assert cover(calls).rows == [[0, 1, 3], [2]]


def test_the_rows_and_then_the_tokens_are_the_fewest():
    check_against_brute_force(seed=6, cases=2_000)


@pytest.mark.slow
def test_the_rows_and_then_the_tokens_are_the_fewest_in_twenty_thousand_cases():
    check_against_brute_force(seed=20_000, cases=20_000)


@given(st.lists(st.builds(call, IDS, st.lists(st.integers(1, 2), min_size=1, max_size=3)), max_size=8))
def test_every_call_is_in_one_row_after_calls_that_it_extends(calls):
    rows = cover(calls).rows
    assert sorted(number for row in rows for number in row) == list(range(len(calls)))
    for row in rows:
        for earlier, later in itertools.pairwise(row):
            assert calls[later].prompt.startswith(full(calls[earlier]))


@given(st.lists(st.builds(call, IDS, st.lists(st.integers(1, 2), min_size=1, max_size=3)), max_size=8), st.randoms())
def test_a_wrong_predecessor_changes_nothing_that_counts(calls, rng):
    told = [call_with(one, rng.choice([None, *range(len(calls))])) for one in calls]
    assert rows_and_tokens(calls, cover(told).rows) == rows_and_tokens(calls, cover(calls).rows)


def call_with(one, before):
    return TokenCall(one.prompt, one.sampled, before)


def test_of_several_that_may_follow_the_known_one_is_taken():
    parent, cousin, child = call([1], [2]), call([1, 2, 3], [4]), call([1, 2, 5], [6], 0)
    assert cover([parent, cousin, child]).rows == [[0, 2], [1]]
    assert cover([parent, child, cousin]).rows == [[0, 1], [2]]


def test_identical_samples_are_trained_each_in_a_row_of_its_own():
    twins = [call([1], [2])] * 3
    assert cover(twins).rows == [[0], [1], [2]]


def test_an_output_cut_inside_another_is_not_taken_for_its_context():
    whole, cut = call([1], [2, 3]), call([1], [2])
    assert cover([whole, cut]).rows == [[0], [1]]


def test_interleaved_agents_become_one_row_each_without_being_told_apart():
    calls, said = [], {agent: [100 + agent] for agent in range(3)}
    for turn in range(30):
        agent = turn % 3
        calls.append(call(said[agent], [turn]))
        said[agent] = [*said[agent], turn, 50]
    assert [len(row) for row in cover(calls).rows] == [10, 10, 10]


@given(st.lists(IDS, max_size=8))
def test_the_trie_keeps_each_shared_id_once_and_gives_back_every_sequence(sequences):
    trie = TokenTrie()
    ends = [trie.insert(trie.root, pack_ids(ids)) for ids in sequences]
    for ids, end in zip(sequences, ends, strict=True):
        assert path(end) == pack_ids(ids)
    beginnings = {tuple(ids[: n + 1]) for ids in sequences for n in range(len(ids))}
    assert trie.size == len(beginnings) * WIDTH


def path(node):
    runs = []
    while node is not None:
        runs.append(node.run)
        node = node.parent
    return b"".join(reversed(runs))


@given(IDS, IDS)
def test_what_two_sequences_share_is_counted_in_whole_ids(one, other):
    length = shared(pack_ids(one), pack_ids(other)) // WIDTH
    assert one[:length] == other[:length]
    assert one[length : length + 1] != other[length : length + 1] or length == len(one) == len(other)


def test_ten_thousand_turns_that_all_break_are_covered_without_recursion_or_quadratic_time():
    calls = [call([turn], [7]) for turn in range(10_000)]
    assert len(cover(calls).rows) == 10_000
