"""
Declarations of synchronisation schemes. Standard library only; immutable; checked when built.

A :class:`Scheme` is nested :class:`Level`\\ s, from the ranks that synchronise most often to the world. A level is a
group of ranks, a period in updates, and what is combined: :class:`Gradients`, :class:`Average` or :class:`Outer`.
The named schemes (:func:`ddp`, :func:`param_avg`, :func:`hierarchical`, :func:`diloco`) return one.
"""
