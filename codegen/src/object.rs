//! A relocatable object file.

use crate::target::{Cpu, Isa, isas};
use crate::{CodegenError, backend, check, define_kernels, prepare};
use cranelift_codegen::Context;
use cranelift_codegen::ir::{AbiParam, Function, InstBuilder, Signature, UserFuncName, types};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_module::{DataDescription, DataId, FuncId, Linkage, Module, default_libcall_names};
use cranelift_object::{ObjectBuilder, ObjectModule};
use std::mem::{offset_of, size_of};
use tfc_abi::{ABI_VERSION, BUFFER_ALIGN, LibraryDesc, ProgramDesc};
use tfc_kernel::program::Program;

#[derive(Clone, Debug)]
pub struct ObjectOptions {
    pub exports: Exports,
    pub cpu: Cpu,
    /// As Rust names it; the machine that compiles if none.
    pub triple: Option<String>,
}

/// What the object offers to others; all else in it is its own.
#[derive(Clone, Debug)]
pub enum Exports {
    /// `main`, which calls this function of the runtime with the program:
    /// `main(argc, argv)` is `function(argc, argv, &program)`.
    Main { function: String },
    /// A [`LibraryDesc`] under each of these names.
    Library {
        names: Vec<String>,
        /// Hash of what the header relies on.
        interface: u64,
        /// The runtime's table of functions.
        runtime: String,
    },
}

/// The bytes of an object file.
pub fn object(program: &Program, options: &ObjectOptions) -> Result<Vec<u8>, CodegenError> {
    check(program)?;
    let kernels: Vec<_> = program.kernels.iter().map(prepare).collect::<Result<_, _>>()?;
    let isas = isas(options.cpu, true, options.triple.as_deref())?;
    let mut builder = ObjectBuilder::new(
        isas[0].isa.clone(),
        program.plan.name.as_bytes().to_vec(),
        default_libcall_names(),
    )
    .map_err(backend)?;
    builder.per_function_section(false);
    let mut module = ObjectModule::new(builder);
    let mut tables = vec![];
    for (version, isa) in isas.iter().enumerate() {
        let suffix = if version == 0 { "" } else { "_baseline" };
        let symbol =
            |i: usize, k: &tfc_kernel::Kernel| format!("kernel{i}_{}{suffix}", c_name(&k.name));
        let ids = define_kernels(&mut module, isa.isa.as_ref(), &kernels, &symbol)?;
        tables.push(table(&mut module, &format!("kernels{suffix}"), &ids)?);
    }
    let plan = bytes(&mut module, "plan", program.plan.encode(), 16)?;
    let consts = bytes(&mut module, "consts", program.consts.clone(), BUFFER_ALIGN)?;
    let desc = module.declare_data("program", Linkage::Local, false, false).map_err(backend)?;
    descriptor(&mut module, desc, program, &isas, &tables, plan, consts)?;
    match &options.exports {
        Exports::Main { function } => main_function(&mut module, &isas[0], desc, function)?,
        Exports::Library { names, interface, runtime } => {
            library(&mut module, desc, names, *interface, runtime)?;
        }
    }
    module.finish().emit().map_err(backend)
}

/// Kernel names are made from node names; a symbol takes letters and digits.
fn c_name(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).take(48).collect()
}

fn bytes(
    module: &mut ObjectModule,
    name: &str,
    mut contents: Vec<u8>,
    align: usize,
) -> Result<DataId, CodegenError> {
    if contents.is_empty() {
        contents.push(0);
    }
    let id = module.declare_data(name, Linkage::Local, false, false).map_err(backend)?;
    let mut data = DataDescription::new();
    data.define(contents.into());
    data.set_align(align as u64);
    module.define_data(id, &data).map_err(backend)?;
    Ok(id)
}

fn table(module: &mut ObjectModule, name: &str, ids: &[FuncId]) -> Result<DataId, CodegenError> {
    let id = module.declare_data(name, Linkage::Local, false, false).map_err(backend)?;
    let mut data = DataDescription::new();
    data.define(vec![0; 8 * ids.len().max(1)].into());
    data.set_align(8);
    for (i, func) in ids.iter().enumerate() {
        let func = module.declare_func_in_data(*func, &mut data);
        data.write_function_addr(8 * i as u32, func);
    }
    module.define_data(id, &data).map_err(backend)?;
    Ok(id)
}

fn descriptor(
    module: &mut ObjectModule,
    id: DataId,
    program: &Program,
    isas: &[Isa],
    tables: &[DataId],
    plan: DataId,
    consts: DataId,
) -> Result<(), CodegenError> {
    let mut image = vec![0u8; size_of::<ProgramDesc>()];
    let mut put = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
    let plan_len = program.plan.encode().len();
    put(offset_of!(ProgramDesc, version), &ABI_VERSION.to_le_bytes());
    put(offset_of!(ProgramDesc, cpu_features), &isas[0].features.to_le_bytes());
    put(offset_of!(ProgramDesc, plan_len), &plan_len.to_le_bytes());
    put(offset_of!(ProgramDesc, kernel_count), &program.kernels.len().to_le_bytes());
    put(offset_of!(ProgramDesc, consts_len), &program.consts.len().to_le_bytes());
    if let Some(baseline) = isas.get(1) {
        put(offset_of!(ProgramDesc, baseline_features), &baseline.features.to_le_bytes());
    }
    let mut data = DataDescription::new();
    data.define(image.into());
    data.set_align(8);
    let pointers = [
        (offset_of!(ProgramDesc, plan), Some(&plan)),
        (offset_of!(ProgramDesc, kernels), tables.first()),
        (offset_of!(ProgramDesc, consts), Some(&consts)),
        (offset_of!(ProgramDesc, baseline), tables.get(1)),
    ];
    for (at, target) in pointers {
        if let Some(target) = target {
            let target = module.declare_data_in_data(*target, &mut data);
            data.write_data_addr(at as u32, target, 0);
        }
    }
    module.define_data(id, &data).map_err(backend)
}

/// A copy of the library's descriptor for each name it goes by.
fn library(
    module: &mut ObjectModule,
    program: DataId,
    names: &[String],
    interface: u64,
    runtime: &str,
) -> Result<(), CodegenError> {
    let runtime = module.declare_data(runtime, Linkage::Import, false, false).map_err(backend)?;
    let mut image = vec![0u8; size_of::<LibraryDesc>()];
    let mut put = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
    put(offset_of!(LibraryDesc, version), &ABI_VERSION.to_le_bytes());
    put(offset_of!(LibraryDesc, interface), &interface.to_le_bytes());
    for name in names {
        let id = module.declare_data(name, Linkage::Export, false, false).map_err(backend)?;
        let mut data = DataDescription::new();
        data.define(image.clone().into());
        data.set_align(8);
        let pointers = [
            (offset_of!(LibraryDesc, runtime), runtime),
            (offset_of!(LibraryDesc, program), program),
        ];
        for (at, target) in pointers {
            let target = module.declare_data_in_data(target, &mut data);
            data.write_data_addr(at as u32, target, 0);
        }
        module.define_data(id, &data).map_err(backend)?;
    }
    Ok(())
}

/// `int main(int argc, char **argv) { return function(argc, argv, &program); }`
fn main_function(
    module: &mut ObjectModule,
    isa: &Isa,
    desc: DataId,
    function: &str,
) -> Result<(), CodegenError> {
    let isa = isa.isa.as_ref();
    let pointer = AbiParam::new(types::I64);
    let int = AbiParam::new(types::I32);
    let mut sig = Signature::new(isa.default_call_conv());
    sig.returns.push(int);
    sig.params = vec![int, pointer];
    let mut callee_sig = sig.clone();
    callee_sig.params.push(pointer);
    let callee =
        module.declare_function(function, Linkage::Import, &callee_sig).map_err(backend)?;
    let id = module.declare_function("main", Linkage::Export, &sig).map_err(backend)?;
    let mut func = Function::with_name_signature(UserFuncName::user(0, id.as_u32()), sig);
    let callee = module.declare_func_in_func(callee, &mut func);
    let desc = module.declare_data_in_func(desc, &mut func);
    let mut frame = FunctionBuilderContext::new();
    let mut b = FunctionBuilder::new(&mut func, &mut frame);
    let block = b.create_block();
    b.append_block_params_for_function_params(block);
    b.switch_to_block(block);
    let mut args = b.block_params(block).to_vec();
    args.push(b.ins().symbol_value(types::I64, desc));
    let call = b.ins().call(callee, &args);
    let result = b.inst_results(call).to_vec();
    b.ins().return_(&result);
    b.seal_all_blocks();
    b.finalize(isa.frontend_config());
    let mut ctx = Context::for_function(func);
    module.define_function(id, &mut ctx).map_err(backend)?;
    Ok(())
}
