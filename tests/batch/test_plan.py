import random

from hypothesis import given
from hypothesis import strategies as st

from stemma.batch.distributions import Distribution
from stemma.batch.plan import Selection, drawn_toolsets, fresh_record, task_seed, tasks
from stemma.batch.prompts import read_rows

PROMPTS = st.lists(st.sampled_from(["a", "b", "c"]), max_size=12)


def planned(prompts, samples=1):
    return list(tasks(read_rows(prompts), samples))


def test_equal_rows_are_numbered_and_every_row_has_its_samples():
    made = [(task.row.text, task.ordinal, task.sample) for task in planned(["A", "B", "A"], 2)]
    assert made == [("A", 0, 0), ("A", 0, 1), ("B", 0, 0), ("B", 0, 1), ("A", 1, 0), ("A", 1, 1)]


@given(PROMPTS, st.integers(1, 4))
def test_every_task_has_a_name_of_its_own(prompts, samples):
    names = [task.name for task in planned(prompts, samples)]
    assert len(set(names)) == len(names) == samples * len(prompts)


@given(PROMPTS, PROMPTS, st.integers(1, 3), st.randoms(use_true_random=False))
def test_a_dataset_that_is_shuffled_or_extended_keeps_its_tasks(prompts, more, samples, chance):
    before = {task.name for task in planned(prompts, samples)}
    shuffled = [*prompts, *more]
    chance.shuffle(shuffled)
    assert before <= {task.name for task in planned(shuffled, samples + 1)}


def test_the_row_and_not_its_place_decides_the_name():
    one, two = planned([{"prompt": "a", "level": 1}, {"level": 1, "prompt": "a"}])
    assert one.row.key == two.row.key
    assert planned([{"prompt": "a", "level": 2}])[0].row.key != one.row.key


@given(st.integers(0, 30), st.one_of(st.none(), st.integers(0, 30)), st.one_of(st.none(), st.integers(0, 30)))
def test_a_selection_is_a_slice_of_a_list(number, start, stop):
    rows = list(read_rows([f"p{i}" for i in range(number)]))
    assert list(Selection(start=start, stop=stop).of(rows)) == rows[start:stop]


def test_a_selection_counts_only_rows_that_are_kept():
    rows = read_rows([f"p{i}" for i in range(10)])
    odd = Selection(first=2, start=3, keep=lambda row: row.index % 2 == 1)
    assert [row.index for row in odd.of(rows)] == [3, 5]


def test_a_selection_reads_no_further_than_it_must():
    def endless():
        number = 0
        while True:
            yield f"p{number}"
            number += 1

    assert len(list(Selection(first=3).of(read_rows(endless())))) == 3
    assert len(list(Selection(stop=4).of(read_rows(endless())))) == 4


def test_seeds_differ_by_task_and_repeat_by_run():
    made = planned(["a", "a", "b"], 8)
    seeds = [task_seed(7, task) for task in made]
    assert len(set(seeds)) == 24
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert seeds == [task_seed(7, task) for task in planned(["a", "a", "b"], 8)]
    assert seeds != [task_seed(8, task) for task in made]


def test_the_samples_of_a_prompt_share_their_draw_and_equal_prompts_have_draws_of_their_own():
    half = Distribution("half", dict.fromkeys("abcdefgh", 50))
    made = planned(["same"] * 6, 3)
    drawn = {(task.ordinal, task.sample): tuple(drawn_toolsets(half, 1, task)) for task in made}
    assert all(drawn[ordinal, sample] == drawn[ordinal, 0] for ordinal, sample in drawn)
    assert len({drawn[ordinal, 0] for ordinal in range(6)}) > 1


def test_a_fresh_record_says_where_its_task_comes_from():
    task = planned([{"prompt": "a", "id": 5, "z": 1, "b": random.Random(1).random()}])[0]
    record = fresh_record(task, "recipe", ["file"], 3)
    assert (record.name, record.id, record.toolsets, record.recipe) == (task.name, "5", ["file"], "recipe")
    assert record.params == {"seed": task_seed(3, task)}
    assert record.metadata == task.row.metadata
    assert fresh_record(task, "recipe", [], None).params == {}
