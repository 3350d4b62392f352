"""A training that ended before it was done, and is to be started again."""

from __future__ import annotations


class Interruption(KeyboardInterrupt):
    """
    Nothing is wrong: it was told to stop, little time was left, a node was lost, or a newer start took over.

    Like the ``KeyboardInterrupt`` it is derived from, it is no ``Exception``: Sisyphus marks a task that ends with one
    neither as finished nor as in error, and submits it again.
    """
