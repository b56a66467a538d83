"""What a step of training gives, by PyTorch in double precision: the losses of two steps, and the
weights after the first. Started by measure.py: expected_step.py OUT WORKLOAD"""

import sys

import numpy as np
import torch

import models
from cases import Case
from ops_torch import Ops
from workloads import ADAM, BY_NAME, rate


def tensor(value):
    return torch.from_numpy(value).long() if value.dtype == np.int32 else torch.from_numpy(value).double()


def main(out, name):
    workload = BY_NAME[name]
    weights, inputs = models.data(workload)
    weights = {k: tensor(v).requires_grad_() for k, v in weights.items()}
    inputs = {k: tensor(v) for k, v in inputs.items()}
    loss = models.result(workload, Ops(), weights, inputs)
    loss.backward()
    with torch.no_grad():
        new = {k: v - update(workload, v.grad) for k, v in weights.items()}
        second = models.result(workload, Ops(), new, inputs)
    losses = np.array([loss.item(), second.item()])
    new = {f"new.{k}": v.float().numpy() for k, v in new.items()}
    np.savez(Case(out, workload).expected, losses=losses, **new)


def update(workload, gradient):
    if workload.kind == "sgd":
        return rate(workload) * gradient
    # The first step of Adam: both of its means are those of one gradient.
    return ADAM["lr"] * gradient / (gradient.abs() + ADAM["eps"])


main(*sys.argv[1:])
