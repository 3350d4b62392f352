"""The entropies that a trained model has to stay below."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import pytest

from syncopate.tasks.char_lm.ngram import bigram_entropy, unigram_entropy

VOCAB = "?abcd"


def brute_force(train, dev, vocab):
    """Both entropies from a full table of exact probabilities, the counts taken by position."""
    events = [("<s>" if i == 0 else w[i - 1], w[i]) for w in train for i in range(len(w))]
    unigram = {c: Fraction(sum(e[1] == c for e in events) + 1, len(events) + len(vocab)) for c in vocab}
    bigram = {}
    for history in ["<s>", *vocab]:
        after = [c for h, c in events if h == history]
        kinds = len(set(after))
        for char in vocab:
            bigram[history, char] = (
                (after.count(char) + kinds * unigram[char]) / (len(after) + kinds) if after else unigram[char]
            )
        assert sum(bigram[history, char] for char in vocab) == 1
    assert sum(unigram.values()) == 1
    scored = [("<s>" if i == 0 else w[i - 1], w[i]) for w in dev for i in range(len(w))]
    return (
        -sum(math.log(unigram[c]) for _, c in scored) / len(scored),
        -sum(math.log(bigram[h, c]) for h, c in scored) / len(scored),
    )


@pytest.mark.parametrize("seed", range(5))
def test_entropies_equal_a_brute_force_computation(seed):
    rng = random.Random(seed)

    # "d" is never in train, so it is an unseen character and an unseen history at once.
    def draw(letters, count):
        return ["".join(rng.choice(letters) for _ in range(6)) for _ in range(count)]

    train, dev = draw("aaab?c", 7), draw("aabcd", 4)
    unigram, bigram = brute_force(train, dev, VOCAB)
    assert unigram_entropy(train, dev, vocab_size=len(VOCAB)) == pytest.approx(unigram, abs=1e-12)
    assert bigram_entropy(train, dev, vocab_size=len(VOCAB)) == pytest.approx(bigram, abs=1e-12)


@pytest.mark.parametrize("count", [1, 10, 100_000])
def test_unigram_of_a_uniform_text_is_the_log_of_the_number_of_characters(count):
    train = ["abcd" * count]
    assert unigram_entropy(train, ["abcddcba"], vocab_size=4) == pytest.approx(math.log(4), abs=1e-12)
    # One more symbol that never occurs takes its share by the add-one rule.
    expected = math.log((4 * count + 5) / (count + 1))
    assert unigram_entropy(train, ["abcd"], vocab_size=5) == pytest.approx(expected, abs=1e-12)


def test_bigram_of_an_alternating_text():
    # 99 windows "abab": after the start always a, after a always b (198 times), after b always a (99 times).
    # p(a) = p(b) = (198 + 1) / (396 + 2) = 1/2.
    start, after_a, after_b = (99 + 0.5) / 100, (198 + 0.5) / 199, (99 + 0.5) / 100
    expected = -(math.log(start) + 2 * math.log(after_a) + math.log(after_b)) / 4
    assert bigram_entropy(["abab"] * 99, ["abab"], vocab_size=2) == pytest.approx(expected, abs=1e-12)


def test_bigram_of_independent_characters_comes_near_the_unigram():
    rng = random.Random(3)
    train = ["".join(rng.choice("ab") for _ in range(1000)) for _ in range(100)]
    dev = ["".join(rng.choice("ab") for _ in range(1000)) for _ in range(10)]
    assert bigram_entropy(train, dev, vocab_size=2) == pytest.approx(math.log(2), abs=1e-3)


def test_the_first_character_is_scored_after_the_start_and_not_after_the_window_before():
    # Were the windows joined, "a" would follow "b" in train, and the second dev window would be as likely as that.
    train = ["ab"] * 50
    one, two = (bigram_entropy(train, dev, vocab_size=2) for dev in (["ab"], ["ab", "ab"]))
    assert one == pytest.approx(two, abs=1e-12)
    assert bigram_entropy(train, ["ba"], vocab_size=2) > 2 * one
