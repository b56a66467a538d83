//! A relocatable object file.

use crate::target::{Cpu, Version, versions};
use crate::wide::Wide;
use crate::{
    CodegenError, KernelCode, backend, check, cranelift_kernel, define_kernel, parallel, prepare,
    wide_kernel,
};
use cranelift_codegen::Context;
use cranelift_codegen::ir::{AbiParam, Function, InstBuilder, Signature, UserFuncName, types};
use cranelift_codegen::isa::TargetIsa;
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_module::{DataDescription, DataId, FuncId, Linkage, Module, default_libcall_names};
use cranelift_object::{ObjectBuilder, ObjectModule};
use std::borrow::Cow;
use std::mem::{offset_of, size_of};
use tfc_abi::plan::{Plan, Step};
use tfc_abi::{ABI_VERSION, BUFFER_ALIGN, LibraryDesc, ProgramDesc};
use tfc_kernel::Kernel;
use tfc_kernel::program::Program;

#[derive(Clone, Debug)]
pub struct ObjectOptions {
    pub exports: Exports,
    pub cpu: Cpu,
    /// As Rust names it; the machine that compiles if none.
    pub triple: Option<String>,
    /// What it carries for GPUs.
    pub gpu: Option<ForGpu>,
    /// What of the runtime convolves, by its symbol: programs that do not are linked
    /// without it.
    pub conv: String,
    /// What of the runtime makes it part of a job, likewise, for programs that can be.
    pub jobs: String,
}

/// Code for GPUs beside that for the CPU.
#[derive(Clone, Debug)]
pub struct ForGpu {
    /// An encoded [`tfc_abi::gpu::Gpu`].
    pub table: Vec<u8>,
    /// What of the runtime drives them, by its symbol.
    pub driver: String,
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
    let versions = versions(options.cpu, true, options.triple.as_deref())?;
    let isa = &versions[0].isa.isa;
    let mut builder = ObjectBuilder::new(
        isa.clone(),
        program.plan.name.as_bytes().to_vec(),
        default_libcall_names(),
    )
    .map_err(backend)?;
    builder.per_function_section(false);
    let mut module = ObjectModule::new(builder);
    let tables = kernel_tables(&mut module, &kernels, &versions)?;
    let plan = bytes(&mut module, "plan", program.plan.encode(), 16)?;
    let consts = bytes(&mut module, "consts", program.consts.clone(), BUFFER_ALIGN)?;
    let desc = module.declare_data("program", Linkage::Local, false, false).map_err(backend)?;
    let versions = version_list(&mut module, &versions, &tables)?;
    let mut parts = vec![
        (offset_of!(ProgramDesc, plan), plan),
        (offset_of!(ProgramDesc, versions), versions),
        (offset_of!(ProgramDesc, consts), consts),
    ];
    let mut gpu_len = 0;
    if let Some(gpu) = &options.gpu {
        gpu_len = gpu.table.len();
        let driver = module.declare_data(&gpu.driver, Linkage::Import, false, false);
        parts.push((
            offset_of!(ProgramDesc, gpu),
            bytes(&mut module, "gpu", gpu.table.clone(), 16)?,
        ));
        parts.push((offset_of!(ProgramDesc, gpu_driver), driver.map_err(backend)?));
    }
    if convolves(&program.plan) {
        let conv = module.declare_data(&options.conv, Linkage::Import, false, false);
        parts.push((offset_of!(ProgramDesc, conv), conv.map_err(backend)?));
    }
    // Of a library, who uses it is in charge.
    if matches!(options.exports, Exports::Main { .. }) && program.plan.fits_a_job() {
        let jobs = module.declare_data(&options.jobs, Linkage::Import, false, false);
        parts.push((offset_of!(ProgramDesc, jobs), jobs.map_err(backend)?));
    }
    descriptor(&mut module, desc, program, tables.len(), gpu_len, &parts)?;
    match &options.exports {
        Exports::Main { function } => main_function(&mut module, isa.as_ref(), desc, function)?,
        Exports::Library { names, interface, runtime } => {
            library(&mut module, desc, names, *interface, runtime)?;
        }
    }
    module.finish().emit().map_err(backend)
}

/// Whether any step of the plan is a convolution.
fn convolves(plan: &Plan) -> bool {
    fn any(steps: &[Step]) -> bool {
        steps.iter().any(|step| match step {
            Step::Conv(_) => true,
            Step::If { then: a, otherwise: b, .. } | Step::While { head: a, body: b, .. } => {
                any(a) || any(b)
            }
            _ => false,
        })
    }
    plan.entries.iter().any(|e| any(&e.steps))
}

/// Compiles every kernel in every version and gives the table of each.
///
/// A version that cannot or need not have a kernel of its own has that of the next
/// one, if that is wide too.
fn kernel_tables(
    module: &mut ObjectModule,
    kernels: &[Cow<'_, Kernel>],
    versions: &[Version],
) -> Result<Vec<DataId>, CodegenError> {
    let mut tables = vec![vec![]; versions.len()];
    let compiled = parallel::map(kernels, |i, kernel| kernel_versions(kernel, versions, i));
    for ((i, kernel), codes) in kernels.iter().enumerate().zip(compiled) {
        let mut last = None;
        for ((version, table), code) in versions.iter().zip(&mut tables).rev().zip(codes?) {
            let symbol = format!("kernel{i}_{}{}", c_name(&kernel.name), version.name);
            let conv = version.isa.isa.default_call_conv();
            let id = match (code, last) {
                (None, Some(id)) => id,
                (Some(code), _) => define_kernel(module, conv, &symbol, &code)?,
                (None, None) => return Err(CodegenError::Backend("no code to share".into())),
            };
            last = Some(id);
            table.push(id);
        }
    }
    let name = |v: &Version| format!("kernels{}", v.name);
    versions.iter().zip(&tables).map(|(v, ids)| table(module, &name(v), ids)).collect()
}

/// The code of a kernel for each version, from the plainest on; none where it is that
/// of the one before.
fn kernel_versions(
    kernel: &Kernel,
    versions: &[Version],
    at: usize,
) -> Result<Vec<Option<KernelCode>>, CodegenError> {
    let mut codes = vec![];
    let mut before: Option<Vec<Wide>> = None;
    for version in versions.iter().rev() {
        let wide = wide_kernel(kernel, &version.wide);
        let made_with: Vec<Wide> = wide.iter().map(|(with, _)| *with).collect();
        let shares = before.as_ref().is_some_and(|before| match wide {
            Some(_) => *before == made_with,
            None => !version.wide.is_empty() && before.is_empty(),
        });
        codes.push(match wide {
            _ if shares => None,
            Some((_, code)) => Some(code),
            None => Some(cranelift_kernel(kernel, version.isa.isa.as_ref(), at)?),
        });
        // What Cranelift made for an older CPU is not for a newer one.
        before = (!version.wide.is_empty()).then_some(made_with);
    }
    Ok(codes)
}

/// The list of versions that the descriptor points at.
fn version_list(
    module: &mut ObjectModule,
    versions: &[Version],
    tables: &[DataId],
) -> Result<DataId, CodegenError> {
    let size = size_of::<tfc_abi::Version>();
    let mut image = vec![0u8; size * versions.len()];
    let mut data = DataDescription::new();
    for (i, version) in versions.iter().enumerate() {
        let at = size * i + offset_of!(tfc_abi::Version, features);
        image[at..at + 4].copy_from_slice(&version.features.to_le_bytes());
    }
    data.define(image.into());
    data.set_align(8);
    for (i, table) in tables.iter().enumerate() {
        let at = size * i + offset_of!(tfc_abi::Version, kernels);
        let table = module.declare_data_in_data(*table, &mut data);
        data.write_data_addr(at as u32, table, 0);
    }
    let id = module.declare_data("versions", Linkage::Local, false, false).map_err(backend)?;
    module.define_data(id, &data).map_err(backend)?;
    Ok(id)
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
    version_count: usize,
    gpu_len: usize,
    parts: &[(usize, DataId)],
) -> Result<(), CodegenError> {
    let mut image = vec![0u8; size_of::<ProgramDesc>()];
    let mut put = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
    let plan_len = program.plan.encode().len();
    put(offset_of!(ProgramDesc, version), &ABI_VERSION.to_le_bytes());
    put(offset_of!(ProgramDesc, version_count), &(version_count as u32).to_le_bytes());
    put(offset_of!(ProgramDesc, plan_len), &plan_len.to_le_bytes());
    put(offset_of!(ProgramDesc, kernel_count), &program.kernels.len().to_le_bytes());
    put(offset_of!(ProgramDesc, consts_len), &program.consts.len().to_le_bytes());
    put(offset_of!(ProgramDesc, gpu_len), &gpu_len.to_le_bytes());
    let mut data = DataDescription::new();
    data.define(image.into());
    data.set_align(8);
    for (at, target) in parts {
        let target = module.declare_data_in_data(*target, &mut data);
        data.write_data_addr(*at as u32, target, 0);
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
    isa: &dyn TargetIsa,
    desc: DataId,
    function: &str,
) -> Result<(), CodegenError> {
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
