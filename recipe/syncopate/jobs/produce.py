"""Data made by a function, as a job."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

from sisyphus import Job, Task, tk

from syncopate.returnn_io.training_config import ProducedFile


class ProduceJob(Job):
    """
    Calls ``function(directory, **kwargs)`` once; the directory is the output.

    :param module: where the function is imported from
    :param function: its name there
    :param kwargs: its arguments
    """

    def __init__(self, *, module: str, function: str, kwargs: dict[str, Any]):
        self.module = module
        self.function = function
        self.kwargs = kwargs
        self.out_directory = self.output_path("data", directory=True)

    @classmethod
    def file(cls, wanted: ProducedFile) -> tk.Path:
        """
        :param wanted: a file that has to be made
        :return: it as the output of its job
        """
        job = cls(module=wanted.make.__module__, function=wanted.make.__qualname__, kwargs=dict(wanted.kwargs))
        return job.out_directory.join_right(wanted.name)

    def tasks(self) -> Iterator[Task]:
        """One short task."""
        yield Task("run", mini_task=True)

    def run(self) -> None:
        """Makes the files."""
        getattr(importlib.import_module(self.module), self.function)(self.out_directory.get_path(), **self.kwargs)
