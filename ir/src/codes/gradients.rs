//! E03xx: gradients.

use super::{Code, graph, late};

pub const CODES: &[Code] = &[
    late(
        "E0301",
        "no gradient there",
        "An op on the only path from the result to what it is differentiated by has no derivative \
         (`argmax` gives an index, for instance). Use something smooth in its place, or \
         `stop_gradient` if none is meant to flow.",
    ),
    late(
        "E0302",
        "a gradient term that does not fit",
        "The text of a `vjp` node is not well-formed. People do not write these; passes do.",
    ),
    late(
        "E0303",
        "a value the result does not depend on",
        "There is no path from the result to what it is differentiated by, so its gradient would be zero. Most often a variable is missing in the model, or was written in between.",
    ),
    graph(
        "E0310",
        "a gradient with wrong parameters",
        "The gradient of a function gets the function's parameters by their names and two more: the \
         function's result and the gradient flowing into it.",
        "func sq(x) -> f32[3] {\n  return x * x\n} grad(x, ct) {\n  return 2 * x * ct\n}\nentry f(x: f32[3]) -> f32[3] {\n  return sq(x)\n}\n",
        "func sq(x) -> f32[3] {\n  return x * x\n} grad(x, out, ct) {\n  return 2 * x * ct\n}\nentry f(x: f32[3]) -> f32[3] {\n  return sq(x)\n}\n",
    ),
    graph(
        "E0311",
        "a function with its own gradient and several results",
        "Such a function has one result. Split it, or return one tensor that holds both.",
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
        "The gradient returns one tensor for each float parameter, in order, of the parameter's \
         type.",
        "func g(x, y) {\n  return x * y\n} grad(x, y, out, ct) {\n  return y * ct\n}\nentry f(x: f32[3]) -> f32[3] {\n  return g(x, x)\n}\n",
        "func g(x, y) {\n  return x * y\n} grad(x, y, out, ct) {\n  return y * ct, x * ct\n}\nentry f(x: f32[3]) -> f32[3] {\n  return g(x, x)\n}\n",
    ),
    graph(
        "E0314",
        "a gradient by nothing",
        "`wrt` names what to differentiate by.",
        "entry f(x: f32[3]) -> f32[3] {\n  return grad(sum(x * x), wrt: [])\n}\n",
        "entry f(x: f32[3]) -> f32[3] {\n  return grad(sum(x * x), wrt: [x])\n}\n",
    ),
    graph(
        "E0315",
        "a gradient by integers",
        "Only floats have gradients.",
        "entry f(x: f32[3], i: i32[3]) -> i32[3] {\n  return grad(sum(x * x), wrt: i)\n}\n",
        "entry f(x: f32[3], i: i32[3]) -> f32[3] {\n  return grad(sum(x * x), wrt: x)\n}\n",
    ),
    graph(
        "E0316",
        "a stack of two types",
        "What is put on a stack and taken off it has one type. A stack is named by the attribute \
         `stack` of `stack_push` and `stack_pop`.",
        "entry f(x: f32[3]) -> f32[2] {\n  stack_push(x, stack: \"s\")\n  return stack_pop(stack: \"s\", shape: [2], dtype: f32)\n}\n",
        "entry f(x: f32[3]) -> f32[3] {\n  stack_push(x, stack: \"s\")\n  return stack_pop(stack: \"s\", shape: [3], dtype: f32)\n}\n",
    ),
    graph(
        "E0330",
        "the gradient of something that is not a scalar",
        "How much each element counts must be known: reduce first, or give the gradient that flows \
         in with `ct:`.",
        "entry f(x: f32[3]) -> f32[3] {\n  return grad(x * x, wrt: x)\n}\n",
        "entry f(x: f32[3]) -> f32[3] {\n  return grad(sum(x * x), wrt: x)\n}\n",
    ),
    graph(
        "E0331",
        "a gradient flowing in that does not fit",
        "What flows into a tensor has the tensor's type.",
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
        "The block `backward` yields one gradient for each float operand, of the operand's type.",
    ),
    late(
        "E0334",
        "no gradients to check",
        "`tfc gradcheck` compares the gradients a graph takes, by `grad` or `minimize`, with finite \
         differences. This graph, or the entry that was named, takes none.",
    ),
];
