"""The operations of models.py in JAX. Inside, images are [batch, height, width, channels], which
XLA's convolutions want on CPUs; weights and inputs are laid out before the clock starts."""

import math

import jax
import jax.numpy as jnp
from jax import lax


class Ops:
    def __init__(self, loops=False):
        self.loops = loops  # an LSTM as a loop, or step after step

    def laid_out(self, name, value):
        value = jnp.asarray(value)
        if value.ndim == 4:
            return value.transpose(2, 3, 1, 0) if "filter" in name else value.transpose(0, 2, 3, 1)
        return value

    def channels(self, x):
        return x.shape[-1]

    def width(self, x):
        return x.shape[-1]

    def matmul(self, a, b):
        return a @ b

    def matmul_t(self, a, b):
        return a @ b.T

    def turned(self, x):
        return x.T

    def add(self, x, y):
        return x + y

    def mul(self, x, y):
        return x * y

    def affine(self, x, scale, shift):
        return x * scale + shift

    def relu(self, x):
        return jnp.maximum(x, 0)

    def sigmoid(self, x):
        return jax.nn.sigmoid(x)

    def tanh(self, x):
        return jnp.tanh(x)

    def gelu_tanh(self, x):
        return jax.nn.gelu(x, approximate=True)

    def gelu_erf(self, x):
        return jax.nn.gelu(x, approximate=False)

    def softmax(self, x):
        return jax.nn.softmax(x, -1)

    def layernorm(self, x, gain, bias):
        d = x - x.mean(-1, keepdims=True)
        return d * lax.rsqrt((d * d).mean(-1, keepdims=True) + 1e-5) * gain + bias

    def sum(self, x, axis):
        return x.sum(axis)

    def linear(self, x, w, b):
        return x @ w + b

    def conv(self, x, kernel, bias, stride, pad):
        y = lax.conv_general_dilated(
            x, kernel, (stride, stride), [(pad, pad)] * 2, dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return y if bias is None else y + bias

    def batch_norm(self, x, gain, bias):
        d = x - x.mean((0, 1, 2), keepdims=True)
        variance = (d * d).mean((0, 1, 2), keepdims=True)
        return d * lax.rsqrt(variance + 1e-5) * gain + bias

    def max_pool(self, x, size, stride, pad):
        window, steps = (1, size, size, 1), (1, stride, stride, 1)
        padding = ((0, 0), (pad, pad), (pad, pad), (0, 0))
        return lax.reduce_window(x, -jnp.inf, lax.max, window, steps, padding)

    def mean_pixels(self, x):
        return x.mean((1, 2))

    def flatten(self, x):
        return x.transpose(0, 3, 1, 2).reshape(x.shape[0], -1)

    def concat(self, xs):
        return jnp.concatenate(xs, -1)

    def split(self, x, parts):
        return jnp.split(x, parts, -1)

    def embed(self, table, ids):
        return table[ids]

    def embed_steps(self, table, ids):
        return [table[ids[:, step]] for step in range(ids.shape[1])]

    def pick(self, x, ids):
        return x[ids]

    def first(self, table, count):
        return table[:count]

    def rows(self, x):
        return x.reshape(-1, x.shape[-1])

    def flat(self, x):
        return x.reshape(-1)

    def stack_rows(self, hs):
        return jnp.stack(hs, 1).reshape(-1, hs[0].shape[-1])

    def dot_rows(self, a, b):
        return (a * b).sum(-1)

    def lstm_loop(self, weights, ids):
        h = weights["table"][ids.T]  # [steps, batch, width]
        for layer in range(2):
            # What does not depend on the step before is one product for all steps.
            gates = h @ weights[f"wx{layer}"] + weights[f"b{layer}"]
            recurrent = weights[f"wh{layer}"]

            def cell(carried, gates, recurrent=recurrent):
                h, c = carried
                i, f, u, o = jnp.split(gates + h @ recurrent, 4, -1)
                c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(u)
                h = jax.nn.sigmoid(o) * jnp.tanh(c)
                return (h, c), h

            start = jnp.zeros(h.shape[1:], h.dtype)
            _, h = lax.scan(cell, (start, start), gates)
        return h.transpose(1, 0, 2).reshape(-1, h.shape[-1])

    def attention(self, q, k, v, heads, causal):
        batch, steps, width = q.shape
        q, k, v = (
            t.reshape(batch, steps, heads, width // heads).transpose(0, 2, 1, 3) for t in (q, k, v)
        )
        scores = q @ k.transpose(0, 1, 3, 2) * (1 / math.sqrt(width // heads))
        if causal:
            scores = jnp.where(jnp.tril(jnp.ones((steps, steps), bool)), scores, -1e9)
        y = jax.nn.softmax(scores, -1) @ v
        return y.transpose(0, 2, 1, 3).reshape(batch, steps, width)

    def xent(self, logits, labels):
        return -jnp.take_along_axis(jax.nn.log_softmax(logits, -1), labels[:, None], -1).mean()

    def xent_first(self, hit, miss):
        return -jax.nn.log_softmax(jnp.concatenate([hit[:, None], miss], 1), -1)[:, 0].mean()
