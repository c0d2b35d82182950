"""A task that can be checked without a judge: the shorter the answer, the better."""

QUESTIONS = ("Name a colour.", "What is the capital of France?", "Is water wet?", "What is 2 + 2?")
LEARNED = QUESTIONS[1]
"""The one that the policy-gradient loop goes on with by itself, so that its steps can be compared."""
LONGEST = 48
"""Tokens of an answer."""


def reward(tokens: int) -> float:
    """1 for no words at all, 0 for as many as there may be."""
    return 1 - tokens / LONGEST
