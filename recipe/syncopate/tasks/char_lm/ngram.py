"""
What a model reaches that knows only how often characters occur: the lines a trained model has to stay below.

Both models are estimated on the train windows and scored on every character of the dev windows, in nats per character,
as RETURNN does with the trained model. That one sees a start symbol before the first character of a window, not the end
of the window before, so the bigram model does too.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

START = ""
"""What stands before the first character of a window."""


def unigram_entropy(train: Sequence[str], dev: Sequence[str], *, vocab_size: int) -> float:
    """
    Smoothing: add one. p(c) = (n(c) + 1) / (N + V).

    :param train: windows to count in
    :param dev: windows to score
    :param vocab_size: V, number of symbols
    :return: cross-entropy of dev, in nats per character
    """
    counts = Counter(char for _, char in _pairs(train))
    log_total = math.log(counts.total() + vocab_size)
    scores = [math.log(counts[char] + 1) - log_total for _, char in _pairs(dev)]
    return -math.fsum(scores) / len(scores)


def bigram_entropy(train: Sequence[str], dev: Sequence[str], *, vocab_size: int) -> float:
    """
    Smoothing: Witten-Bell, backing off to the unigram model above.
    p(c | h) = (n(h, c) + T(h) p(c)) / (n(h) + T(h)), with T(h) the number of different characters seen after h.

    :param train: windows to count in
    :param dev: windows to score
    :param vocab_size: number of symbols
    :return: cross-entropy of dev, in nats per character
    """
    pair_counts = Counter(_pairs(train))
    history_counts = Counter(history for history, _ in _pairs(train))
    num_followers = Counter(history for history, _ in pair_counts)
    char_counts = Counter(char for _, char in _pairs(train))
    total = char_counts.total() + vocab_size

    scores = []
    for history, char in _pairs(dev):
        unigram = (char_counts[char] + 1) / total
        followers = num_followers[history]
        if followers:
            seen = pair_counts[history, char] + followers * unigram
            scores.append(math.log(seen / (history_counts[history] + followers)))
        else:  # never seen as history
            scores.append(math.log(unigram))
    return -math.fsum(scores) / len(scores)


def _pairs(windows: Sequence[str]) -> Iterator[tuple[str, str]]:
    for window in windows:
        history = START
        for char in window:
            yield history, char
            history = char
