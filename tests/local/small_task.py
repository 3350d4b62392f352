"""A task of a second: 52 lines of text, a model with BatchNorm, DDP's trouble with a data set to evaluate on."""

from __future__ import annotations

from pathlib import Path

NUM_SEQUENCES = 52
SYMBOLS = "abcdefgh"


def write_lines(directory, *, num_sequences=NUM_SEQUENCES):
    """Train and dev text, and what a training checks before it starts."""
    folder = Path(directory)
    for name, count in (("train.txt", num_sequences), ("dev.txt", 6)):
        lines = ["".join(SYMBOLS[(row + column) % len(SYMBOLS)] for column in range(12)) for row in range(count)]
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "symbols.txt").write_text("\n".join(["[END]", "[UNKNOWN]", *SYMBOLS]) + "\n", encoding="utf-8")
    (folder / "statistics.json").write_text(f'{{"num_train_sequences": {num_sequences}}}', encoding="utf-8")


def get_model(*, epoch, step, **_kwargs):
    """Embedding, BatchNorm, output layer; the same parameters on every rank."""
    import torch

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            generator = torch.Generator().manual_seed(1)
            self.embedding = torch.nn.Embedding(len(SYMBOLS) + 2, 8)
            self.norm = torch.nn.BatchNorm1d(8)
            self.output = torch.nn.Linear(8, len(SYMBOLS) + 2)
            with torch.no_grad():
                for parameter in self.parameters():
                    parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.1)

        def forward(self, ids):
            hidden = self.embedding(ids)
            return self.output(self.norm(hidden.flatten(0, 1)).unflatten(0, ids.shape))

    return Model()


def train_step(*, model, extern_data, **_kwargs):
    """Cross entropy of the next symbol."""
    import returnn.frontend as rf
    import torch

    data = extern_data["data"]
    ids = data.raw_tensor.long()
    logits = model(ids[:, :-1])
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
    rf.get_run_ctx().mark_as_loss(name="ce", loss=loss)
