"""
``python -m syncopate doctor``: what is installed, and what is lacking.

Each check is a function that gives a sentence, or a :class:`~syncopate.doctor.finding.Note` where something is worth
knowing and nothing has to be done, or raises what is lacking. Nothing heavy is imported: other pythons are asked in
processes of their own (:mod:`~syncopate.doctor.ask`), and sources are read (:mod:`~syncopate.doctor.signature`).
"""

from __future__ import annotations

from syncopate.doctor.cli import doctor_main

__all__ = ["doctor_main"]
