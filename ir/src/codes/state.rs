//! E04xx: state, effects, control flow.

use super::{Code, command, graph, late};

pub const CODES: &[Code] = &[
    graph(
        "E0401",
        "an initialiser that needs a call",
        "Initialisers run once, when the program starts, before any entry is called: what is fed or \
         computed in a call is not there.",
        "model g(x: f32[3]) -> f32[3] {\n  var m: f32[3] = x\n  return m\n}\nentry f(x: f32[3]) -> f32[3] {\n  return g(x)\n}\n",
        "model g(x: f32[3]) -> f32[3] {\n  var m: f32[3] = zeros\n  assign(m, x)\n  return m\n}\nentry f(x: f32[3]) -> f32[3] {\n  return g(x)\n}\n",
    ),
    graph(
        "E0402",
        "not a variable",
        "Only variables, declared with `var`, can be written. Everything else has one value.",
        "entry f(x: f32[3]) {\n  assign(x, x + 1)\n}\n",
        "var w: f32[3] = zeros\nentry f(x: f32[3]) {\n  assign(w, x + 1)\n}\n",
    ),
    graph(
        "E0403",
        "a variable without a fixed shape",
        "A variable outlives the calls, and they may differ in the sizes known only at run time.",
        "dim B\nvar w: f32[B] = zeros\nentry f(x: f32[B]) -> f32[B] {\n  return x + w\n}\n",
        "dim B\nvar w: f32[1] = zeros\nentry f(x: f32[B]) -> f32[B] {\n  return x + w\n}\n",
    ),
    graph(
        "E0404",
        "an initial value of another type",
        "The initial value has the variable's element type and shape, or is one number for all.",
        "var w: f32[3] = [1, 2]\nentry f() -> f32[3] {\n  return w\n}\n",
        "var w: f32[3] = [1, 2, 3]\nentry f() -> f32[3] {\n  return w\n}\n",
    ),
    graph(
        "E0405",
        "a variable without an initial value",
        "Nothing is left undefined: say `= zeros` if that is meant.",
        "var w: f32[3]\nentry f() -> f32[3] {\n  return w\n}\n",
        "var w: f32[3] = zeros\nentry f() -> f32[3] {\n  return w\n}\n",
    ),
    graph(
        "E0406",
        "a variable read before it has a value",
        "Initialisers run in the order of the text.",
        "var a: f32[3] = b + 1\nvar b: f32[3] = zeros\nentry f() -> f32[3] {\n  return a\n}\n",
        "var b: f32[3] = zeros\nvar a: f32[3] = b + 1\nentry f() -> f32[3] {\n  return a\n}\n",
    ),
    graph(
        "E0407",
        "`=` on a variable",
        "`=` gives a value a name. Writing a variable is `assign(w, x)`, `w += x` or `w -= x`.",
        "var w: f32[3] = zeros\nentry f(x: f32[3]) {\n  w = x\n}\n",
        "var w: f32[3] = zeros\nentry f(x: f32[3]) {\n  assign(w, x)\n}\n",
    ),
    graph(
        "E0408",
        "`after` without effects",
        "`after` orders effects (reads, writes, `print`, `assert`) of one block. Pure values have no \
         moment at which they happen.",
        "entry f(x: f32[3]) -> f32[3] {\n  y = x + 1\n  print(x) after(y)\n  return y\n}\n",
        "entry f(x: f32[3]) -> f32[3] {\n  p = print(x + 1)\n  print(x) after(p)\n  return x\n}\n",
    ),
    graph(
        "E0409",
        "a variable trained twice",
        "The list after `over` names each variable once.",
        "use optim\nvar w: f32[3] = zeros\nentry f(x: f32[3]) {\n  minimize sum(w * x) over [w, w] with optim.sgd(lr: 0.1)\n}\n",
        "use optim\nvar w: f32[3] = zeros\nentry f(x: f32[3]) {\n  minimize sum(w * x) over [w] with optim.sgd(lr: 0.1)\n}\n",
    ),
    graph(
        "E0410",
        "a variable that cannot be trained",
        "Gradients need floats.",
        "use optim\nvar n: i32[] = zeros\nentry f(x: f32[3]) {\n  minimize sum(x) over [n] with optim.sgd(lr: 0.1)\n}\n",
        "use optim\nvar n: f32[] = zeros\nentry f(x: f32[3]) {\n  minimize sum(n * x) over [n] with optim.sgd(lr: 0.1)\n}\n",
    ),
    graph(
        "E0411",
        "nothing to train",
        "`minimize` changes the variables it is given.",
        "use optim\nvar w: f32[3] = zeros\nentry f(x: f32[3]) {\n  minimize sum(w * x) over [] with optim.sgd(lr: 0.1)\n}\n",
        "use optim\nvar w: f32[3] = zeros\nentry f(x: f32[3]) {\n  minimize sum(w * x) over [w] with optim.sgd(lr: 0.1)\n}\n",
    ),
    graph(
        "E0412",
        "one variable, two types",
        "A model has one set of weights, so all its calls must agree on the shapes of the weights. \
         A layer that is called with other shapes is another layer: declare a model of it for each.",
        "layer g(x: f32[N]) -> f32[N] {\n  var m: f32[N] = zeros\n  m += x\n  return m\n}\nmodel a = g()\nentry f(x: f32[3]) -> f32[3] {\n  return a(x)\n}\nentry h(x: f32[4]) -> f32[4] {\n  return a(x)\n}\n",
        "layer g(x: f32[N]) -> f32[N] {\n  var m: f32[N] = zeros\n  m += x\n  return m\n}\nmodel a = g()\nmodel b = g()\nentry f(x: f32[3]) -> f32[3] {\n  return a(x)\n}\nentry h(x: f32[4]) -> f32[4] {\n  return b(x)\n}\n",
    ),
    graph(
        "E0413",
        "not a device",
        "A device is named by up to three parts, in this order: `/job:NAME`, `/task:N`, and `/cpu:N` \
         or `/gpu:N`.",
        "entry f(x: f32[3]) -> f32[3] {\n  y = x + 1 on \"cpu0\"\n  return y\n}\n",
        "entry f(x: f32[3]) -> f32[3] {\n  y = x + 1 on \"/cpu:0\"\n  return y\n}\n",
    ),
    graph(
        "E0414",
        "not an optimizer",
        "An optimizer is a function whose first parameter is a variable and whose second is its \
         gradient; the others are given after `with`.",
        "use nn\nvar w: f32[3] = zeros\nentry f(x: f32[3]) {\n  minimize sum(w * x) over [w] with nn.softmax()\n}\n",
        "use optim\nvar w: f32[3] = zeros\nentry f(x: f32[3]) {\n  minimize sum(w * x) over [w] with optim.sgd(lr: 0.1)\n}\n",
    ),
    command(
        "E0415",
        "a device the program does not have",
        "`on` says where a variable, a queue or a node lives: on the CPU of the process, \
         `/cpu:0`, or on a GPU, `/gpu:0` and so on. Whether there is such a GPU is known when the \
         program runs. A placement anywhere else, or of a queue on a GPU, would have to be ignored, \
         so it is an error when the graph is compiled. `tfc check` and `tfc opt` take any \
         placement, and every pass keeps it.",
        "entry f(x: f32[3]) -> (y: f32[3]) {\n  on \"/cpu:0\" {\n    y = x + 1.0\n  }\n  return y\n}\n",
        "sed 's/cpu:0/cpu:3/' m.graph > n.graph; tfc run n.graph f --feed x=[1,2,3]",
        "tfc run m.graph f --feed x=[1,2,3]",
    ),
    command(
        "E0416",
        "a placement that cannot be",
        "`on` always wins, so two of them that cannot both be true are an error: a variable and \
         what writes it are on one task, what a loop or a branch does is on one task, and a task \
         that `on` names must be in the cluster.",
        "var w: f32[2] = zeros on \"/job:ps/task:0\"\nentry f(x: f32[2]) {\n  assign(w, x) on \"/job:ps\"\n}\n",
        "printf '[job.ps]\\ntasks = [\"a:1\", \"b:1\"]\\n' > c.toml; \
         sed 's@\"/job:ps\"@\"/job:ps/task:1\"@' m.graph > n.graph; \
         tfc opt n.graph --passes place --cluster c.toml",
        "printf '[job.ps]\\ntasks = [\"a:1\", \"b:1\"]\\n' > c.toml; \
         tfc opt m.graph --passes place --cluster c.toml",
    ),
    command(
        "E0417",
        "a loop or a branch on two tasks",
        "All of a `while` or an `if` runs on one task: what it is given is sent there before it, \
         and its results from there. A `while` on two tasks would have to send its condition in \
         every iteration.",
        "entry f(x: f32[2]) -> (y: f32[2]) {\n  (_i, y) = while (i = 0, y = x) i < 3 {\n    \
         z = exp(y) on \"/job:a/task:0\"\n    w = cos(z) on \"/job:a\"\n    \
         yield i + 1, w\n  }\n  return y\n}\n",
        "printf '[job.a]\\ntasks = [\"a:1\", \"b:1\"]\\n' > c.toml; \
         sed 's@\"/job:a\"@\"/job:a/task:1\"@' m.graph > n.graph; \
         tfc opt n.graph --passes place --cluster c.toml",
        "printf '[job.a]\\ntasks = [\"a:1\", \"b:1\"]\\n' > c.toml; \
         tfc opt m.graph --passes place --cluster c.toml",
    ),
    graph(
        "E0418",
        "a message outside of the part of a task",
        "`send` and `recv` are what the compiler joins the parts of a graph with when it cuts it \
         for a cluster. They mean something only in such a part, an entry that is on a task.",
        "entry f(x: f32[2]) {\n  send(x, to: \"/job:a/task:1\")\n}\n",
        "entry f(x: f32[2]) on \"/job:a/task:0\" {\n  send(x, to: \"/job:a/task:0\")\n}\n",
    ),
    command(
        "E0419",
        "a cluster file that makes no sense",
        "A cluster file is a small TOML: for each job a table with the addresses of its tasks, and \
         the devices of each if it has more than a CPU. The first task of the first job is the \
         chief.\n\n    [job.ps]\n    tasks = [\"10.0.0.1:7000\", \"10.0.0.2:7000\"]\n\n    \
         [job.worker]\n    tasks = [\"10.0.0.3:7000\"]\n    devices = [\"cpu:0\", \"gpu:0\"]",
        "entry f(x: f32[2]) -> (y: f32[2]) {\n  y = exp(x)\n  return y\n}\n",
        "printf '[job.a]\\n' > c.toml; tfc opt m.graph --passes place --cluster c.toml",
        "printf '[job.a]\\ntasks = [\"a:1\"]\\n' > c.toml; \
         tfc opt m.graph --passes place --cluster c.toml",
    ),
    late(
        "E0430",
        "an op on a variable without one",
        "The op reads or writes a variable and is not given one.",
    ),
    graph(
        "E0431",
        "a value that does not fit the variable",
        "What is written has the variable's type. A smaller value is repeated; a larger one must be \
         reduced first, above all along axes of run-time size.",
        "dim B\nvar w: f32[3] = zeros\nentry f(x: f32[B, 3]) {\n  assign(w, x)\n}\n",
        "dim B\nvar w: f32[3] = zeros\nentry f(x: f32[B, 3]) {\n  assign(w, mean(x, axis: 0))\n}\n",
    ),
    graph(
        "E0432",
        "adding to a variable of truth values",
        "A variable that is added to holds numbers.",
        "var done: bool[] = false\nentry f(x: i32[]) {\n  done += x\n}\n",
        "var count: i32[] = 0\nentry f(x: i32[]) {\n  count += x\n}\n",
    ),
    graph(
        "E0433",
        "branches that differ",
        "Both branches of an `if` yield the same number of values of the same types, since either \
         may be what the rest gets.",
        "entry f(x: f32[3], c: bool[]) -> f32[3] {\n  y = if c { yield x } else { yield sum(x) }\n  return y\n}\n",
        "entry f(x: f32[3], c: bool[]) -> f32[3] {\n  y = if c { yield x } else { yield -x }\n  return y\n}\n",
    ),
    graph(
        "E0434",
        "a condition that is not one truth value",
        "The condition of a `while` is one `bool[]`.",
        "entry f(x: f32[3]) -> f32[3] {\n  y = while (a = x) a < 9 { yield a + 1 }\n  return y\n}\n",
        "entry f(x: f32[3]) -> f32[3] {\n  y = while (a = x) any(a < 9) { yield a + 1 }\n  return y\n}\n",
    ),
    graph(
        "E0435",
        "a carried value that changes its type",
        "What a `while` carries keeps its number, types and shapes in every iteration.",
        "entry f(x: f32[3]) -> f32[3] {\n  y = while (a = x) any(a < 9) { yield sum(a) }\n  return y\n}\n",
        "entry f(x: f32[3]) -> f32[3] {\n  y = while (a = x) any(a < 9) { yield a + sum(a) }\n  return y\n}\n",
    ),
    graph(
        "E0440",
        "not a queue",
        "`enqueue`, `dequeue` and their like work on what is declared with `queue` or `reader`.",
        "var w: f32[3] = zeros\nentry f(x: f32[3]) {\n  enqueue(w, x)\n}\n",
        "queue q: fifo(f32[3], capacity: 8)\nentry f(x: f32[3]) {\n  enqueue(q, x)\n}\n",
    ),
    graph(
        "E0441",
        "a queue used as a value",
        "A queue holds elements but is not one: they are taken out by `dequeue` and \
         `dequeue_many`.",
        "queue q: fifo(f32[3], capacity: 8)\nentry f() -> f32[3] {\n  return q * 2\n}\n",
        "queue q: fifo(f32[3], capacity: 8)\nentry f() -> f32[3] {\n  return dequeue(q) * 2\n}\n",
    ),
    graph(
        "E0442",
        "no such kind of queue or reader",
        "Queues are `fifo`, `shuffle` or `priority`; readers `npy`, `npz`, `csv`, `idx`, `tfrecord` \
         or `files`.",
        "queue q: lifo(f32[3], capacity: 8)\nentry f() -> f32[3] {\n  return dequeue(q)\n}\n",
        "queue q: fifo(f32[3], capacity: 8)\nentry f() -> f32[3] {\n  return dequeue(q)\n}\n",
    ),
    graph(
        "E0443",
        "an option a queue or reader does not take",
        "A queue needs its capacity: producers wait when it is full. A reader needs its files, and \
         keys where the format has names.",
        "queue q: fifo(f32[3])\nentry f() -> f32[3] {\n  return dequeue(q)\n}\n",
        "queue q: fifo(f32[3], capacity: 8)\nentry f() -> f32[3] {\n  return dequeue(q)\n}\n",
    ),
    graph(
        "E0444",
        "elements without fixed shapes",
        "A queue outlives the calls whose sizes differ, so its elements have fixed shapes. One \
         element is one example; `dequeue_many` makes batches of them.",
        "dim B\nqueue q: fifo(f32[B, 3], capacity: 8)\nentry f(x: f32[B, 3]) {\n  enqueue(q, x)\n}\n",
        "dim B\nqueue q: fifo(f32[3], capacity: 8)\nentry f(x: f32[B, 3]) {\n  enqueue_many(q, x)\n}\n",
    ),
    graph(
        "E0445",
        "parts that do not fit the queue",
        "An element has the parts of the queue's declaration, in order, with exactly their types. \
         `enqueue_many` takes one more axis in front, the same for all parts.",
        "queue q: fifo(f32[3], i32[], capacity: 8)\nentry f(x: f32[3]) {\n  enqueue(q, x)\n}\n",
        "queue q: fifo(f32[3], i32[], capacity: 8)\nentry f(x: f32[3]) {\n  enqueue(q, x, 1)\n}\n",
    ),
    graph(
        "E0446",
        "more elements than the queue can hold",
        "A batch is taken at once, so the queue must be able to hold it. A `shuffle` queue draws \
         each element among `min`, and needs that many besides.",
        "queue q: fifo(f32[3], capacity: 8)\nentry f() -> f32[64, 3] {\n  return dequeue_many(q, count: 64)\n}\n",
        "queue q: fifo(f32[3], capacity: 128)\nentry f() -> f32[64, 3] {\n  return dequeue_many(q, count: 64)\n}\n",
    ),
    graph(
        "E0447",
        "a reader that is written to",
        "The records of a reader come from its files; they can only be taken.",
        "reader r: csv(\"data.csv\", f32[3])\nentry f(x: f32[3]) {\n  enqueue(r, x)\n}\n",
        "reader r: csv(\"data.csv\", f32[3])\nentry f(x: f32[3]) -> f32[3] {\n  return dequeue(r) + x\n}\n",
    ),
    graph(
        "E0448",
        "a runner with parameters or results",
        "A runner is called by nobody: it runs by itself, again and again, while what it puts into \
         queues is needed.",
        "queue q: fifo(f32[3], capacity: 8)\nrunner fill(x: f32[3]) {\n  enqueue(q, x)\n}\nentry f() -> f32[3] {\n  return dequeue(q)\n}\n",
        "queue q: fifo(f32[3], capacity: 8)\nrunner fill() {\n  enqueue(q, ones(shape: [3]))\n}\nentry f() -> f32[3] {\n  return dequeue(q)\n}\n",
    ),
    graph(
        "E0449",
        "a priority queue without priorities",
        "The first part of a priority queue is an `i64[]`; the smallest leaves first.",
        "queue q: priority(f32[3], capacity: 8)\nentry f() -> f32[3] {\n  return dequeue(q)\n}\n",
        "queue q: priority(i64[], f32[3], capacity: 8)\nentry f() -> f32[3] {\n  (_, x) = dequeue(q)\n  return x\n}\n",
    ),
    graph(
        "E0450",
        "a runner that fills no queue",
        "A runner is started when an entry takes from a queue the runner fills. One that fills none \
         would never run.",
        "queue q: fifo(f32[3], capacity: 8)\nrunner fill() {\n  print(1.0)\n}\nentry f() -> f32[3] {\n  return dequeue(q)\n}\n",
        "queue q: fifo(f32[3], capacity: 8)\nrunner fill() {\n  enqueue(q, ones(shape: [3]))\n}\nentry f() -> f32[3] {\n  return dequeue(q)\n}\n",
    ),
    graph(
        "E0451",
        "a model of something that is no layer",
        "`model q = critic(units: 64)` makes a model of a layer: one set of the layer's weights \
         under a name. A function has no weights, and a model has its one set already.",
        "use layer\nmodel net(x: f32[2, 3]) {\n  return layer.dense(x, units: 4)\n}\nmodel other = net()\nentry f(x: f32[2, 3]) -> f32[2, 4] {\n  return other(x)\n}\n",
        "use layer\nlayer net(x: f32[2, 3]) {\n  return layer.dense(x, units: 4)\n}\nmodel other = net()\nentry f(x: f32[2, 3]) -> f32[2, 4] {\n  return other(x)\n}\n",
    ),
    graph(
        "E0453",
        "one optimizer twice for one variable",
        "What an optimizer remembers goes by its name and the variable: `adam.w.m`. When one entry \
         trains a variable in two places with the same optimizer, it is not clear whether the \
         second goes on with what the first remembers. `as` says so: two names for two states, one \
         name at both places for one.",
        "use optim\nvar w: f32[3] = ones\nentry f() {\n  minimize sum(w * w) over [w] with optim.adam(lr: 0.1)\n  minimize sum(w) over [w] with optim.adam(lr: 0.1)\n}\n",
        "use optim\nvar w: f32[3] = ones\nentry f() {\n  minimize sum(w * w) over [w] with optim.adam(lr: 0.1) as first\n  minimize sum(w) over [w] with optim.adam(lr: 0.1) as second\n}\n",
    ),
    graph(
        "E0454",
        "a path that leads to no variable",
        "The variables of a model are named by the way to them: the model, the calls of layers in \
         it, the variable. They come to be when an entry calls the model, in whatever order the \
         entries stand; `--signature` lists them.",
        "use layer\nmodel net(x: f32[2, 3]) {\n  return layer.dense(x, units: 4)\n}\nentry f(x: f32[2, 3]) -> f32[2, 4] {\n  return net(x)\n}\nentry size() -> f32[] {\n  return sum(net.dense.weight ** 2)\n}\n",
        "use layer\nmodel net(x: f32[2, 3]) {\n  return layer.dense(x, units: 4)\n}\nentry f(x: f32[2, 3]) -> f32[2, 4] {\n  return net(x)\n}\nentry size() -> f32[] {\n  return sum(net.dense.w ** 2)\n}\n",
    ),
    graph(
        "E0455",
        "a name where there is nothing to name",
        "`as` after a call names the weights of a layer, or the state of an optimizer. Models, \
         functions and ops make no variables by being called. (A value gets a name by `name = ..`.)",
        "entry f(x: f32[3]) -> f32[3] {\n  return relu(x) as y\n}\n",
        "entry f(x: f32[3]) -> f32[3] {\n  y = relu(x)\n  return y\n}\n",
    ),
    graph(
        "E0460",
        "something saved without a name",
        "`save` writes tensors under names: a variable's, or the one a value has in the text.",
        "var w: f32[3] = zeros\nentry f(x: f32[3]) {\n  save(w + x, path: \"sum\")\n}\n",
        "var w: f32[3] = zeros\nentry f(x: f32[3]) {\n  sum = w + x\n  save(sum, path: \"sum\")\n}\n",
    ),
    graph(
        "E0461",
        "an empty path",
        "`save` and `restore` need the name of a file.",
        "var w: f32[3] = zeros\nentry f() {\n  save(w, path: \"\")\n}\n",
        "var w: f32[3] = zeros\nentry f() {\n  save(w, path: \"w\")\n}\n",
    ),
    graph(
        "E0462",
        "names that do not fit what is saved",
        "Each tensor of a file has a name of its own.",
        "var w: f32[3] = zeros\nentry f() {\n  save(w, w, path: \"w\")\n}\n",
        "var w: f32[3] = zeros\nentry f() {\n  save(w, path: \"w\")\n}\n",
    ),
    command(
        "E0463",
        "an output that would replace a source",
        "What is compiled is never written over the graph it comes from, nor over a file that the \
         graph uses, also where a link leads to one. Choose another name with `-o`.",
        "graph m\nentry f(x: f32[2]) -> f32[2] {\n  return x + 1\n}\n",
        "tfc compile m.graph -o m.graph",
        "tfc compile m.graph -o m",
    ),
    graph(
        "E0470",
        "the lists of a `for` differ in length",
        "`for a in x, b in y` takes an item of each list in every iteration, so the lists have one length.",
        "entry f(a: f32[2], b: f32[2]) -> f32[] {\n  s = 0.0\n  for x in [a, b], k in [1.0, 2.0, 3.0] {\n    s = s + k * sum(x)\n  }\n  return s\n}\n",
        "entry f(a: f32[2], b: f32[2]) -> f32[] {\n  s = 0.0\n  for x in [a, b], k in [1.0, 2.0] {\n    s = s + k * sum(x)\n  }\n  return s\n}\n",
    ),
    graph(
        "E0471",
        "a `for` over something else than a list",
        "`for` is written out when the graph is compiled: it goes over a list, several results, or a \
         range of whole numbers. Rows of a tensor and lengths known at run time need `while`.",
        "entry f(x: f32[3]) -> f32[] {\n  s = 0.0\n  for v in x {\n    s = s + v\n  }\n  return s\n}\n",
        "entry f(x: f32[3]) -> f32[] {\n  s = 0.0\n  for i in 0..3 {\n    s = s + x[i]\n  }\n  return s\n}\n",
    ),
    graph(
        "E0472",
        "a `for` with too many iterations",
        "Each iteration of a `for` becomes nodes of the graph. A long loop is a `while`.",
        "entry f(x: f32[]) -> f32[] {\n  for i in 0..1000000 {\n    x = x * 0.5\n  }\n  return x\n}\n",
        "entry f(x: f32[]) -> f32[] {\n  (n, y) = while (i = 0, y = x) i < 1000000 {\n    yield i + 1, y * 0.5\n  }\n  return y\n}\n",
    ),
    graph(
        "E0473",
        "`through` something else than a function of gradients",
        "What stands after `through` takes the list of gradients, in the order of the variables, and \
         returns a list with one for each.",
        "use optim\nvar w: f32[3] = ones\nfunc half(grads) {\n  return grads[0] * 0.5\n}\nentry f(x: f32[3]) {\n  minimize sum(x * w) over [w] through half with optim.sgd\n}\n",
        "use optim\nvar w: f32[3] = ones\nfunc half(grads) {\n  return [g * 0.5 for g in grads]\n}\nentry f(x: f32[3]) {\n  minimize sum(x * w) over [w] through half with optim.sgd\n}\n",
    ),
    late(
        "E0490",
        "a limit of the compiler",
        "The graph is right, but something in it is beyond what this version compiles. The message says what.",
    ),
    late(
        "E0491",
        "a value for a `let` the graph does not have",
        "`--let NAME=VALUE` gives another value to a top-level `let` of the graph file. Lets of the \
         libraries it uses keep theirs.",
    ),
    late(
        "E0492",
        "a value for a `let` that is not one expression",
        "What stands after the `=` of `--let NAME=VALUE` is one expression of the language: a number, \
         a list such as `[1, 2]`, `true`, or arithmetic with them.",
    ),
    graph(
        "E0493",
        "nothing to train under a name",
        "`over` lists variables, models and parts of models. What is named has no variables, or the \
         loss does not depend on them.",
        "use optim\nfunc net(x: f32[3]) -> f32[3] {\n  return x * x\n}\nentry f(x: f32[3]) {\n  minimize sum(net(x)) over [net] with optim.sgd(lr: 0.1)\n}\n",
        "use optim\nmodel net(x: f32[3]) -> f32[3] {\n  var w: f32[3] = ones\n  return x * w\n}\nentry f(x: f32[3]) {\n  minimize sum(net(x)) over [net] with optim.sgd(lr: 0.1)\n}\n",
    ),
    graph(
        "E0494",
        "a name's seed without a variable",
        "`name_seed` is a number made of the name of the variable that gets its first value. Where \
         there is none, write a seed.",
        "use init\nentry f() -> f32[3] {\n  x: f32[3] = init.normal()\n  return x\n}\n",
        "use init\nentry f() -> f32[3] {\n  x: f32[3] = init.normal(seed: 1)\n  return x\n}\n",
    ),
];
