"""Data of the experiment, and what recipes keep beside it."""

import copy
from dataclasses import dataclass

from sisyphus import Job, Task

from i6_core.returnn import ReturnnTrainingJob


class CorpusJob(Job):
    """Lines of text in which every symbol follows from the one before, most of the time."""

    def __init__(self, num_lines=192):
        self.num_lines = num_lines
        self.out_train = self.output_path("train.txt")
        self.out_dev = self.output_path("dev.txt")
        self.out_vocab = self.output_path("vocab")

    def tasks(self):
        yield Task("run", mini_task=True)

    def run(self):
        import random

        rng = random.Random(1)
        symbols = "abcdefgh"
        for path, count in ((self.out_train, self.num_lines), (self.out_dev, 24)):
            lines = []
            for _ in range(count):
                text = rng.choice(symbols)
                while len(text) < 40:
                    follows = symbols[(symbols.index(text[-1]) + 3) % len(symbols)]
                    text += follows if rng.random() < 0.9 else rng.choice(symbols)
                lines.append(text)
            with open(path.get_path(), "w") as file:
                file.write("\n".join(lines) + "\n")
        with open(self.out_vocab.get_path(), "w") as file:
            file.write(repr({symbol: index for index, symbol in enumerate(symbols + "\ufffd")}))


_corpus = CorpusJob()
VOCAB = {"class": "CharacterTargets", "vocab_file": _corpus.out_vocab, "unknown_label": "\ufffd"}
EXTERN_DATA = {"data": {"shape": [None], "sparse": True, "dtype": "int32", "vocab": VOCAB}}


def data(name, order):
    """Options of a data set."""
    file = {"train.txt": _corpus.out_train, "dev.txt": _corpus.out_dev}[name]
    return {"class": "LmDataset", "corpus_file": file, "orth_vocab": VOCAB, "seq_ordering": order, "dtype": "int32"}


def dict_update_deep(config, updates):
    """Nested dicts are joined."""
    result = copy.deepcopy(config)
    for key, value in updates.items():
        nested = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = dict_update_deep(result[key], value) if nested else value
    return result


@dataclass
class ModelWithCheckpoints:
    """What the helper returns."""

    job: ReturnnTrainingJob

    def get_training_job(self):
        """As in the recipes of the group."""
        return self.job
