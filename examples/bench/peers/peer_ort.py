"""ONNX Runtime."""

import numpy as np
import onnxruntime


def version():
    return onnxruntime.__version__


def load(case, way, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = onnxruntime.InferenceSession(
        case.model, options, providers=["CPUExecutionProvider"]
    )
    # Bound inputs and outputs: a call copies and allocates nothing of its own.
    binding = session.io_binding()
    for name, value in np.load(case.feeds).items():
        binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(value))
    binding.bind_output(session.get_outputs()[0].name, "cpu")

    def call():
        session.run_with_iobinding(binding)

    call()
    return binding.copy_outputs_to_cpu()[0], call
