"""Worlds for the tests of this folder: every shape once, and what hypothesis draws; the longer a path, the fewer."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from truth import datasets, paths
from truth.conversations import World, drawn, every_shape
from truth.judge import Fault, told
from truth.readers import Export, read_export

CONVERSATIONS = 150
"""How many hypothesis draws for the tests that are not slow."""


@dataclass
class Bench:
    """A world in a store, and whatever has been made of it."""

    world: World
    folder: Path
    store: Path
    made: dict[Any, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, scripts: list[Any], folder: Path) -> "Bench":
        world = World()
        for script in scripts:
            world.build(script)
        return cls(world, folder, world.save(folder / "world.db"))

    def once(self, key: Any, make: Any) -> Any:
        """Made when it is first asked for."""
        if key not in self.made:
            self.made[key] = make()
        return self.made[key]

    def new(self, *parts: str) -> Path:
        folder = self.folder.joinpath(*parts)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def first(self, preset: str) -> Export:
        """The export that is read back."""
        folder = self.new("first") / preset
        return self.once(("first", preset), lambda: read_export(preset, paths.export(self.store, preset, folder)))

    def imported(self, preset: str) -> Path:
        file, store = self.first(preset).folder / "train.jsonl", self.new("imported") / f"{preset}.db"
        return self.once(("imported", preset), lambda: paths.imported(file, store))

    def merged(self) -> Path:
        return self.once("merged", lambda: paths.merged(self.world, self.new("merged")))

    def compressed(self) -> Path:
        return self.once("compressed", lambda: paths.compressed(self.store, self.new("compressed")))

    def dataset(self, kind: str) -> datasets.Dataset:
        return self.once(("dataset", kind), lambda: datasets.write(self.world, kind, self.new("datasets")))

    def compressed_dataset(self, kind: str) -> Path:
        return self.once(
            ("compressed", kind), lambda: datasets.compressed(self.dataset(kind), self.new("compressed datasets"))
        )

    def hold(self, faults: list[Fault]) -> None:
        """No faults; otherwise all of them, by class."""
        scripts = {reply.conversation: reply.script for reply in self.world.replies}
        if faults:
            pytest.fail(told(faults, scripts), pytrace=False)


@pytest.fixture(scope="session")
def large(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench.of([*every_shape(), *drawn(CONVERSATIONS)], tmp_path_factory.mktemp("large"))


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench.of([*every_shape(), *drawn(30, start=1)], tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench.of([*every_shape()[::2], *drawn(20, start=2)], tmp_path_factory.mktemp("tiny"))
