"""IREE for CPUs: light models by its importer of ONNX, the others as StableHLO that JAX writes."""

import importlib.metadata
import os
import subprocess
import sys

import iree.runtime as runtime
import jax
import numpy as np

import peer_jax


def version():
    return importlib.metadata.version("iree-base-compiler")


def load(case, way, threads):
    source = case.path("iree.mlir")
    if case.workload.kind == "light":
        tool("iree-import-onnx", case.model, "--opset-version", "17", "-o", source)
        state, inputs, kind = [], list(np.load(case.feeds).values()), "onnx"
    else:
        state, inputs = write_stablehlo(case.workload, source)
        kind = "stablehlo"
    function, device = compile_and_load(source, kind, case.path("iree.vmfb"), threads)
    state = [runtime.asdevicearray(device, v) for v in state]
    inputs = [runtime.asdevicearray(device, v) for v in inputs]
    if not case.workload.trains:
        result = function(*state, *inputs)
        return np.asarray(result.to_host()), lambda: function(*state, *inputs)

    def step():
        nonlocal state
        *state, loss = function(*state, *inputs)
        return loss

    return [np.asarray(step().to_host()), np.asarray(step().to_host())], step


def tool(name, *arguments):
    line = [os.path.join(os.path.dirname(sys.executable), name), *arguments]
    done = subprocess.run(line, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{name}: {done.stderr.strip()[:300]}")


def write_stablehlo(workload, path):
    """A function of one list of arrays: those of the state, then the inputs."""
    function, state, inputs = peer_jax.program(workload)
    leaves, tree = jax.tree.flatten((state, inputs))
    flat = jax.jit(lambda *leaves: function(*jax.tree.unflatten(tree, leaves)), keep_unused=True)
    with open(path, "w") as file:
        file.write(flat.lower(*leaves).as_text())
    leaves = [np.asarray(v) for v in leaves]
    count = len(jax.tree.leaves(state))
    return leaves[:count], leaves[count:]


def compile_and_load(source, kind, path, threads):
    tool(
        "iree-compile",
        source,
        "-o",
        path,
        f"--iree-input-type={kind}",
        "--iree-hal-target-device=local",
        "--iree-hal-local-target-device-backends=llvm-cpu",
        "--iree-llvmcpu-target-cpu=host",
        "--iree-opt-level=O3",
        # Not part of O3, and worth 2.7 times on gemm_1024:
        "--iree-dispatch-creation-data-tiling",
        "--iree-llvmcpu-enable-ukernels=all",
        # Without it the transformer is refused, whose kernels want more stack than allowed:
        "--iree-llvmcpu-fail-on-out-of-bounds-stack-allocation=false",
    )
    if threads == 1:
        config = runtime.Config("local-sync")
    else:
        runtime.flags.parse_flags(
            f"--task_topology_group_count={threads}",
            "--task_worker_stack_size=8388608",  # for the same kernels
        )
        config = runtime.Config("local-task")
    context = runtime.SystemContext(config=config)
    module = runtime.VmModule.mmap(config.vm_instance, path)
    context.add_vm_module(module)
    names = [n for n in module.function_names if not n.startswith("__") and "$async" not in n]
    return context.modules[module.name][names[0]], config.device
