"""
What a SLURM cluster can give, and where a task goes in it. A ``settings.py`` says it once::

    from syncopate.settings import configure
    from syncopate.site import NodeShape, Partition, Site

    site = Site(
        partitions=[
            Partition(name="gpu", shape=NodeShape(gpus=4, gpu_mem_gb=80, cpus=64, mem_gb=500), max_time_h=24),
            Partition(name="cpu", shape=NodeShape(cpus=64, mem_gb=250), max_time_h=72),
        ],
        account="project1",
    )
    configure(globals(), engine="slurm", site=site)

A *requirement* is Sisyphus' dict of what a task asks for, per node: ``cpu``, ``gpu``, ``mem`` in GB, ``time`` in hours,
``multi_node_slots`` (nodes), and ``sbatch_args``; ``gpu_mem`` (GB per GPU) and ``gpu_name`` are understood too.
"""

from syncopate.site.partition import NodeShape, Partition
from syncopate.site.site import Site

__all__ = ["NodeShape", "Partition", "Site"]
