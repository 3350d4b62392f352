"""
Everything Syncopate raises on purpose::

    SyncopateError
    ├── DeclarationError (also ValueError)   what was declared cannot be meant
    │   ├── SchemeError                      a scheme, a level, a hook
    │   ├── ClusterError                     nodes, ranks, groups of ranks
    │   ├── ConfigError                      the RETURNN config, or what it says beside the scheme
    │   ├── SweepError                       rows, trials, budgets, baselines
    │   └── SiteError                        partitions of a cluster, or what none of them gives
    ├── NotYetError                          declared and checked, but this version cannot train it
    ├── ComponentError                       a component is missing, too old, or is another one of the same name
    ├── LaunchError                          ranks could not be started, or died
    │   └── HostMemoryError                  because a host ran out of main memory
    ├── ReadError                            a file of a run is not what it should be
    └── NotBetterError                       a row is not better than a reference it had to beat

A message says what is wrong, with which value, what is allowed, and what to do.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class SyncopateError(Exception):
    """Base of all errors that Syncopate raises on purpose."""


class DeclarationError(SyncopateError, ValueError):
    """What was declared cannot be meant."""


class SchemeError(DeclarationError):
    """A scheme, a level or a hook is declared wrongly."""


class ClusterError(DeclarationError):
    """Nodes, ranks or groups of ranks do not fit together."""


class ConfigError(DeclarationError):
    """The RETURNN config cannot be trained, or contradicts the scheme."""


class SweepError(DeclarationError):
    """The rows of a sweep do not fit together."""


class SiteError(DeclarationError):
    """A cluster is described wrongly, or none of its partitions gives what is asked for."""


class NotYetError(SyncopateError, NotImplementedError):
    """The declaration is sound, but this version of Syncopate cannot train it."""


class ComponentError(SyncopateError):
    """A component is missing, too old, or another one of the same name is installed."""


class LaunchError(SyncopateError):
    """Ranks could not be started, or one of them died."""


class HostMemoryError(LaunchError):
    """A host ran out of the main memory that was asked for; with more of it the training may go on."""


class ReadError(SyncopateError):
    """A file of a run is not what it should be; the message starts with its path and, where known, the line."""


class NotBetterError(SyncopateError):
    """A row is not better than a reference it had to beat."""


def did_you_mean(word: object, allowed: Iterable[str]) -> str:
    """
    :param word: what was written
    :param allowed: what is allowed
    :return: " (did you mean 'x'?)", or "" if nothing comes near
    """
    near = get_close_matches(str(word), list(allowed), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
