"""OpenVINO."""

import numpy as np
import openvino


def version():
    return openvino.__version__.split("-")[0]


def load(case, way, threads):
    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",  # otherwise bf16, where the CPU has instructions for it
    }
    core = openvino.Core()
    model = core.compile_model(core.read_model(case.model), "CPU", settings)
    request = model.create_infer_request()
    for name, value in np.load(case.feeds).items():
        request.set_tensor(name, openvino.Tensor(value))

    def call():
        request.infer()

    call()
    return np.array(request.get_output_tensor(0).data), call
