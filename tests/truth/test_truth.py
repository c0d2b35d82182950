"""Nothing is trained that was not sampled, and nothing that was sampled is lost without a word.

One world of conversations, every preset, every way to it. Each test reads the written rows as the trainer would, and
holds them against the oracle: see `judge`.
"""

import pytest

from truth import datasets, paths
from truth.readers import TEXT_PRESETS, TOKEN_PRESETS

ALL = (*TEXT_PRESETS, *TOKEN_PRESETS)


@pytest.mark.parametrize("preset", ALL)
def test_a_store_is_exported_as_it_was_sampled(large, preset):
    large.hold(paths.judge_store(large.world, large.store, preset, large.new("store") / preset, "store"))


@pytest.mark.parametrize("preset", ALL)
def test_two_stores_merged_are_exported_as_they_were_sampled(small, preset):
    out = small.new("merged") / preset
    small.hold(paths.judge_store(small.world, small.merged(), preset, out, "merged"))


@pytest.mark.parametrize("preset", ALL)
def test_a_compressed_store_is_exported_as_it_was_sampled(small, preset):
    out = small.new("compressed") / preset
    small.hold(paths.judge_store(small.world, small.compressed(), preset, out, "compressed"))


@pytest.mark.parametrize("preset", TEXT_PRESETS)
@pytest.mark.parametrize("first", paths.IMPORTABLE)
def test_an_export_that_is_imported_and_exported_trains_the_same(small, first, preset):
    out, store = small.new("again", first) / preset, small.imported(first)
    small.hold(paths.judge_imported(small.world, small.first(first), store, preset, out))


@pytest.mark.parametrize("preset", TEXT_PRESETS)
@pytest.mark.parametrize("first", paths.IMPORTABLE)
def test_the_file_of_an_export_that_is_exported_trains_the_same(small, first, preset):
    small.hold(paths.judge_again(small.world, small.first(first), preset, small.new("file", first) / preset))


@pytest.mark.parametrize("preset", TEXT_PRESETS)
@pytest.mark.parametrize("kind", datasets.KINDS)
def test_a_dataset_file_is_exported_as_it_says(small, kind, preset):
    small.hold(datasets.judge_dataset(small.dataset(kind), preset, small.new("dataset", kind) / preset))


@pytest.mark.parametrize("preset", TEXT_PRESETS)
@pytest.mark.parametrize("kind", datasets.KINDS)
def test_a_dataset_that_is_imported_is_exported_as_it_says(small, kind, preset):
    store = small.new("datasets") / f"{kind}.db"
    out = small.new("imported dataset", kind) / preset
    small.hold(datasets.judge_imported_dataset(small.dataset(kind), store, preset, out))


@pytest.mark.parametrize("preset", TEXT_PRESETS)
def test_truncated_replies_are_trained_if_asked_for(small, preset):
    out = small.new("truncated") / preset
    faults = paths.judge_store(small.world, small.store, preset, out, "store", "--keep-truncated")
    small.hold(faults)
