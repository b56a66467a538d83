//! E03xx: gradients.

use super::{Code, graph, late};

pub const CODES: &[Code] = &[
    late(
        "E0301",
        "no gradient there",
        "An op on the only path between the result and what you differentiate by has no \
         derivative (`argmax`, for instance, gives an index). Use something smooth instead, or \
         `stop_gradient` if no gradient should flow.",
    ),
    late(
        "E0302",
        "a gradient term that does not fit",
        "The text of a `vjp` node is not well-formed. Passes write these nodes; people do not.",
    ),
    late(
        "E0303",
        "a value the result does not depend on",
        "There is no path between the result and what you differentiate by, so its gradient would \
         be zero. Usually the model does not use the variable, or the variable was written in \
         between.",
    ),
    graph(
        "E0310",
        "a gradient with wrong parameters",
        "The gradient of a function takes the function's parameters by their names, then two \
         more: the function's result and the gradient flowing into it.",
        "func sq(x) -> f32[3] {\n  return x * x\n} grad(x, ct) {\n  return 2 * x * ct\n}\nentry f(x: f32[3]) -> f32[3] {\n  return sq(x)\n}\n",
        "func sq(x) -> f32[3] {\n  return x * x\n} grad(x, out, ct) {\n  return 2 * x * ct\n}\nentry f(x: f32[3]) -> f32[3] {\n  return sq(x)\n}\n",
    ),
    graph(
        "E0311",
        "a function with its own gradient and several results",
        "Such a function may have only one result. Split it, or return one tensor that holds both.",
        "func two(x) {\n  return x, x\n} grad(x, out, ct) {\n  return ct\n}\nentry f(x: f32[3]) -> f32[3] {\n  (a, b) = two(x)\n  return a\n}\n",
        "func one(x) {\n  return x\n} grad(x, out, ct) {\n  return ct\n}\nentry f(x: f32[3]) -> f32[3] {\n  return one(x)\n}\n",
    ),
    graph(
        "E0312",
        "a function with its own gradient that writes",
        "It may run more or less often than it is called, so it cannot write variables.",
        "var n: f32[] = zeros\nfunc g(x) {\n  n += 1.0\n  return x\n} grad(x, out, ct) {\n  return ct\n}\nentry f(x: f32[3]) -> f32[3] {\n  return g(x)\n}\n",
        "var n: f32[] = zeros\nfunc g(x) {\n  return x\n} grad(x, out, ct) {\n  return ct\n}\nentry f(x: f32[3]) -> f32[3] {\n  n += 1.0\n  return g(x)\n}\n",
    ),
    graph(
        "E0313",
        "gradients that do not match the parameters",
        "The gradient must return one tensor for each float parameter, in order, with the \
         parameter's type.",
        "func g(x, y) {\n  return x * y\n} grad(x, y, out, ct) {\n  return y * ct\n}\nentry f(x: f32[3]) -> f32[3] {\n  return g(x, x)\n}\n",
        "func g(x, y) {\n  return x * y\n} grad(x, y, out, ct) {\n  return y * ct, x * ct\n}\nentry f(x: f32[3]) -> f32[3] {\n  return g(x, x)\n}\n",
    ),
    graph(
        "E0314",
        "a gradient with an empty `wrt`",
        "`wrt` must name what to differentiate by.",
        "entry f(x: f32[3]) -> f32[3] {\n  return grad(sum(x * x), wrt: [])\n}\n",
        "entry f(x: f32[3]) -> f32[3] {\n  return grad(sum(x * x), wrt: [x])\n}\n",
    ),
    graph(
        "E0315",
        "a gradient with respect to integers",
        "Only floats have gradients.",
        "entry f(x: f32[3], i: i32[3]) -> i32[3] {\n  return grad(sum(x * x), wrt: i)\n}\n",
        "entry f(x: f32[3], i: i32[3]) -> f32[3] {\n  return grad(sum(x * x), wrt: x)\n}\n",
    ),
    graph(
        "E0316",
        "a stack of two types",
        "Everything pushed on a stack and popped from it must have one type. The attribute \
         `stack` of `stack_push` and `stack_pop` names the stack.",
        "entry f(x: f32[3]) -> f32[2] {\n  stack_push(x, stack: \"s\")\n  return stack_pop(stack: \"s\", shape: [2], dtype: f32)\n}\n",
        "entry f(x: f32[3]) -> f32[3] {\n  stack_push(x, stack: \"s\")\n  return stack_pop(stack: \"s\", shape: [3], dtype: f32)\n}\n",
    ),
    graph(
        "E0330",
        "the gradient of something that is not a scalar",
        "tfc must know how much each element counts: reduce first, or give the gradient that \
         flows in with `ct:`.",
        "entry f(x: f32[3]) -> f32[3] {\n  return grad(x * x, wrt: x)\n}\n",
        "entry f(x: f32[3]) -> f32[3] {\n  return grad(sum(x * x), wrt: x)\n}\n",
    ),
    graph(
        "E0331",
        "a gradient flowing in that does not fit",
        "The gradient flowing into a tensor must have the tensor's type.",
        "entry f(x: f32[3]) -> f32[3] {\n  return grad(x * x, wrt: x, ct: f32[2](1))\n}\n",
        "entry f(x: f32[3]) -> f32[3] {\n  return grad(x * x, wrt: x, ct: f32[3](1))\n}\n",
    ),
    late(
        "E0332",
        "the blocks of `custom_grad`",
        "The printed form of a function with its own gradient has the blocks `forward`, with one result, and `backward`.",
    ),
    late(
        "E0333",
        "the gradients of `custom_grad`",
        "The block `backward` must yield one gradient for each float operand, with the operand's \
         type.",
    ),
    late(
        "E0334",
        "no gradients to check",
        "`tfc gradcheck` compares the gradients a graph takes, with `grad` or `minimize`, with \
         finite differences. This graph, or the entry you named, takes none.",
    ),
];
