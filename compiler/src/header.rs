//! The C header of a model: typed functions over the runtime's C interface.
//!
//! Per model `m`: `m_load`, `m_free`, `m_error`, one function an entry, a getter
//! and a setter a variable, `m_save` and `m_restore`. They are `static inline`, so
//! the library exports only the program and the runtime's own functions, and two
//! models in one program share one runtime.

use crate::dump;
use std::collections::BTreeSet;
use std::fmt::Write;
use tfc_abi::DType;
use tfc_abi::plan::{Entry, ExprId, ExprOp, Plan, Port, VarInfo};

/// A name as a C identifier.
pub fn identifier(name: &str) -> String {
    let mut out: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if out.starts_with(|c: char| c.is_ascii_digit()) || out.is_empty() {
        out.insert(0, '_');
    }
    if KEYWORDS.contains(&out.as_str()) {
        out.push('_');
    }
    out
}

/// Words C or C++ keeps for itself, and names the header uses.
const KEYWORDS: &[&str] = &[
    "alignas",
    "alignof",
    "and",
    "asm",
    "auto",
    "bool",
    "break",
    "case",
    "catch",
    "char",
    "class",
    "const",
    "constexpr",
    "continue",
    "default",
    "delete",
    "do",
    "double",
    "else",
    "enum",
    "errno",
    "explicit",
    "export",
    "extern",
    "false",
    "float",
    "for",
    "friend",
    "goto",
    "if",
    "inline",
    "int",
    "long",
    "main",
    "model",
    "mutable",
    "namespace",
    "new",
    "not",
    "nullptr",
    "operator",
    "or",
    "private",
    "protected",
    "public",
    "register",
    "restrict",
    "return",
    "short",
    "signed",
    "sizeof",
    "static",
    "struct",
    "switch",
    "template",
    "this",
    "throw",
    "true",
    "try",
    "typedef",
    "typename",
    "union",
    "unsigned",
    "using",
    "virtual",
    "void",
    "volatile",
    "while",
    "xor",
    "feeds",
    "results",
];

/// What every header of ours declares, once a translation unit.
const RUNTIME: &str = "\
#ifndef TFC_RUNTIME_H
#define TFC_RUNTIME_H
typedef struct tfc_program tfc_program;
typedef struct tfc_model tfc_model;
typedef struct tfc_tensor {
    uint32_t dtype; /* f32 0, f64 1, f16 2, bf16 3, i8 4, u8 5, i32 6, i64 7, bool 8 */
    uint32_t rank;
    int64_t *shape;
    void *data;
    size_t bytes;
} tfc_tensor;
uint32_t tfc_abi_version(void);
const char *tfc_last_error(void);
const char *tfc_last_error_code(void);
tfc_model *tfc_model_new(const tfc_program *program, uint32_t threads);
void tfc_model_free(tfc_model *model);
int tfc_model_entry(const tfc_model *model, const char *name);
int tfc_model_call(const tfc_model *model, int entry, const tfc_tensor *feeds, size_t feed_count,
                   tfc_tensor *results, size_t result_count);
int tfc_model_result_shape(const tfc_model *model, int entry, const tfc_tensor *feeds,
                           size_t feed_count, size_t result, int64_t *shape, size_t rank);
size_t tfc_var_count(const tfc_model *model);
int tfc_var_index(const tfc_model *model, const char *name);
int tfc_var_get(const tfc_model *model, int var, void *data, size_t bytes);
int tfc_var_set(const tfc_model *model, int var, const void *data, size_t bytes);
int tfc_model_save(const tfc_model *model, const char *path);
int tfc_model_restore(const tfc_model *model, const char *path);
static inline int64_t tfc_max(int64_t a, int64_t b) { return a > b ? a : b; }
static inline size_t tfc_bytes(int64_t count, size_t size) {
    return count > 0 ? (size_t)count * size : 0;
}
#endif
";

/// The header of a model whose symbols start with `prefix`.
pub fn header(plan: &Plan, prefix: &str) -> String {
    let guard = format!("{}_H", prefix.to_uppercase());
    let mut out = format!(
        "/* {}: made by tfc {}; do not edit.\n *\n\
         \x20* Functions return 0, or a status that is not; {prefix}_error() then says why.\n\
         \x20* Tensors are the caller's: dense, row-major. A model may be used by several\n\
         \x20* threads at once. */\n",
        plan.name,
        env!("CARGO_PKG_VERSION")
    );
    let _ = write!(
        out,
        "#ifndef {guard}\n#define {guard}\n\n#include <stddef.h>\n#include <stdint.h>\n\n\
         #ifdef __cplusplus\nextern \"C\" {{\n#endif\n\n{RUNTIME}\n"
    );
    let _ = write!(
        out,
        "/* A loaded model: its code and its variables. */\n\
         typedef struct {prefix} {prefix};\n\
         extern const tfc_program {prefix}_program;\n\n\
         /* Loads the model and initialises its variables; NULL on failure. */\n\
         static inline {prefix} *{prefix}_load(void) {{\n\
         \x20   return ({prefix} *)tfc_model_new(&{prefix}_program, 0);\n}}\n\n\
         /* Frees a model nobody uses any more. */\n\
         static inline void {prefix}_free({prefix} *model) {{\n\
         \x20   tfc_model_free((tfc_model *)model);\n}}\n\n\
         /* What this thread's last failure was. */\n\
         static inline const char *{prefix}_error(void) {{ return tfc_last_error(); }}\n"
    );
    for (i, entry) in plan.entries.iter().enumerate() {
        if plan.init != Some(i as u32) && !entry.runner {
            Function { plan, entry, prefix, index: i }.write(&mut out);
        }
    }
    for (i, var) in plan.vars.iter().enumerate() {
        if var.user {
            accessors(&mut out, prefix, i, var);
        }
    }
    if !plan.vars.is_empty() {
        let _ = write!(
            out,
            "\n/* Writes all variables to a .safetensors file, or reads them back. */\n\
             static inline int {prefix}_save({prefix} *model, const char *path) {{\n\
             \x20   return tfc_model_save((tfc_model *)model, path);\n}}\n\
             static inline int {prefix}_restore({prefix} *model, const char *path) {{\n\
             \x20   return tfc_model_restore((tfc_model *)model, path);\n}}\n"
        );
    }
    out.push_str("\n#ifdef __cplusplus\n}\n#endif\n\n#endif\n");
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
    text.replace("*/", "* /").replace('\n', "\n * ")
}

struct Function<'a> {
    plan: &'a Plan,
    entry: &'a Entry,
    prefix: &'a str,
    index: usize,
}

impl Function<'_> {
    fn write(&self, out: &mut String) {
        let (prefix, entry) = (self.prefix, self.entry);
        let (params, results) = (&entry.params, &entry.results);
        let port = |p: &Port| format!("{}: {}", p.name, p.text);
        let _ = write!(
            out,
            "\n/* {}{}{}({}) -> ({}) */\n",
            comment(&entry.doc),
            if entry.doc.is_empty() { "" } else { "\n * " },
            entry.name,
            params.iter().map(port).collect::<Vec<_>>().join(", "),
            results.iter().map(port).collect::<Vec<_>>().join(", ")
        );
        let mut taken = BTreeSet::new();
        let mut fresh = |name: &str| {
            let mut id = identifier(name);
            while !taken.insert(id.clone()) {
                id.push('_');
            }
            id
        };
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

        let mut args = vec![format!("{prefix} *model")];
        args.extend(dims.iter().map(|d| format!("int64_t {}", dim_names[*d as usize])));
        args.extend(params.iter().zip(&inputs).map(|(p, name)| {
            let by_value = if p.shape.is_empty() { "" } else { "*" };
            let constant = if p.shape.is_empty() { "" } else { "const " };
            format!("{constant}{} {by_value}{name}", c_type(p.dtype))
        }));
        args.extend(
            results.iter().zip(&outputs).map(|(p, name)| format!("{} *{name}", c_type(p.dtype))),
        );
        let name = identifier(&entry.name);
        let _ = writeln!(out, "static inline int {prefix}_{name}({}) {{", args.join(", "));
        let inputs: Vec<String> = params
            .iter()
            .zip(inputs)
            .map(|(p, name)| if p.shape.is_empty() { format!("&{name}") } else { name })
            .collect();
        self.tensors(out, "feeds", params, &inputs, &dim_names);
        self.tensors(out, "results", results, &outputs, &dim_names);
        let list = |ports: &[Port], name: &str| match ports.len() {
            0 => "NULL, 0".to_string(),
            n => format!("{name}, {n}"),
        };
        let _ = write!(
            out,
            "    return tfc_model_call((tfc_model *)model, {}, {}, {});\n}}\n",
            self.index,
            list(params, "feeds"),
            list(results, "results")
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

    fn size(&self, id: ExprId, dims: &[String]) -> String {
        match self.entry.exprs.get(id as usize) {
            Some(e) => dump::expr(e, dims).replace("max(", "tfc_max("),
            None => "0".into(),
        }
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
        let mut rows = vec![];
        for (i, (port, data)) in ports.iter().zip(data).enumerate() {
            let sizes: Vec<String> = port.shape.iter().map(|s| self.size(*s, dims)).collect();
            let shape = if sizes.is_empty() {
                "NULL".to_string()
            } else {
                let name = format!("{kind}_shape{i}");
                let _ = writeln!(out, "    int64_t {name}[] = {{{}}};", sizes.join(", "));
                name
            };
            let count = match sizes.len() {
                0 => "1".to_string(),
                n => (0..n).map(|a| format!("{shape}[{a}]")).collect::<Vec<_>>().join(" * "),
            };
            rows.push(format!(
                "        {{{}, {}, {shape}, (void *){data}, tfc_bytes({count}, sizeof({}))}}",
                port.dtype as u8,
                sizes.len(),
                c_type(port.dtype)
            ));
        }
        let _ = writeln!(out, "    tfc_tensor {kind}[] = {{\n{},\n    }};", rows.join(",\n"));
    }
}

fn accessors(out: &mut String, prefix: &str, index: usize, var: &VarInfo) {
    let (name, ty) = (identifier(&var.name), c_type(var.dtype));
    let count: i64 = var.shape.iter().product();
    let sizes: Vec<String> = var.shape.iter().map(i64::to_string).collect();
    let _ = write!(
        out,
        "\n/* Variable {}: {}[{}], {count} elements. */\n\
         static inline int {prefix}_get_{name}({prefix} *model, {ty} *out) {{\n\
         \x20   return tfc_var_get((tfc_model *)model, {index}, out, {count} * sizeof({ty}));\n}}\n\
         static inline int {prefix}_set_{name}({prefix} *model, const {ty} *value) {{\n\
         \x20   return tfc_var_set((tfc_model *)model, {index}, value, {count} * sizeof({ty}));\n}}\n",
        var.name,
        var.dtype,
        sizes.join(", ")
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_legal_c() {
        assert_eq!(identifier("mlp"), "mlp");
        assert_eq!(identifier("2d-net"), "_2d_net");
        assert_eq!(identifier("class"), "class_");
        assert_eq!(identifier(""), "_");
    }

    #[test]
    fn comments_cannot_be_closed_from_inside() {
        assert_eq!(comment("a */ b"), "a * / b");
    }
}
