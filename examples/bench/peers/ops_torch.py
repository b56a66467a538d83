"""The operations of models.py in PyTorch."""

import torch
import torch.nn.functional as F


class Ops:
    loops = False  # a loop in Python is unrolled by PyTorch anyway

    def channels(self, x):
        return x.shape[1]

    def width(self, x):
        return x.shape[-1]

    def matmul(self, a, b):
        return a @ b

    def matmul_t(self, a, b):
        return a @ b.T

    def turned(self, x):
        return x.t().contiguous()

    def add(self, x, y):
        return x + y

    def mul(self, x, y):
        return x * y

    def affine(self, x, scale, shift):
        return x * scale + shift

    def relu(self, x):
        return torch.relu(x)

    def sigmoid(self, x):
        return torch.sigmoid(x)

    def tanh(self, x):
        return torch.tanh(x)

    def gelu_tanh(self, x):
        return F.gelu(x, approximate="tanh")

    def gelu_erf(self, x):
        return F.gelu(x)

    def softmax(self, x):
        return torch.softmax(x, -1)

    def layernorm(self, x, gain, bias):
        return F.layer_norm(x, gain.shape, gain, bias, 1e-5)

    def sum(self, x, axis):
        return x.sum(axis)

    def linear(self, x, w, b):
        return torch.addmm(b, x, w) if x.dim() == 2 else x @ w + b

    def conv(self, x, kernel, bias, stride, pad):
        return F.conv2d(x, kernel, bias, stride, pad)

    def batch_norm(self, x, gain, bias):
        return F.batch_norm(x, None, None, gain, bias, True, 0.1, 1e-5)

    def max_pool(self, x, size, stride, pad):
        return F.max_pool2d(x, size, stride, pad)

    def mean_pixels(self, x):
        return x.mean((2, 3))

    def flatten(self, x):
        return x.flatten(1)

    def concat(self, xs):
        return torch.cat(xs, 1)

    def split(self, x, parts):
        return torch.chunk(x, parts, -1)

    def embed(self, table, ids):
        return F.embedding(ids, table)

    def embed_steps(self, table, ids):
        return list(F.embedding(ids, table).unbind(1))

    def pick(self, x, ids):
        return x[ids]

    def first(self, table, count):
        return table[:count]

    def rows(self, x):
        return x.reshape(-1, x.shape[-1])

    def flat(self, x):
        return x.reshape(-1)

    def stack_rows(self, hs):
        return torch.stack(hs, 1).reshape(-1, hs[0].shape[-1])

    def dot_rows(self, a, b):
        return (a * b).sum(-1)

    def attention(self, q, k, v, heads, causal):
        batch, steps, width = q.shape
        q, k, v = (t.view(batch, steps, heads, width // heads).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return y.transpose(1, 2).reshape(batch, steps, width)

    def xent(self, logits, labels):
        return F.cross_entropy(logits, labels)

    def xent_first(self, hit, miss):
        return (torch.logsumexp(torch.cat([hit[:, None], miss], 1), 1) - hit).mean()
