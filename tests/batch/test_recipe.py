import pytest

from batches import add, adder
from stemma.agent.agent import Agent
from stemma.agent.limits import Limits
from stemma.batch.distributions import Distribution
from stemma.batch.recipe import changes, recipe_id, recipe_of, told
from stemma.models.scripted import ScriptedModel


def recipe(distribution=None, seed=None, name="m", **agent):
    return recipe_of(Agent(model=ScriptedModel(adder, name=name), **agent), distribution, seed)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"name": "other"}, "model"),
        ({"params": {"temperature": 0.5}}, "params"),
        ({"system": "Be kind."}, "system"),
        ({"tools": [add]}, "tools"),
        ({"seed": 4}, "seed"),
        ({"distribution": Distribution("d", {"file": 50})}, "distribution"),
        ({"limits": Limits(turns=3)}, "limits"),
        ({"ephemeral": "Think twice."}, "ephemeral"),
        ({"prefill": [{"role": "user", "content": "Hi"}]}, "prefill"),
    ],
)
def test_all_that_affects_sampling_is_part_of_it(change, key):
    before, now = recipe(), recipe(**change)
    assert list(changes(before, now)) == [key]
    assert recipe_id(before) != recipe_id(now)


def test_equal_agents_have_equal_recipes():
    assert recipe_id(recipe(tools=[add], seed=1)) == recipe_id(recipe(tools=[add], seed=1))


def test_changes_are_told_one_a_line():
    text = told(changes({"model": "a", "seed": 1}, {"model": "b", "system": "x" * 200}))
    assert text.splitlines()[:2] == ["  model: 'a' → 'b'", "  seed: 1 → None"]
    assert len(max(text.splitlines(), key=len)) < 200
