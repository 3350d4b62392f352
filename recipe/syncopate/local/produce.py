"""Files that functions make before anything is trained, made once and kept."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from syncopate.returnn_io.training_config import ProducedFile


class Store:
    """
    :param root: folder that holds one folder per call of a function
    """

    def __init__(self, root: Path):
        self.root = root

    def path(self, wanted: ProducedFile) -> Path:
        """
        :param wanted: a file
        :return: where it is; it is made if it was not yet
        """
        digest = hashlib.sha256(repr(wanted.source).encode()).hexdigest()[:12]
        directory = self.root / f"{wanted.make.__name__}.{digest}"
        if not directory.is_dir():
            self.root.mkdir(parents=True, exist_ok=True)
            temporary = directory.with_name(f".{directory.name}.{os.getpid()}.tmp")
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir()
            wanted.make(temporary, **wanted.kwargs)
            try:
                temporary.rename(directory)
            except OSError:
                if not directory.is_dir():
                    raise
                shutil.rmtree(temporary)  # another run made the same meanwhile
        return directory / wanted.name
