"""
How the ranks of one training are started, watched and ended.

The way down::

    run_training (run)               one launcher per host: the Sisyphus worker, or ``python -m syncopate run``
    ├── run_here (here)              all agents are started here: one node, or several that are emulated
    ├── run_node (node)              one launcher on each node of a SLURM job, this one starts the agent of its own
    └── run_from_batch_script        one launcher in the batch script (fan_out), which starts those by srun
        └── torchrun agent (command) one per node
            └── rank (rank)          ``python -m syncopate.launch.rank CONFIG``: one training process, RETURNN inside
                └── guard (guard)    sleeps beside the rank, and ends its data workers when it is gone

Death travels down by itself: an agent dies with its launcher, a rank with its agent, data workers with their rank
(:mod:`~syncopate.launch.lifeline`), whoever is killed and however. Upwards the launcher looks
(:mod:`~syncopate.launch.watch`): each rank keeps one small file about itself (:mod:`~syncopate.launch.rank_record`),
from which come the proof that the world had the size that was asked for, and, together with torchrun's own report, the
sentence that names node, rank and reason (:mod:`~syncopate.launch.failure`). One failing agent or rank ends all of them
within seconds.

Launchers of several nodes tell each other how they are through small files (:mod:`~syncopate.launch.board`), so that
all of them end with the same cause, and none ends well while another failed. Each start is noted
(:mod:`~syncopate.launch.attempts`): too many in vain are an error, and an old one that still runs somewhere gives way.

Where the nodes are is a pure function of the cluster and the environment (:mod:`~syncopate.launch.place`), the command
line and the environment of an agent are pure functions of that (:mod:`~syncopate.launch.command`,
:mod:`~syncopate.launch.environment`). Nothing is guessed from a variable that is missing.

Everything here runs inside the manager's python as well as inside the training python: standard library only.
"""
