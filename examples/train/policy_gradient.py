"""A policy-gradient loop in plain PyTorch, on the weights that made the rollouts.

    python examples/train/policy_gradient.py data [--steps 12] [--samples 8]

The first step trains on the rows of `data`, which llama.cpp sampled; later steps on samples of its own. Both come as
rows with logprobs, weights and advantages. A row's loss is the mean over its trained tokens of ratio x advantage, times
its weight; so a rollout counts once, however many rows it has.
"""

import argparse
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import torch
from task import LEARNED, LONGEST, reward
from weights import batch_of, load, sampled_logprobs

from stemma import Call, MessageGraph
from stemma.cli.choosing import embedded_model
from stemma.core.advantages import advantages
from stemma.core.exclusions import Rules
from stemma.core.token_calls import captured
from stemma.core.token_rows import Standing, plan_rows
from stemma.formats.token_presets import token_preset

END = 2
"""The token that ends a turn of SmolLM2."""

Rows = list[dict[str, Any]]


def loss_of(model: Any, rows: Rows) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss, and the importance ratio of every trained token."""
    batch = batch_of(rows)
    now, mask = sampled_logprobs(model, batch)
    ratio = torch.exp(now - batch["logprobs"][:, 1:]) * mask
    credit = torch.tensor([row["advantage"] * row["weight"] for row in rows])
    gain = (ratio.clamp(max=2.0).sum(1) / mask.sum(1)) * credit
    return -gain.sum() / len({row["rollout_id"] for row in rows}), ratio.detach()[mask.bool()]


def samples_of(model: Any, prompt: list[int], count: int) -> Rows:
    """Answers of the policy as it is now, as rows: recorded, scored, and planned like everybody's."""
    answers = [_whole(*sampled) for sampled in _generated(model, prompt, count)]
    rewards = {str(n): reward(len(ids)) for n, (ids, _) in enumerate(answers)}
    better = advantages(rewards)
    rows = []
    for n, (ids, logprobs) in enumerate(answers):
        graph = MessageGraph([{"role": "user", "content": "as in the prompt"}])
        call = Call(model="policy", prompt_ids=prompt, sampled_ids=ids, logprobs=logprobs)
        graph.record({"role": "assistant", "content": f"sample {n}"}, call)
        standing = Standing(group="step", reward=rewards[str(n)], advantage=better[str(n)])
        rows += plan_rows(str(n), captured(graph, str(n)), Rules(), standing).rows
    return token_preset("tokens").write(rows)


@torch.no_grad()
def _generated(model: Any, prompt: list[int], count: int) -> list[tuple[list[int], list[float]]]:
    start = torch.tensor([prompt] * count)
    keep = {"return_dict_in_generate": True, "output_logits": True, "pad_token_id": END, "eos_token_id": END}
    every = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "max_new_tokens": LONGEST}
    made = model.generate(start, attention_mask=torch.ones_like(start), **every, **keep)
    ids = made.sequences[:, len(prompt) :]
    logprobs = torch.stack(made.logits, 1).log_softmax(-1).gather(-1, ids[..., None])[..., 0]
    return list(zip(ids.tolist(), logprobs.tolist(), strict=True))


def _whole(ids: list[int], logprobs: list[float]) -> tuple[list[int], list[float]]:
    """Up to the end of the turn, which was sampled too."""
    length = ids.index(END) + 1 if END in ids else len(ids)
    return ids[:length], logprobs[:length]


def main(folder: Path, steps: int, samples: int, rate: float) -> list[float]:
    """Train; the mean reward of each step."""
    torch.manual_seed(0)
    rows = pq.read_table(folder / "train.parquet").to_pylist()
    model = load(embedded_model())
    optimiser = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=rate)
    prompt = next(row["input_ids"][: row["starts"][0]] for row in rows if row["group_id"] == LEARNED)
    found = []
    for step in range(steps):
        if step:
            rows = samples_of(model, prompt, samples)
        loss, ratio = loss_of(model, rows)
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        found.append(sum(row["reward"] for row in rows) / len(rows))
        source = "rollouts of llama.cpp" if step == 0 else "own samples"
        print(f"step {step:2}  reward {found[-1]:.3f}  loss {loss.item():+.4f}  ratio {ratio.mean():.4f}  {source}")
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--rate", type=float, default=1e-4)
    asked = parser.parse_args()
    _, *own = main(asked.folder, asked.steps, asked.samples, asked.rate)
    few = max(1, len(own) // 3)
    print(f"reward of its own samples: first {sum(own[:few]) / few:.3f}, last {sum(own[-few:]) / few:.3f}")
