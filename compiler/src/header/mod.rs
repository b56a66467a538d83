//! The C header of a model: typed functions over the runtime's C interface.
//!
//! For a prefix `m`: the type `m_model`, `m_load`, `m_free`, `m_error`, one function
//! an entry, a getter and a setter a variable. They are `static inline` and reach
//! the library through one symbol, whose name holds a hash of its contents: a
//! header and a library that do not belong together do not link.
//!
//! `tfc.h` is the part all headers share; it is in each of them, so that one file
//! is enough.

pub(crate) mod names;

use crate::error::{Error, Result};
use names::{RESERVED_PREFIXES, Taken, identifier};
use std::collections::BTreeSet;
use std::fmt::Write;
use tfc_abi::plan::{Entry, ExprId, ExprOp, Plan, Port, VarInfo};
use tfc_abi::{ABI_VERSION, DType};
use tfc_ir::diag::Diag;

/// What every header of ours declares, once a translation unit.
const RUNTIME: &str = include_str!("tfc.h");

/// Names behind the prefix that every header has.
const FIXED: &[&str] = &["model", "library", "load", "load_with", "load_from", "free", "error"];

/// How a model is called in C.
#[derive(Clone, Debug, PartialEq)]
pub struct Symbols {
    /// What every name in it begins with.
    pub prefix: String,
    /// Hash of the program: of two libraries under one prefix each is told from
    /// the other.
    pub content: u64,
}

impl Symbols {
    /// Names of the library's descriptor: the one headers use, and one for those
    /// who look it up by name.
    pub fn library(&self) -> Vec<String> {
        let prefix = &self.prefix;
        vec![format!("{prefix}_library_{:016x}", self.content), format!("{prefix}_library")]
    }
}

/// The prefix of a model's C names: as asked for, or made of a file's name.
pub fn prefix(asked: Option<&str>, stem: &str) -> Result<String> {
    let refuse = |message: String| -> Result<String> {
        Err(Error::from(
            Diag::error("E0808", message).help("choose the prefix of the C names: `--prefix NAME`"),
        ))
    };
    let prefix = match asked {
        Some(name) if identifier(name) != name || name.starts_with('_') => {
            return refuse(format!("`{name}` cannot begin the names of C functions"));
        }
        Some(name) => name.to_string(),
        None => identifier(stem).trim_start_matches('_').to_string(),
    };
    if prefix.is_empty() || prefix.starts_with(|c: char| c.is_ascii_digit()) {
        return refuse(format!("`{stem}` gives no name for C functions"));
    }
    if RESERVED_PREFIXES.contains(&prefix.as_str()) {
        return refuse(format!("C functions whose names begin with `{prefix}_` belong to others"));
    }
    Ok(prefix)
}

/// Hash of what a header relies on, whatever its names.
pub fn interface(plan: &Plan) -> u64 {
    let text = body(plan, "m", &format!("v{ABI_VERSION}"), 0);
    let hash = tfc_runtime::hash::hash(text.as_bytes());
    u64::from_le_bytes(std::array::from_fn(|i| hash[i]))
}

/// The header of a model.
pub fn header(plan: &Plan, symbols: &Symbols) -> String {
    let prefix = &symbols.prefix;
    let content = format!("0x{:016x}", symbols.content);
    let guard = format!("TFC_MODEL_{prefix}_H");
    let mut out = format!(
        "/* {}: made by tfc {}; do not edit.\n *\n\
         \x20* Functions return TFC_OK, or a status that is not; {prefix}_error() then says why.\n\
         \x20* Tensors are the caller's: dense, row-major; results overlap nothing. A model may\n\
         \x20* be used by several threads at once. */\n",
        comment(&plan.name),
        env!("CARGO_PKG_VERSION")
    );
    let runtime = RUNTIME.replace("@VERSION@", &ABI_VERSION.to_string());
    let _ = write!(
        out,
        "#ifndef {guard}\n#define {guard} {content}\n\n\
         #include <stddef.h>\n#include <stdint.h>\n\n\
         #ifdef __cplusplus\nextern \"C\" {{\n#endif\n\n{runtime}\n{}\n\
         #ifdef __cplusplus\n}}\n#endif\n\n\
         #elif {guard} != {content}\n\
         #error \"two different models are both called `{prefix}`: give one another --prefix\"\n\
         #endif\n",
        body(plan, prefix, &symbols.library()[0], interface(plan))
    );
    out
}

/// What a header declares of its own model.
fn body(plan: &Plan, prefix: &str, library: &str, interface: u64) -> String {
    let mut out = format!(
        "/* A loaded model: its code and its variables. */\n\
         typedef struct {prefix}_model {prefix}_model;\n\n\
         /* The library this header belongs to. If the linker misses it, the library was made from\n\
         \x20* another graph, with another --prefix or by another tfc: make both at once. */\n\
         extern const tfc_library {library};\n\n\
         /* Loads the model and initialises its variables; NULL on failure. */\n\
         static inline {prefix}_model *{prefix}_load_from(const tfc_library *library,\n\
         \x20   const tfc_options *options) {{\n\
         \x20   return library\n\
         \x20       ? ({prefix}_model *)library->runtime->load(library, UINT64_C({interface}), options)\n\
         \x20       : NULL;\n}}\n\
         static inline {prefix}_model *{prefix}_load_with(const tfc_options *options) {{\n\
         \x20   return {prefix}_load_from(&{library}, options);\n}}\n\
         static inline {prefix}_model *{prefix}_load(void) {{ return {prefix}_load_with(NULL); }}\n\n\
         /* Stops and frees a model nobody uses any more. */\n\
         static inline void {prefix}_free({prefix}_model *model) {{\n\
         \x20   if (model) {{\n\
         \x20       ((tfc_model *)model)->runtime->free((tfc_model *)model);\n\
         \x20   }}\n}}\n\n\
         /* What this thread's last failure was. */\n\
         static inline const char *{prefix}_error(void) {{\n\
         \x20   return {library}.runtime->last_error();\n}}\n"
    );
    let mut taken = Taken::new(FIXED.iter().copied());
    for (i, entry) in plan.entries.iter().enumerate() {
        if plan.init != Some(i as u32) && entry.is_for_users() {
            let name = taken.member(&entry.name);
            Function { plan, entry, prefix, index: i }.write(&mut out, &name);
        }
    }
    for (i, var) in plan.vars.iter().enumerate() {
        if var.user {
            let name = identifier(&var.name);
            let get = taken.member(&format!("get_{name}"));
            let set = taken.member(&format!("set_{name}"));
            accessors(&mut out, prefix, i, var, &get, &set);
        }
    }
    out
}

fn c_type(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "float",
        DType::F64 => "double",
        DType::F16 | DType::BF16 => "uint16_t",
        DType::I8 => "int8_t",
        DType::U8 | DType::Bool => "uint8_t",
        DType::I32 => "int32_t",
        DType::I64 => "int64_t",
    }
}

/// Text that cannot end the comment it stands in.
fn comment(text: &str) -> String {
    text.replace("*/", "* /").replace("/*", "/ *").replace('\n', "\n * ")
}

struct Function<'a> {
    plan: &'a Plan,
    entry: &'a Entry,
    prefix: &'a str,
    index: usize,
}

impl Function<'_> {
    fn write(&self, out: &mut String, name: &str) {
        let (prefix, entry) = (self.prefix, self.entry);
        let (params, results) = (&entry.params, &entry.results);
        let port = |p: &Port| format!("{}: {}", p.name, p.text);
        let _ = write!(
            out,
            "\n/* {}{}{}({}) -> ({}) */\n",
            comment(&entry.doc),
            if entry.doc.is_empty() { "" } else { "\n * " },
            comment(&entry.name),
            comment(&params.iter().map(port).collect::<Vec<_>>().join(", ")),
            comment(&results.iter().map(port).collect::<Vec<_>>().join(", "))
        );
        let shapes =
            |kind: &str, n: usize| (0..n).map(move |i| format!("{kind}_shape{i}")).collect();
        let own: Vec<String> = [
            vec!["model".to_string(), "tfc_feeds".into(), "tfc_results".into()],
            shapes("tfc_feeds", params.len()),
            shapes("tfc_results", results.len()),
        ]
        .concat();
        let mut taken = Taken::new(own.iter().map(String::as_str));
        let mut fresh = |name: &str| taken.parameter(name);
        let dims = self.dims();
        let dim_names: Vec<String> = self
            .plan
            .dims
            .iter()
            .enumerate()
            .map(|(i, d)| if dims.contains(&(i as u32)) { fresh(&d.name) } else { "0".into() })
            .collect();
        let inputs: Vec<String> = params.iter().map(|p| fresh(&p.name)).collect();
        let outputs: Vec<String> = results.iter().map(|p| fresh(&p.name)).collect();

        let mut args = vec![format!("{prefix}_model *model")];
        args.extend(dims.iter().map(|d| format!("int64_t {}", dim_names[*d as usize])));
        args.extend(params.iter().zip(&inputs).map(|(p, name)| {
            let by_value = if p.shape.is_empty() { "" } else { "*" };
            let constant = if p.shape.is_empty() { "" } else { "const " };
            format!("{constant}{} {by_value}{name}", c_type(p.dtype))
        }));
        args.extend(
            results.iter().zip(&outputs).map(|(p, name)| format!("{} *{name}", c_type(p.dtype))),
        );
        let _ = writeln!(out, "static inline int {prefix}_{name}({}) {{", args.join(", "));
        let inputs: Vec<String> = params
            .iter()
            .zip(inputs)
            .map(|(p, name)| if p.shape.is_empty() { format!("&{name}") } else { name })
            .collect();
        self.tensors(out, "tfc_feed", params, &inputs, &dim_names);
        self.tensors(out, "tfc_tensor", results, &outputs, &dim_names);
        let list = |ports: &[Port], name: &str| match ports.len() {
            0 => "NULL, 0".to_string(),
            n => format!("{name}, {n}"),
        };
        let _ = write!(
            out,
            "    return tfc_call((tfc_model *)model, {}, {}, {});\n}}\n",
            self.index,
            list(params, "tfc_feeds"),
            list(results, "tfc_results")
        );
    }

    /// Run-time dims a caller gives: those of parameters and results.
    fn dims(&self) -> BTreeSet<u32> {
        let ports = self.entry.params.iter().chain(&self.entry.results);
        let exprs = ports.flat_map(|p| &p.shape).filter_map(|e| self.entry.exprs.get(*e as usize));
        exprs
            .flat_map(|e| &e.0)
            .filter_map(|op| if let ExprOp::Dim(d) = op { Some(*d) } else { None })
            .collect()
    }

    /// A size in C: arithmetic that says when it overflows.
    fn size(&self, id: ExprId, dims: &[String]) -> String {
        let mut stack: Vec<String> = vec![];
        for op in self.entry.exprs.get(id as usize).map_or(&[][..], |e| &e.0) {
            let mut pop = || stack.pop().unwrap_or_else(|| "0".into());
            let value = match op {
                ExprOp::Const(c) => format!("INT64_C({c})"),
                ExprOp::Dim(d) => dims.get(*d as usize).cloned().unwrap_or_else(|| "0".into()),
                ExprOp::FloorDiv(d) => format!("tfc_div({}, INT64_C({d}))", pop()),
                ExprOp::Add | ExprOp::Mul | ExprOp::Max => {
                    let (b, a) = (pop(), pop());
                    let name = match op {
                        ExprOp::Add => "tfc_add",
                        ExprOp::Mul => "tfc_mul",
                        _ => "tfc_max",
                    };
                    format!("{name}({a}, {b})")
                }
            };
            stack.push(value);
        }
        stack.pop().unwrap_or_else(|| "0".into())
    }

    fn tensors(
        &self,
        out: &mut String,
        kind: &str,
        ports: &[Port],
        data: &[String],
        dims: &[String],
    ) {
        if ports.is_empty() {
            return;
        }
        // Feeds are read only.
        let (list, constant) = match kind {
            "tfc_feed" => ("tfc_feeds", "const "),
            _ => ("tfc_results", ""),
        };
        let mut rows = vec![];
        for (i, (port, data)) in ports.iter().zip(data).enumerate() {
            let sizes: Vec<String> = port.shape.iter().map(|s| self.size(*s, dims)).collect();
            let shape = if sizes.is_empty() {
                "NULL".to_string()
            } else {
                let name = format!("{list}_shape{i}");
                let _ = writeln!(out, "    {constant}int64_t {name}[] = {{{}}};", sizes.join(", "));
                name
            };
            let count = (0..sizes.len())
                .map(|a| format!("{shape}[{a}]"))
                .reduce(|a, b| format!("tfc_mul({a}, {b})"))
                .unwrap_or_else(|| "1".into());
            rows.push(format!(
                "        {{{}, {}, {shape}, {data}, tfc_bytes({count}, sizeof({}))}}",
                port.dtype as u8,
                sizes.len(),
                c_type(port.dtype)
            ));
        }
        let _ = writeln!(out, "    {constant}{kind} {list}[] = {{\n{},\n    }};", rows.join(",\n"));
    }
}

fn accessors(out: &mut String, prefix: &str, index: usize, var: &VarInfo, get: &str, set: &str) {
    let ty = c_type(var.dtype);
    let count: i64 = var.shape.iter().product();
    let sizes: Vec<String> = var.shape.iter().map(i64::to_string).collect();
    let _ = write!(
        out,
        "\n/* Variable {}: {}[{}], {count} elements. */\n\
         static inline int {prefix}_{get}({prefix}_model *model, {ty} *out) {{\n\
         \x20   return tfc_var_get((tfc_model *)model, {index}, out, {count} * sizeof({ty}));\n}}\n\
         static inline int {prefix}_{set}({prefix}_model *model, const {ty} *value) {{\n\
         \x20   return tfc_var_set((tfc_model *)model, {index}, value, {count} * sizeof({ty}));\n}}\n",
        comment(&var.name),
        var.dtype,
        sizes.join(", ")
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_cannot_be_closed_from_inside() {
        assert_eq!(comment("a */ b"), "a * / b");
    }

    #[test]
    fn the_table_of_functions_is_the_runtimes() {
        let table =
            RUNTIME.split("struct tfc_runtime {").nth(1).unwrap().split("};").next().unwrap();
        let names: Vec<&str> = table
            .match_indices("(*")
            .map(|(i, _)| table[i + 2..].split(')').next().unwrap())
            .collect();
        assert_eq!(names, tfc_runtime::capi::FUNCTIONS);
    }

    #[test]
    fn prefixes_are_the_users() {
        assert_eq!(prefix(None, "net-2").unwrap(), "net_2");
        assert_eq!(prefix(None, "2net").unwrap_err().code(), "E0808");
        assert_eq!(prefix(Some("a-b"), "net").unwrap_err().code(), "E0808");
        assert_eq!(prefix(Some("my_net"), "net").unwrap(), "my_net");
        // embedding 9: a graph named as the interface itself.
        assert_eq!(prefix(None, "tfc").unwrap_err().code(), "E0808");
    }
}
