"""Nothing is trained that was not sampled, and nothing that was sampled is lost without a word.

One world of conversations, every preset, every way to it. Each test reads the written rows as the trainer would, and
holds them against the oracle: see `judge`.
"""

import pytest

from truth import datasets, paths
from truth.conftest import Bench
from truth.conversations import drawn
from truth.readers import TEXT_PRESETS, TOKEN_PRESETS

ALL = (*TEXT_PRESETS, *TOKEN_PRESETS)
SLOW_BATCHES, SLOW_SIZE = 8, 260


def of_store(bench, preset):
    return paths.judge_store(bench.world, bench.store, preset, bench.new("store") / preset, "store")


def of_merged_stores(bench, preset):
    return paths.judge_store(bench.world, bench.merged(), preset, bench.new("merged") / preset, "merged")


def of_compressed_store(bench, preset):
    return paths.judge_store(bench.world, bench.compressed(), preset, bench.new("compressed") / preset, "compressed")


def of_imported_rows(bench, first, preset):
    out, store = bench.new("again", first) / preset, bench.imported(first)
    return paths.judge_imported(bench.world, bench.first(first), store, preset, out)


def of_rows(bench, first, preset):
    return paths.judge_again(bench.world, bench.first(first), preset, bench.new("file", first) / preset)


def of_dataset(bench, kind, preset):
    return datasets.judge_dataset(bench.dataset(kind), preset, bench.new("dataset", kind) / preset)


def of_imported_dataset(bench, kind, preset):
    store, out = bench.new("datasets") / f"{kind}.db", bench.new("imported dataset", kind) / preset
    return datasets.judge_imported_dataset(bench.dataset(kind), store, preset, out)


def of_compressed_dataset(bench, preset, kind="sharegpt"):
    file, out = bench.compressed_dataset(kind), bench.new("compressed dataset", kind) / preset
    return datasets.judge_compressed_dataset(bench.world, bench.dataset(kind), file, preset, out)


@pytest.mark.parametrize("preset", ALL)
def test_a_store_is_exported_as_it_was_sampled(large, preset):
    large.hold(of_store(large, preset))


@pytest.mark.parametrize("preset", ALL)
def test_two_stores_merged_are_exported_as_they_were_sampled(small, preset):
    small.hold(of_merged_stores(small, preset))


@pytest.mark.parametrize("preset", ALL)
def test_a_compressed_store_is_exported_as_it_was_sampled(small, preset):
    small.hold(of_compressed_store(small, preset))


@pytest.mark.parametrize("preset", TEXT_PRESETS)
@pytest.mark.parametrize("first", paths.IMPORTABLE)
def test_an_export_that_is_imported_and_exported_trains_the_same(tiny, first, preset):
    tiny.hold(of_imported_rows(tiny, first, preset))


@pytest.mark.parametrize("preset", TEXT_PRESETS)
@pytest.mark.parametrize("first", paths.IMPORTABLE)
def test_the_file_of_an_export_that_is_exported_trains_the_same(tiny, first, preset):
    tiny.hold(of_rows(tiny, first, preset))


@pytest.mark.parametrize("preset", TEXT_PRESETS)
@pytest.mark.parametrize("kind", datasets.KINDS)
def test_a_dataset_file_is_exported_as_it_says(tiny, kind, preset):
    tiny.hold(of_dataset(tiny, kind, preset))


@pytest.mark.parametrize("preset", TEXT_PRESETS)
@pytest.mark.parametrize("kind", datasets.KINDS)
def test_a_dataset_that_is_imported_is_exported_as_it_says(tiny, kind, preset):
    tiny.hold(of_imported_dataset(tiny, kind, preset))


@pytest.mark.parametrize("preset", TEXT_PRESETS)
def test_a_compressed_dataset_is_exported_as_it_says(tiny, preset):
    tiny.hold(of_compressed_dataset(tiny, preset))


@pytest.mark.parametrize("preset", TEXT_PRESETS)
def test_truncated_replies_are_trained_if_asked_for(small, preset):
    out = small.new("truncated") / preset
    small.hold(paths.judge_store(small.world, small.store, preset, out, "store, truncated kept", "--keep-truncated"))


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(SLOW_BATCHES))
def test_thousands_of_conversations_hold_in_every_preset_and_on_every_path(tmp_path, batch):
    bench = Bench.of(drawn(SLOW_SIZE, start=100 + batch), tmp_path)
    assert len(bench.world.talks) >= SLOW_SIZE
    faults = []
    for preset in ALL:
        for way in (of_store, of_merged_stores, of_compressed_store):
            faults += way(bench, preset)
    for preset in TEXT_PRESETS:
        faults += of_compressed_dataset(bench, preset)
        for first in paths.IMPORTABLE:
            faults += of_imported_rows(bench, first, preset) + of_rows(bench, first, preset)
        for kind in datasets.KINDS:
            faults += of_dataset(bench, kind, preset) + of_imported_dataset(bench, kind, preset)
    bench.hold(faults)
