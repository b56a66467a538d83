"""What inference does, in NumPy and double precision: what all results are compared with."""

import math

import numpy as np

_erf = np.vectorize(math.erf, otypes=[np.float64])


class Ops:
    def matmul(self, a, b):
        return a @ b

    def turned(self, x):
        return x.T

    def add(self, x, y):
        return x + y

    def mul(self, x, y):
        return x * y

    def affine(self, x, scale, shift):
        return x * scale + shift

    def relu(self, x):
        return np.maximum(x, 0)

    def sigmoid(self, x):
        return 1 / (1 + np.exp(-x))

    def gelu_tanh(self, x):
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))

    def gelu_erf(self, x):
        return 0.5 * x * (1 + _erf(x / math.sqrt(2)))

    def softmax(self, x):
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    def layernorm(self, x, gain, bias):
        d = x - x.mean(-1, keepdims=True)
        return d / np.sqrt((d * d).mean(-1, keepdims=True) + 1e-5) * gain + bias

    def sum(self, x, axis):
        return x.sum(axis)

    def linear(self, x, w, b):
        return x @ w + b

    def embed(self, table, ids):
        return table[ids]

    def first(self, table, count):
        return table[:count]

    def attention(self, q, k, v, heads, causal):
        assert not causal, "no model that is only run masks its attention"
        batch, steps, width = q.shape
        q, k, v = (
            t.reshape(batch, steps, heads, width // heads).transpose(0, 2, 1, 3) for t in (q, k, v)
        )
        scores = q @ k.transpose(0, 1, 3, 2) / math.sqrt(width // heads)
        return (self.softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(batch, steps, width)
