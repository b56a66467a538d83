"""PyTorch: as it is (`torch`), or compiled by `torch.compile` (`torchc`); with pictures laid out
[batch, channels, height, width], or with the channels last."""

import numpy as np
import torch

import models
from ops_torch import Ops
from workloads import ADAM, rate


def version():
    return torch.__version__.split("+")[0]


def load(case, way, threads):
    torch.set_num_threads(threads)
    workload = case.workload
    channels_last = way.endswith("channels-last")

    def tensor(value):
        t = torch.from_numpy(value)
        t = t.long() if t.dtype == torch.int32 else t
        return t.contiguous(memory_format=torch.channels_last) if channels_last and t.dim() == 4 else t

    weights, inputs = models.data(workload)
    weights = {k: tensor(v).requires_grad_(workload.trains) for k, v in weights.items()}
    inputs = {k: tensor(v) for k, v in inputs.items()}

    def forward(weights, inputs):
        return models.result(workload, Ops(), weights, inputs)

    if way.startswith("torchc"):
        forward = torch.compile(forward, dynamic=False)

    if not workload.trains:

        def call():
            with torch.inference_mode():
                return forward(weights, inputs)

        return call().numpy(), call

    parameters = list(weights.values())
    if workload.kind == "sgd":
        optimizer = torch.optim.SGD(parameters, rate(workload), fused=True)
    else:
        betas = ADAM["beta1"], ADAM["beta2"]
        optimizer = torch.optim.Adam(parameters, ADAM["lr"], betas, ADAM["eps"], fused=True)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = forward(weights, inputs)
        loss.backward()
        optimizer.step()
        return loss

    return [np.float64(step().item()), np.float64(step().item())], step
