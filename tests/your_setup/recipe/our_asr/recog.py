"""Recognition: how often the most likely next symbol is wrong."""

import subprocess

from sisyphus import Job, Task

from our_asr import corpus, paths

PROGRAM = """
import sys, torch
from syncopate.tasks.char_lm.model import CharLm, ModelOpts
checkpoint, dev, vocab = sys.argv[1:]
vocab = eval(open(vocab).read())
model = CharLm(vocab_size=len(vocab), opts=ModelOpts(num_layers=1, dim=32, num_heads=2))
model.load_state_dict(torch.load(checkpoint, weights_only=False)["model"])
model.eval()
chars = torch.tensor([[vocab[symbol] for symbol in line] for line in open(dev).read().split()])
with torch.no_grad():
    wrong = (model(chars).argmax(-1) != chars)[:, 1:].float().mean()
print(float(wrong) * 100)
"""


class RecognitionJob(Job):
    """Error rate in percent of one checkpoint."""

    def __init__(self, checkpoint):
        self.checkpoint = checkpoint
        self.dev = corpus.data("dev.txt", "default")["corpus_file"]
        self.vocab = corpus.VOCAB["vocab_file"]
        self.python = paths.RETURNN_PYTHON
        self.out_error_rate = self.output_var("error_rate")

    def tasks(self):
        yield Task("run", mini_task=True)

    def run(self):
        files = [str(self.checkpoint), self.dev.get_path(), self.vocab.get_path()]
        command = ["env", f"PYTHONPATH={paths.RECIPE}", self.python.get_path(), "-c", PROGRAM, *files]
        self.out_error_rate.set(float(subprocess.check_output(command, text=True).splitlines()[-1]))
