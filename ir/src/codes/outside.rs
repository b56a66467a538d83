//! E05xx to E09xx: feeds and run-time checks, state files, peers, toolchain and
//! files, command line, bugs.

use super::{Code, command, graph, late};

pub const CODES: &[Code] = &[
    command(
        "E0501",
        "a feed is missing",
        "Every parameter of the entry is fed: `--feed x=x.npy`. `--signature` prints a line ready to paste.",
        "graph m\ndim B\nentry f(x: f32[B, 2], y: i32[B]) -> f32[B, 2] {\n  return x * cast(reshape(y, [B, 1]), to: f32)\n}\n",
        "tfc run m.graph f --feed 'x=[[1, 2]]'",
        "tfc run m.graph f --feed 'x=[[1, 2]]' --feed 'y=[3]'",
    ),
    command(
        "E0502",
        "a feed or value the entry does not take",
        "The entry has no parameter of this name, or more is given than it takes. `--signature` lists them.",
        "graph m\nentry f(x: f32[2]) -> f32[2] {\n  return x + 1\n}\n",
        "tfc compile m.graph -o m && ./m f --feed 'y=[1, 2]'",
        "tfc compile m.graph -o m && ./m f --feed 'x=[1, 2]'",
    ),
    command(
        "E0503",
        "a feed of another element type",
        "Nothing is converted silently: store the array in the type the entry asks for.",
        "graph m\nentry ints() -> (n: i32[2]) {\n  return i32[2](1, 2)\n}\nentry floats() -> (n: f32[2]) {\n  return f32[2](1, 2)\n}\nentry f(x: f32[2]) -> f32[2] {\n  return x + 1\n}\n",
        "tfc run m.graph ints --out n=n.npy && tfc run m.graph f --feed x=n.npy",
        "tfc run m.graph floats --out n=n.npy && tfc run m.graph f --feed x=n.npy",
    ),
    command(
        "E0504",
        "a feed of another rank",
        "The array has more or fewer axes than the parameter.",
        "graph m\ndim B\nentry f(x: f32[B, 2], y: i32[B]) -> f32[B, 2] {\n  return x * cast(reshape(y, [B, 1]), to: f32)\n}\n",
        "tfc run m.graph f --feed 'x=[1, 2]' --feed 'y=[3]'",
        "tfc run m.graph f --feed 'x=[[1, 2]]' --feed 'y=[3]'",
    ),
    command(
        "E0505",
        "a feed of another size",
        "An axis of the array has a size the parameter does not allow.",
        "graph m\nentry f(x: f32[2]) -> f32[2] {\n  return x + 1\n}\n",
        "tfc run m.graph f --feed 'x=[1, 2, 3]'",
        "tfc run m.graph f --feed 'x=[1, 2]'",
    ),
    command(
        "E0506",
        "feeds that disagree",
        "A named dim has one value in a call: `x: f32[B, 3]` and `y: i32[B]` are fed with equal numbers of rows.",
        "graph m\ndim B\nentry f(x: f32[B, 2], y: i32[B]) -> f32[B, 2] {\n  return x * cast(reshape(y, [B, 1]), to: f32)\n}\n",
        "tfc run m.graph f --feed 'x=[[1, 2], [3, 4]]' --feed 'y=[5]'",
        "tfc run m.graph f --feed 'x=[[1, 2], [3, 4]]' --feed 'y=[5, 6]'",
    ),
    command(
        "E0507",
        "a size out of its range",
        "The dim was declared with a range, `dim B: 1..256`, and the feed is outside it.",
        "graph m\ndim B: 1..2\nentry f(x: f32[B]) -> f32[B] {\n  return x + 1\n}\n",
        "tfc run m.graph f --feed 'x=[1, 2, 3]'",
        "tfc run m.graph f --feed 'x=[1, 2]'",
    ),
    command(
        "E0508",
        "a size that cannot be",
        "`tfc bench` makes its own inputs. With the sizes it was given, an axis of one of them would be negative.",
        "graph m\ndim B\nentry f(x: f32[B - 4], y: f32[B]) -> f32[B - 4] {\n  return x + y[4:]\n}\n",
        "tfc bench m.graph --calls 1 --dim B=2",
        "tfc bench m.graph --calls 1 --dim B=8",
    ),
    command(
        "E0509",
        "an assertion failed",
        "An `assert` in the graph found its condition false; the message is the graph's.",
        "graph m\nentry f(x: f32[2]) -> f32[2] {\n  assert(all(x > 0), message: \"x must be positive\")\n  return log(x)\n}\n",
        "tfc run m.graph f --feed 'x=[1, -2]'",
        "tfc run m.graph f --feed 'x=[1, 2]'",
    ),
    command(
        "E0510",
        "an index out of range",
        "Indices count from 0 and stay below the size of the axis: those of `gather` and `table[ids]`, of rows that are updated, starts of dynamic slices, and class numbers (`one_hot`, `nn.softmax_xent`). Negative ones are errors too; only constants in the graph may count from the end (`x[-1]`). The call fails before it changes a variable. To take the nearest entry instead, write `bounds: \"clamp\"` (for `one_hot`, `bounds: \"drop\"` gives zeros); `--unchecked` does so everywhere.",
        "graph m\nentry f(rows: f32[2, 1], ids: i32[2]) -> f32[3, 1] {\n  return scatter_add(zeros(shape: [3, 1], dtype: f32), ids, rows)\n}\n",
        "tfc run m.graph f --feed 'rows=[[1], [2]]' --feed 'ids=[0, 3]'",
        "tfc run m.graph f --feed 'rows=[[1], [2]]' --feed 'ids=[0, 2]'",
    ),
    command(
        "E0511",
        "a damaged .npy file",
        "The file does not start as a .npy file does, or ends too early. `numpy.save` writes such files.",
        "graph m\nentry ints() -> (n: i32[2]) {\n  return i32[2](1, 2)\n}\nentry floats() -> (n: f32[2]) {\n  return f32[2](1, 2)\n}\nentry f(x: f32[2]) -> f32[2] {\n  return x + 1\n}\n",
        "echo hello > n.npy && tfc run m.graph f --feed x=n.npy",
        "tfc run m.graph floats --out n=n.npy && tfc run m.graph f --feed x=n.npy",
    ),
    command(
        "E0512",
        "a damaged .npz file",
        "The file is not a .npz archive, or ends too early. `numpy.savez` writes such files.",
        "graph m\nentry ints() -> (n: i32[2]) {\n  return i32[2](1, 2)\n}\nentry floats() -> (n: f32[2]) {\n  return f32[2](1, 2)\n}\nentry f(x: f32[2]) -> f32[2] {\n  return x + 1\n}\n",
        "echo hello > n.npz && tfc run m.graph f --feed x=n.npz",
        "tfc run m.graph floats --out n=n.npz && tfc run m.graph f --feed x=n.npz",
    ),
    command(
        "E0513",
        "a malformed value",
        "A value on the command line is a number, a list such as `[[1, 2], [3, 4]]`, or a file.",
        "graph m\nentry f(x: f32[2]) -> f32[2] {\n  return x + 1\n}\n",
        "tfc run m.graph f --feed 'x=[1, 2'",
        "tfc run m.graph f --feed 'x=[1, 2]'",
    ),
    command(
        "E0514",
        "an unknown kind of data file",
        "Data files are .npy, .npz and .safetensors.",
        "graph m\nentry ints() -> (n: i32[2]) {\n  return i32[2](1, 2)\n}\nentry floats() -> (n: f32[2]) {\n  return f32[2](1, 2)\n}\nentry f(x: f32[2]) -> f32[2] {\n  return x + 1\n}\n",
        "tfc run m.graph floats --out n=n.csv",
        "tfc run m.graph floats --out n=n.npy",
    ),
    command(
        "E0515",
        "no such array in the file",
        "Name the array after the file: `--feed x=data.npz:x`. An archive of one array needs no name.",
        "graph m\nentry two() -> (a: f32[1], b: f32[1]) {\n  return f32[1](1), f32[1](2)\n}\nentry f(x: f32[1]) -> f32[1] {\n  return x + 1\n}\n",
        "tfc run m.graph two --out a=ab.npz --out b=ab.npz && tfc run m.graph f --feed x=ab.npz",
        "tfc run m.graph two --out a=ab.npz --out b=ab.npz && tfc run m.graph f --feed x=ab.npz:a",
    ),
    command(
        "E0516",
        "sizes too large",
        "The sizes of this call need more memory than there is, or than can be counted.",
        "graph m\ndim B\nentry f(x: f32[B]) -> f32[] {\n  big = broadcast(x, shape: [B * 1_000_000, B * 1_000_000, B])\n  return sum(cumsum(big, axis: 0))\n}\n",
        "tfc run m.graph f --feed 'x=[1, 2, 3, 4]'",
        "tfc run m.graph f --feed 'x=[]'",
    ),
    late("E0517", "a dim nothing tells", "No feed has an axis of this dim."),
    command(
        "E0518",
        "sizes an op cannot work with",
        "An op of the graph needs sizes that the feeds of this call do not have: a slice that would end behind the last element, a window larger than the image. The message says which.",
        "graph m\ndim B\nentry f(x: f32[B]) -> f32[3] {\n  return x[0:3]\n}\n",
        "tfc run m.graph f --feed 'x=[1, 2]'",
        "tfc run m.graph f --feed 'x=[1, 2, 3]'",
    ),
    late("E0519", "data that cannot be used", "The file was read, but what it holds does not fit."),
    command(
        "E0520",
        "something given twice",
        "A feed or result is named once.",
        "graph m\nentry f(x: f32[2]) -> f32[2] {\n  return x + 1\n}\n",
        "tfc run m.graph f --feed 'x=[1, 2]' --feed 'x=[3, 4]'",
        "tfc run m.graph f --feed 'x=[1, 2]'",
    ),
    command(
        "E0521",
        "no such result",
        "The entry has no result of this name or number.",
        "graph m\nentry ints() -> (n: i32[2]) {\n  return i32[2](1, 2)\n}\nentry floats() -> (n: f32[2]) {\n  return f32[2](1, 2)\n}\nentry f(x: f32[2]) -> f32[2] {\n  return x + 1\n}\n",
        "tfc run m.graph floats --out y=y.npy",
        "tfc run m.graph floats --out n=n.npy",
    ),
    late(
        "E0522",
        "memory that does not fit a result",
        "A caller from C or Rust gave memory for the results that is too small, not aligned, or for another number of results.",
    ),
    command(
        "E0523",
        "an entry that cannot be run in batches",
        "`--batch`, `--epochs`, `--steps` and `--shuffle` cut the feeds along the run-time dim that is their first size. The entry has no such dim or two different ones, or the feeds hold no examples.",
        "graph m\nentry f(x: f32[2]) -> f32[2] {\n  return x + 1\n}\n",
        "tfc run m.graph f --feed 'x=[1, 2]' --batch 1",
        "tfc run m.graph f --feed 'x=[1, 2]'",
    ),
    late(
        "E0524",
        "a cancelled call",
        "The call's cancel token was cancelled while it waited or between two iterations of a loop. \
         Its variables are as they were before the call, or as it left them when it began to wait for a queue.",
    ),
    late(
        "E0525",
        "a call past its deadline",
        "The call was still waiting, or still in a loop, at the time it was given. Its variables are as they \
         were before the call, or as it left them when it began to wait for a queue.",
    ),
    late(
        "E0526",
        "old variables for a call that writes some",
        "A call with `stale_ok` reads the last complete version of the variables while another call writes \
         them. An entry that writes variables itself must have them as they are: call it without `stale_ok`.",
    ),
    graph(
        "E0530",
        "a data file of another element type",
        "`file(..)` takes the array as it is; `cast` converts it.",
        "var w: f32[2] = file(\"int_2.npy\")\nentry f() -> f32[2] {\n  return w\n}\n",
        "var w: f32[2] = cast(file(\"int_2.npy\"), to: f32)\nentry f() -> f32[2] {\n  return w\n}\n",
    ),
    graph(
        "E0531",
        "a data file that cannot be read",
        "The path is relative to the graph file; a .safetensors or .npz file needs `key:`.",
        "var w: f32[2] = file(\"absent.npy\")\nentry f() -> f32[2] {\n  return w\n}\n",
        "var w: f32[2] = file(\"float_2.npy\")\nentry f() -> f32[2] {\n  return w\n}\n",
    ),
    graph(
        "E0532",
        "something an op does not do with indices out of range",
        "`bounds` says what happens to an index that is out of range. `\"check\"`, the default, fails the call. `gather`, `dynamic_slice` and `dynamic_update_slice` can also `\"clamp\"` it to the nearest that fits; `one_hot` can `\"drop\"` it, which gives zeros.",
        "entry f(x: f32[5], i: i32[2]) -> f32[2] {\n  return gather(x, i, bounds: \"drop\")\n}\n",
        "entry f(x: f32[5], i: i32[2]) -> f32[2] {\n  return gather(x, i, bounds: \"clamp\")\n}\n",
    ),
    command(
        "E0533",
        "a loss that is not finite",
        "What `minimize` makes smaller came out as NaN or infinite, so its gradients would spoil every variable. The call failed before it changed them; what `--state` and checkpoints hold is the last good state. Often the data has a NaN, the learning rate is too high, or a `log` or a division meets zero: `tfc run GRAPH .. --check-numerics` names the operation. `--allow-nan` goes on regardless.",
        "graph m\nuse optim\nvar w: f32[] = 1\nentry f(x: f32[]) {\n  minimize (w * x) ** 2 with optim.sgd(lr: 0.1)\n}\n",
        "tfc run m.graph f --feed x=nan",
        "tfc run m.graph f --feed x=0.5",
    ),
    command(
        "E0534",
        "a variable to save that is not finite",
        "A variable holds NaN, or an infinity it did not begin with. Saving it would replace a good file by a spoilt one, so the file was left as it was. `tfc run GRAPH .. --check-numerics` finds where such numbers come from; `--allow-nan` saves them.",
        "graph m\nvar w: f32[] = 1\nentry f(x: f32[]) {\n  w += x\n}\n",
        "tfc run m.graph f --feed x=nan --state s.safetensors",
        "tfc run m.graph f --feed x=2 --state s.safetensors",
    ),
    command(
        "E0535",
        "an operation that makes NaN or infinity",
        "With `--check-numerics` every result is looked at. This operation is the first to make a NaN from numbers that were none, or an infinity from finite ones; the notes say what it was computed from. A feed or variable that already holds a NaN is named instead.",
        "graph m\nentry f(x: f32[2]) -> f32[2] {\n  return log(x)\n}\n",
        "tfc run --check-numerics m.graph f --feed 'x=[1, -1]'",
        "tfc run --check-numerics m.graph f --feed 'x=[1, 2]'",
    ),
    late(
        "E0550",
        "an empty stack",
        "`stack_pop` takes what `stack_push` put there earlier in the same call. Compiled gradients keep both in step; a graph that uses stacks itself must do so too.",
    ),
    late(
        "E0551",
        "a loop that keeps too much",
        "The gradient of a loop keeps values of every iteration. `--loop-memory` bounds that: the iterations are then computed again, some at a time, in the backward pass.",
    ),
    late(
        "E0560",
        "the end of the input",
        "A queue was closed and is empty, or a reader has given its last record. A run ends here; \
         it is not a failure. From Rust, `Error::is_end_of_input` tells it from one.",
    ),
    late(
        "E0561",
        "an element for a closed queue",
        "After `close` nothing can be put into a queue. Runners that try simply end.",
    ),
    late(
        "E0562",
        "a wait without end",
        "The queue has too few elements (or is full), and nothing that still runs would change \
         that. Add a runner that fills it, or close it when no more will come. When an entry and \
         its runners wait for each other, the notes say who waits where and for what: most often a \
         queue is filled that nobody takes from.",
    ),
    late(
        "E0563",
        "no files for a reader",
        "Nothing matches the path. It is relative to where the program is started; `--data \
         READER=PATH` gives another.",
    ),
    late(
        "E0564",
        "a malformed CSV file",
        "Every line has as many numbers as a record has elements, all parts together. Lines of \
         names at the start are left out by `skip: 1`.",
    ),
    late(
        "E0565",
        "a malformed IDX file",
        "The file is not in the format of the MNIST data, or is cut short.",
    ),
    late(
        "E0566",
        "a malformed TFRecord file",
        "A length or a checksum is wrong, the file is cut short, or a record lacks a feature. The \
         message says at which byte the record starts.",
    ),
    late(
        "E0567",
        "records of another type",
        "The rows of the file are not what the reader declares. Declare the type of the file, and \
         `cast` or `reshape` in the graph.",
    ),
    late(
        "E0568",
        "a position that is not in the data",
        "The files have fewer records than when the position was saved, or it belongs to another \
         program.",
    ),
    late(
        "E0569",
        "an element that does not fit its queue",
        "From Rust, an element is one array for each part of the queue's declaration.",
    ),
    late("E0570", "no such queue or reader", "The program declares no queue of this name."),
    late(
        "E0571",
        "stopped while waiting",
        "The runners were stopped while a call waited for a queue.",
    ),
    late(
        "E0580",
        "a torn checkpoint",
        "A file of the checkpoint is missing, cut short, or does not match the hash in its manifest. \
         A run with `--resume` uses the newest one that is whole; `tfc ckpt verify DIR` checks all of them.",
    ),
    late(
        "E0581",
        "a checkpoint of another graph",
        "A run is resumed by the graph that saved it. `--restore FILE` takes the variables that fit \
         from any graph's checkpoint, and starts a new run.",
    ),
    late(
        "E0582",
        "no checkpoint that can be used",
        "There are checkpoints, but each is torn or of another graph; the notes say which is what.",
    ),
    late(
        "E0583",
        "a directory with checkpoints of another run",
        "A new run does not mix its checkpoints with those of an older one: `--resume` goes on with \
         that one, another directory keeps both.",
    ),
    late(
        "E0584",
        "nothing to restore",
        "No tensor of the file has the name and the type of a variable. `--restore-map NEW=OLD` says \
         how names begin in the file: with `--restore-map encoder.=bert.` the variable `encoder.w` is \
         taken from `bert.w`.",
    ),
    late(
        "E0585",
        "checkpoint options that do not fit",
        "`--save-every`, `--keep` and `--resume` are about the checkpoints of `--checkpoint-dir`, and \
         only an entry that changes variables has something to save.",
    ),
    late(
        "E0586",
        "other data than that of the run to resume",
        "A resumed run goes on in the middle of its data, so the entry, the batches, the data and \
         its order are those of the run that was saved. `--resume-anyway` goes on with what there \
         is now.",
    ),
    late(
        "E0587",
        "a state file that is a checkpoint",
        "`--state` is read and written. The data of a checkpoint must stay what its manifest says: \
         `--restore` only reads it.",
    ),
    command(
        "E0588",
        "a name that no state file can have",
        "`--state` is a .safetensors file, read if it is there and written by an entry that changes \
         variables. A directory with checkpoints is meant by `--checkpoint-dir`, or by `--restore`.",
        "graph m\nvar n: i32[] = 0\nentry step(by: i32[]) -> (now: i32[]) {\n  n += by\n  return n\n}\n",
        "tfc run m.graph step --feed by=1 --state s.npz",
        "tfc run m.graph step --feed by=1 --state s.safetensors",
    ),
    command(
        "E0589",
        "a result that is not whole",
        "A run that was complete computes nothing more, so there is nothing to write. Rows from \
         before a resume are kept in the checkpoint directory when `--out` asks for them from the \
         start; otherwise only the rest is written, with a warning.",
        "graph m\ndim B\nvar n: f32[] = 0\nentry step(x: f32[B]) -> (y: f32[B]) {\n  n += sum(x)\n  return x * 2.0\n}\n",
        "tfc run m.graph step --feed x=[1,2,3] --batch 1 --checkpoint-dir c && tfc run m.graph step --feed x=[1,2,3] --batch 1 --checkpoint-dir c --resume --out y=y.npy",
        "tfc run m.graph step --feed x=[1,2,3] --batch 1 --checkpoint-dir c --out y=y.npy",
    ),
    late(
        "E0590",
        "a checkpoint directory in use",
        "One run at a time saves to a directory: two would overwrite and remove each other's \
         checkpoints. The lock goes with the process that holds it, however that ends.",
    ),
    command(
        "E0591",
        "a pipeline that cannot be gone on with",
        "A resumed run gets the elements that would have come next if they depend on the input \
         alone. They do not where runners race each other, where a priority queue is filled while \
         it is emptied, or where a runner uses variables that the entry changes. Checkpoints are \
         saved with a warning; `--resume-anyway` goes on with whatever data comes.",
        "graph m\nvar n: i64[] = 0\nvar k: i64[] = 0\nqueue q: priority(i64[], capacity: 4)\nrunner fill() {\n  k += 1\n  enqueue(q, k)\n}\nentry next() -> (x: i64[]) {\n  x = dequeue(q)\n  n += x\n  return n\n}\n",
        "tfc run m.graph next --steps 2 --checkpoint-dir c && tfc run m.graph next --steps 4 --checkpoint-dir c --resume",
        "tfc run m.graph next --steps 2 --checkpoint-dir c && tfc run m.graph next --steps 4 --checkpoint-dir c --resume-anyway",
    ),
    command(
        "E0592",
        "a rename that renames nothing",
        "`--restore-map NEW=OLD` is about the variable `NEW`, or those whose names begin with \
         `NEW.`; of several that fit, the longest counts.",
        "graph m\nvar w: f32[] = 0\nentry step(by: f32[]) -> (now: f32[]) {\n  w += by\n  return w\n}\n",
        "tfc run m.graph step --feed by=1 --state s.safetensors && tfc run m.graph step --feed by=1 --restore s.safetensors --restore-map u=w",
        "tfc run m.graph step --feed by=1 --state s.safetensors && tfc run m.graph step --feed by=1 --restore s.safetensors --restore-map w=w",
    ),
    command(
        "E0593",
        "only a part of the variables",
        "An entry that changes nothing would compute with initial values for the rest. Training \
         may begin with a part of the variables; for any other entry `--partial` says that it is \
         meant.",
        "graph m\nvar a: f32[] = 1\nvar b: f32[] = 2\nentry make() -> (a: f32[]) {\n  return f32[](7)\n}\nentry both() -> (s: f32[]) {\n  return a + b\n}\n",
        "tfc run m.graph make --out a=s.safetensors && tfc run m.graph both --restore s.safetensors",
        "tfc run m.graph make --out a=s.safetensors && tfc run m.graph both --restore s.safetensors --partial",
    ),
    command(
        "E0594",
        "more memory than is allowed",
        "With `--max-memory` the variables of a program and the working memory of a call may \
         take that much together. Where all sizes are known the graph is refused when it is \
         compiled, otherwise a call with sizes that need more. The notes say how much it is, \
         and at which line of the graph most is in use.",
        "graph m\ndim B\nentry f(x: f32[B, 64]) -> (y: f32[B, 64]) {\n  return transpose(cumsum(transpose(cumsum(x, axis: 0)), axis: 0))\n}\n",
        "tfc bench --max-memory 1M m.graph f --dim B=8192 --calls 1",
        "tfc bench --max-memory 1M m.graph f --dim B=16 --calls 1",
    ),
    command(
        "E0601",
        "a damaged .safetensors file",
        "The file is not a .safetensors file, or ends too early. State and feeds may both be such files.",
        "graph m\nvar n: i32[] = 0\nentry step(by: i32[]) -> (now: i32[]) {\n  n += by\n  return n\n}\n",
        "echo hello > s.safetensors && tfc run m.graph step --feed by=1 --state s.safetensors",
        "tfc run m.graph step --feed by=1 --state s.safetensors",
    ),
    late(
        "E0602",
        "a state file of another program",
        "The file holds the variables of another graph.",
    ),
    command(
        "E0603",
        "a variable missing in a state file",
        "The state file does not have all variables of the program.",
        "graph m\nvar n: i32[] = 0\nvar total: i32[] = 0\nentry make() -> (k: i32[]) {\n  return i32[](7)\n}\nentry step(by: i32[]) -> (now: i32[]) {\n  n += by\n  total += n\n  return total\n}\n",
        "tfc run m.graph make --out k=s.safetensors && tfc run m.graph step --feed by=1 --state s.safetensors",
        "tfc run m.graph step --feed by=1 --state s.safetensors",
    ),
    command(
        "E0604",
        "a variable of another type",
        "What is stored or given for the variable has another element type or shape.",
        "graph m\nvar n: i32[] = 0\nentry make() -> (n: f32[]) {\n  return f32[](7)\n}\nentry make_int() -> (n: i32[]) {\n  return i32[](7)\n}\nentry step(by: i32[]) -> (now: i32[]) {\n  n += by\n  return n\n}\n",
        "tfc run m.graph make --out n=s.safetensors && tfc run m.graph step --feed by=1 --state s.safetensors",
        "tfc run m.graph make_int --out n=s.safetensors && tfc run m.graph step --feed by=1 --state s.safetensors",
    ),
    late("E0605", "no such variable", "The program has no variable of this name."),
    late(
        "E0701",
        "a worker is gone",
        "Another process of the job has ended, or cannot be reached. The message names it, what \
         was being exchanged and the line of the graph. Its own output says why it ended. Nothing \
         of the unfinished step is kept: `--resume` goes on from the last checkpoint.",
    ),
    late(
        "E0702",
        "a worker is late",
        "Another process of the job did not answer in time, or was not started. `--peer-timeout` \
         is how long a step waits for it, `--join-timeout` how long the start does.",
    ),
    late(
        "E0703",
        "a worker may not join",
        "All processes of a job run the same program, with the same number of workers and the \
         same token; whoever does not is refused. The message has both sides.",
    ),
    late(
        "E0704",
        "a message that does not fit",
        "Another process sent something that is not what the step needs: a message of an earlier \
         run, of another step, or no message of tfc's at all. It was not used.",
    ),
    command(
        "E0705",
        "a job that makes no sense",
        "The environment says that this process is one of several (`TFC_RANK`, `RANK`, \
         `SLURM_PROCID`, `TF_CONFIG`, `mpirun`), but not all that is needed to find the others, \
         or something impossible. `--mode local` takes no notice of it.",
        "graph m\nvar w: f32[] = 1\ndim B\nentry train(x: f32[B]) -> (loss: f32[]) {\n  loss = mean((x - w) * (x - w))\n  minimize loss over [w] with sgd()\n  return loss\n}\nfunc sgd(var p, grad: _[..]) {\n  p -= 0.1 * grad\n}\n",
        "tfc compile m.graph -o m && TFC_RANK=0 ./m train --feed 'x=[1, 2]' --state s.safetensors",
        "tfc compile m.graph -o m && TFC_RANK=0 ./m train --feed 'x=[1, 2]' --state s.safetensors --mode local",
    ),
    late(
        "E0706",
        "plain text to other hosts",
        "Workers talk without encryption. On one machine that is nobody else's business; on a \
         network it must be asked for, with TFC_PLAINTEXT=1, or be left to `mpirun`.",
    ),
    command(
        "E0707",
        "nothing to share",
        "Only what combines values over processes can be run by several of them: an entry with \
         `minimize` or `all_reduce`, on batches of at least one example for each. With parameter \
         servers it must be possible to cut the entry at its gradients: it learns by `minimize` \
         outside of branches and loops, and does not look at what it learned in the same step.",
        "graph m\nentry f(x: f32[2]) -> f32[2] {\n  return x + 1\n}\n",
        "tfc compile m.graph -o m && TFC_RANK=0 TFC_SIZE=2 TFC_COORDINATOR=127.0.0.1:1 ./m f --feed 'x=[1, 2]'",
        "tfc compile m.graph -o m && TFC_RANK=0 TFC_SIZE=2 TFC_COORDINATOR=127.0.0.1:1 ./m f --feed 'x=[1, 2]' --mode local",
    ),
    late(
        "E0708",
        "a process that is not trusted",
        "Messages between hosts are encrypted when `--tls-cert`, `--tls-key` and `--tls-ca` (or \
         TFC_TLS_CERT, TFC_TLS_KEY and TFC_TLS_CA) name a certificate, its key and the authority \
         that signs for the job. Both sides must show a certificate of that authority that is \
         valid now; who does not is told nothing. OpenSSL is loaded when it is needed: it must be \
         installed where the program runs.",
    ),
    command(
        "E0801",
        "no linker",
        "Making an executable needs a C linker: install gcc or clang, or name one with `--linker`. `tfc run` needs none.",
        "graph m\nentry f(x: f32[2]) -> f32[2] {\n  return x + 1\n}\n",
        "tfc compile m.graph -o m --linker no-such-linker",
        "tfc compile m.graph -o m",
    ),
    command(
        "E0802",
        "the linker failed",
        "What the linker said is in the notes.",
        "graph m\nentry f(x: f32[2]) -> f32[2] {\n  return x + 1\n}\n",
        "tfc compile m.graph -o m --linker false",
        "tfc compile m.graph -o m",
    ),
    command(
        "E0803",
        "a file that cannot be written",
        "Check the folder, the permissions and the space on the disk.",
        "graph m\nentry f(x: f32[2]) -> f32[2] {\n  return x + 1\n}\n",
        "tfc compile m.graph -o no-such-folder/m",
        "tfc compile m.graph -o m",
    ),
    command(
        "E0804",
        "a file that cannot be read",
        "Check the path and the permissions.",
        "graph m\nentry f(x: f32[2]) -> f32[2] {\n  return x + 1\n}\n",
        "tfc check n.graph",
        "tfc check m.graph",
    ),
    late(
        "E0805",
        "this machine cannot run the program",
        "The program was built for a processor with instructions this one lacks. Compile it for plainer ones (`--cpu baseline`), or on this machine (`--cpu native`).",
    ),
    late(
        "E0806",
        "a damaged program",
        "The data inside the compiled program is not what its code expects: copy or build it again.",
    ),
    late(
        "E0807",
        "a header and a library that do not belong together",
        "The C header was made for another version of the graph than the library, or by another tfc. Where the library is linked the linker says so, missing a symbol such as `net_library_0123456789abcdef`; where it is opened at run time, loading says so. Make both at once: `tfc compile net.graph --emit lib,header`.",
    ),
    command(
        "E0808",
        "no name for C functions",
        "The C functions of a model begin with the name of the output, or with `--prefix`. It must be an identifier, and not one that C's own libraries or tfc use: with the prefix `pthread` an entry `create` would be `pthread_create`.",
        "graph m\nentry f(x: f32[2]) -> f32[2] {\n  return x + 1\n}\n",
        "tfc compile m.graph --emit header -o tfc.h",
        "tfc compile m.graph --emit header -o tfc.h --prefix net",
    ),
    command(
        "E0809",
        "a machine no programs can be made for",
        "Programs can be made for x86_64 and aarch64 Linux, with glibc or musl. For another target than tfc's own the runtime is made when first needed; that takes `rustc` and Rust's library for the target (`rustup target add`). Programs for glibc also take a C compiler for the target.",
        "graph m\nentry f(x: f32[2]) -> f32[2] {\n  return x + 1\n}\n",
        "tfc compile m.graph -o m --target sparc64-unknown-linux-gnu",
        "tfc compile m.graph -o m",
    ),
    command(
        "E0810",
        "a path that leads out of the sandbox",
        "With `--sandbox DIR` a graph may read and write only what lies below DIR, wherever links and `..` lead. Paths given on the command line are not confined.",
        "graph m\nvar n: f32[] = 1\nentry keep() {\n  save(n, path: \"../n.safetensors\")\n}\nentry keep_here() {\n  save(n, path: \"n.safetensors\")\n}\n",
        "tfc run m.graph keep --sandbox .",
        "tfc run m.graph keep_here --sandbox .",
    ),
    late(
        "E0820",
        "a damaged compiled module",
        "The file is not a module that `Module::save` wrote, it was cut short or changed since, or another \
         version of tfc wrote it. Compile the graph again and save it again.",
    ),
    command(
        "E0840",
        "no GPU",
        "There is no NVIDIA GPU or no driver for one, no GPU of that number, or the program was \
         compiled for the CPU alone (`tfc compile --target cuda` adds code for GPUs). `tfc devices` \
         lists what there is. Every program can run on the CPU.",
        "graph m\nentry f(x: f32[2]) -> f32[2] {\n  return x + 1\n}\n",
        "tfc run m.graph f --feed 'x=[1, 2]' --device cuda:999",
        "tfc run m.graph f --feed 'x=[1, 2]' --device cpu",
    ),
    late(
        "E0841",
        "a GPU out of memory",
        "Variables, what an entry needs while it runs, and what other programs have do not fit \
         into the GPU's memory together. Use smaller batches, end the other programs, or run on the CPU.",
    ),
    late(
        "E0842",
        "a GPU or a driver that is too old",
        "Programs run on GPUs since Volta (compute capability 7.0) with a driver for CUDA 11.4 or \
         later. A newer driver is installed without touching the program.",
    ),
    late(
        "E0843",
        "a GPU that failed",
        "The driver lost the GPU, or the GPU stopped in the middle of a step: what was in its \
         memory is gone. Start again, with `--resume` from the last checkpoint. If it happens again \
         at the same step, please report it; if it happens anywhere, suspect the machine.",
    ),
    late(
        "E0899",
        "a bug in tfc",
        "This is not your fault. Please report it with the file the message names.",
    ),
    command(
        "E0901",
        "wrong usage",
        "`--help` shows how the command is used.",
        "graph m\nentry f(x: f32[2]) -> f32[2] {\n  return x + 1\n}\n",
        "tfc compile",
        "tfc compile m.graph",
    ),
    command(
        "E0902",
        "no such thing",
        "The command line names something that does not exist; the message says what there is.",
        "graph m\nentry f(x: f32[2]) -> f32[2] {\n  return x + 1\n}\n",
        "tfc opt m.graph --passes flod",
        "tfc opt m.graph --passes fold",
    ),
    command(
        "E0903",
        "arguments that do not go together",
        "An option is missing, or excludes another.",
        "graph m\nentry f(x: f32[2]) -> f32[2] {\n  h = x + 1\n  return h * 2\n}\nentry g(x: f32[2]) -> f32[2] {\n  return x\n}\n",
        "tfc run m.graph --fetch h --feed 'x=[1, 2]'",
        "tfc run m.graph f --fetch h --feed 'x=[1, 2]'",
    ),
    command(
        "E0911",
        "no such entry",
        "Name one of the program's entries first: `./program ENTRY --feed ...`.",
        "graph m\nentry f(x: f32[2]) -> f32[2] {\n  return x + 1\n}\n",
        "tfc run m.graph g --feed 'x=[1, 2]'",
        "tfc run m.graph f --feed 'x=[1, 2]'",
    ),
    command(
        "E0912",
        "no such option",
        "`--help` lists the options.",
        "graph m\nentry f(x: f32[2]) -> f32[2] {\n  return x + 1\n}\n",
        "tfc compile m.graph -o m && ./m f --feeds 'x=[1, 2]'",
        "tfc compile m.graph -o m && ./m f --feed 'x=[1, 2]'",
    ),
    command(
        "E0913",
        "an option without its value",
        "The option needs a value after it.",
        "graph m\nentry f(x: f32[2]) -> f32[2] {\n  return x + 1\n}\n",
        "tfc compile m.graph -o m && ./m f --feed",
        "tfc compile m.graph -o m && ./m f --feed 'x=[1, 2]'",
    ),
    command(
        "E0914",
        "a value that does not fit the option",
        "The message says what it must be.",
        "graph m\ndim B\nentry f(x: f32[B]) -> f32[B] {\n  return x + 1\n}\n",
        "tfc run m.graph f --feed 'x=[1, 2]' --batch none",
        "tfc run m.graph f --feed 'x=[1, 2]' --batch 1",
    ),
    late(
        "E0998",
        "a bug in tfc: an ill-typed graph",
        "A pass of the compiler built something that is not well-typed. Please report it.",
    ),
    late(
        "E0999",
        "a bug in tfc: a malformed graph",
        "The compiler found that it had broken its own rules. Please report it.",
    ),
];
