"""Tools of your own: `stemma chat --tools examples/my_tools.py --toolsets custom`.

Every public function with a docstring is a tool. Its types and its docstring are what the model is told of it.
"""

from datetime import date


def word_count(text: str, longer_than: int = 0) -> int:
    """Count the words of a text.

    text: the text
    longer_than: count only words with more letters than this
    """
    return sum(len(word) > longer_than for word in text.split())


def days_between(first: date, last: date) -> dict[str, int]:
    """Say how far apart two days are.

    first: the earlier day, as 2024-02-28
    last: the later day
    """
    days = (last - first).days
    return {"days": days, "weeks": days // 7}
