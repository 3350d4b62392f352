"""
What RETURNN makes of our options: started by a test, as ``returnn_ranks.py OPTIONS.json OUT_DIR``.

Four processes take each case of the file in turn. A case is the text of a config, the shape of its cluster and the
number of updates; every rank builds RETURNN's own context from the config and makes the updates by hand, on one
parameter. What it sees goes into ``OUT_DIR/RANK.json``.
"""

import json
import multiprocessing
import os
import socket
import sys
from pathlib import Path

import torch
import torch._dynamo  # DDP and the optimizers load it at their first use: once here, before the ranks are forked
from returnn.torch import distributed

WORLD_SIZE = 4


class Model(torch.nn.Module):
    """One parameter and one buffer, which start with the number of the rank."""

    def __init__(self, rank):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((2,), float(rank), dtype=torch.float64))
        self.register_buffer("running", torch.full((1,), float(rank), dtype=torch.float64))

    def forward(self, factor):
        return (self.weight * factor).sum()


def gradient(rank, update):
    """Another one for each rank and each update."""
    return (rank + 1) * (update + 1) % 7


def train(case, rank):
    """One epoch, and what is seen of it."""
    options = {}
    exec(compile(case["config"], "returnn.config", "exec"), options)
    created = []
    new_group = torch.distributed.new_group

    def noted_new_group(ranks, *args, **kwargs):
        created.append(list(ranks))
        return new_group(ranks, *args, **kwargs)

    torch.distributed.new_group = noted_new_group
    context = distributed.DistributedContext(options["torch_distributed"])
    torch.distributed.new_group = new_group

    module = Model(rank)
    wrapped = context.maybe_make_distributed_module(module)
    start = module.weight.tolist()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.5)
    history = []
    for update in range(case["num_updates"]):
        optimizer.zero_grad()
        (wrapped or module)(gradient(rank, update)).backward()
        context.maybe_reduce_grads(module=module)
        optimizer.step()
        context.step_after_param_update(module=module, optimizer=optimizer, epoch_update_step_idx=update)
        history.append(state(module, optimizer))
    steps = context.step_after_epoch(module=module, optimizer=optimizer, global_train_step=100 + rank)
    seen = {
        "created": created,
        "groups": [level.group_ranks for level in context._sync_levels],
        "types": [level.sync_type for level in context._sync_levels],
        "periods": [level.every for level in context._sync_levels],
        "reduce_type": context.reduce_type(),
        "ddp": None if wrapped is None else {name: getattr(wrapped, name) for name in case["ddp"]},
        "start": start[0],
        "history": history,
        "end": state(module, optimizer),
        "running": module.running.item(),
        "steps": steps,
    }
    del wrapped
    context.destroy_process_groups()
    return seen


def state(module, optimizer):
    """The parameter and the optimizer's state of it."""
    return [module.weight[0].item(), optimizer.state[module.weight]["momentum_buffer"][0].item()]


def run_rank(rank, cases, ports, out_dir):
    """All cases, each with process groups of its own."""
    torch.set_num_threads(1)
    seen = {}
    for (name, case), port in zip(cases.items(), ports, strict=True):
        os.environ.pop("_RETURNN_TORCH_DISTRIBUTED_INIT_INFO", None)
        local_size = case["num_gpus_per_node"]
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(WORLD_SIZE)}
        os.environ |= {"LOCAL_RANK": str(rank % local_size), "LOCAL_WORLD_SIZE": str(local_size)}
        seen[name] = train(case, rank)
    (Path(out_dir) / f"{rank}.json").write_text(json.dumps(seen))


def free_ports(number):
    """Ports nobody listens at, all different."""
    sockets = [socket.socket() for _ in range(number)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


if __name__ == "__main__":
    cases = json.loads(Path(sys.argv[1]).read_text())
    ports = free_ports(len(cases))
    fork = multiprocessing.get_context("fork")
    ranks = [fork.Process(target=run_rank, args=(rank, cases, ports, sys.argv[2])) for rank in range(WORLD_SIZE)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    sys.exit(max(abs(process.exitcode) for process in ranks))
