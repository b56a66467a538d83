"""Where the files of a workload are, and how results are compared."""

import os

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))

# The largest error of a result that counts, relative to the largest number that is right. Single
# precision is far below; a program that computes with 16 bits is far above.
LIMIT = 1e-3

# How far the loss after a step of training may be off, relative to what the step changes it by: in
# a deep network, rounding decides which side of zero some activations fall on. The same is the
# limit for the change of each weight, as a vector.
STEP_LIMIT = 0.05


class Case:
    """The files of a workload in the output folder."""

    def __init__(self, out, workload):
        self.workload = workload
        self.folder = os.path.join(out, workload.name)
        os.makedirs(self.folder, exist_ok=True)

    def path(self, name):
        return os.path.join(self.folder, name)

    @property
    def model(self):
        """The model in ONNX, of workloads that are only run."""
        return self.path("model.onnx")

    @property
    def feeds(self):
        """What that model is fed, by name."""
        return self.path("feeds.npz")

    @property
    def expected(self):
        """What is right: `result`; of training, the `losses` of two steps and the weights after
        the first, `new.<weight>`."""
        return self.path("expected.npz")

    def error(self, result):
        """How far a result is from what is right. Of training, the result are the losses of two
        steps: the first is compared as a result is, the second says whether the step was right."""
        expected = np.load(self.expected)
        if not self.workload.trains:
            return error(result, expected["result"])
        (before, after), right = np.asarray(result, np.float64), expected["losses"]
        if not abs(after - right[1]) <= STEP_LIMIT * abs(right[1] - right[0]) + 1e-5:
            raise ValueError(f"a step makes the loss {after:.6f} where {right[1]:.6f} is right")
        return error(before, right[0])


def error(result, expected):
    """The largest difference, relative to the largest number expected."""
    result, expected = np.asarray(result, np.float64), np.asarray(expected, np.float64)
    if result.size != expected.size:
        raise ValueError(f"a result of shape {result.shape} where {expected.shape} is right")
    return float(np.abs(result.reshape(expected.shape) - expected).max() / np.abs(expected).max())


def is_fresh(path, *sources):
    """Whether a file is newer than the sources (of this folder) it is made by."""
    if not os.path.exists(path):
        return False
    made = os.path.getmtime(path)
    return all(os.path.getmtime(os.path.join(HERE, source)) < made for source in sources)
