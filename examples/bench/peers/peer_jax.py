"""JAX, compiled by XLA. Weights are arguments of the compiled function; a step of training is given
them to change (donated)."""

import jax
import jax.numpy as jnp
import numpy as np

import models
from ops_jax import Ops
from workloads import ADAM, rate


def version():
    return jax.__version__


def load(case, way, threads):
    function, state, inputs = program(case.workload, way == "jax-loop")
    if not case.workload.trains:
        compiled = jax.jit(function).lower(state, inputs).compile()
        return np.asarray(compiled(state, inputs)), lambda: compiled(state, inputs).block_until_ready()
    compiled = jax.jit(function, donate_argnums=0).lower(state, inputs).compile()

    def step():
        nonlocal state
        state, loss = compiled(state, inputs)
        jax.block_until_ready(state)
        return loss

    return [np.asarray(step()), np.asarray(step())], step


def program(workload, loops=False):
    """A function of a state and inputs, which gives the result, or a new state and the loss; and
    what it is called with first."""
    ops = Ops(loops)
    weights, inputs = models.data(workload)
    weights = {k: ops.laid_out(k, v) for k, v in weights.items()}
    inputs = {k: ops.laid_out(k, v) for k, v in inputs.items()}

    def forward(weights, inputs):
        return models.result(workload, ops, weights, inputs)

    if not workload.trains:
        return forward, weights, inputs
    gradient = jax.value_and_grad(forward)

    def sgd(weights, inputs):
        loss, grads = gradient(weights, inputs)
        return jax.tree.map(lambda w, g: w - rate(workload) * g, weights, grads), loss

    if workload.kind == "sgd":
        return sgd, weights, inputs

    def adam(state, inputs):
        weights, means, squares, step = state
        lr, b1, b2, eps = ADAM["lr"], ADAM["beta1"], ADAM["beta2"], ADAM["eps"]
        loss, grads = gradient(weights, inputs)
        step = step + 1
        means = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, means, grads)
        squares = jax.tree.map(lambda s, g: b2 * s + (1 - b2) * g * g, squares, grads)
        c1, c2 = 1 - b1**step, 1 - b2**step
        weights = jax.tree.map(
            lambda w, m, s: w - lr * (m / c1) / (jnp.sqrt(s / c2) + eps), weights, means, squares
        )
        return (weights, means, squares, step), loss

    def zeros():
        return jax.tree.map(jnp.zeros_like, weights)

    return adam, (weights, zeros(), zeros(), jnp.zeros((), jnp.float32)), inputs
