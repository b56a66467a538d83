//! Which devices a program runs on, chosen when it is loaded.

use crate::cuda;
use crate::device::Accelerator;
use crate::error::{Error, ErrorCode, Result};
use std::sync::Arc;
use tfc_abi::ProgramDesc;
use tfc_abi::gpu::Gpu;
use tfc_abi::place::Placed;
use tfc_abi::plan::{DeviceKind, Plan};

/// What a program is to run on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// A GPU, if the program has code for it and there is one; else the CPU.
    #[default]
    Any,
    Cpu,
    /// A GPU, or nothing.
    Gpu,
    /// The GPU of this number, or nothing.
    Cuda(u32),
}

impl Choice {
    /// As the command line and C have it: `cpu`, `cuda` or `cuda:1`.
    pub fn parse(text: &str) -> Option<Choice> {
        match text.split_once(':') {
            None if text == "cpu" => Some(Choice::Cpu),
            None if text == "cuda" => Some(Choice::Gpu),
            Some(("cuda", number)) => number.parse().ok().map(Choice::Cuda),
            _ => None,
        }
    }
}

/// A plan on the devices that were chosen.
pub(crate) struct Chosen {
    pub placed: Placed,
    pub accelerator: Option<Arc<dyn Accelerator>>,
    /// Why it is the CPU, where a GPU could have been.
    pub instead: Option<Error>,
}

/// Of several processes on a machine the one of number `turn` takes that GPU, where none was
/// named.
///
/// # Safety
/// What the descriptor says of GPUs is there.
pub(crate) unsafe fn choose(
    desc: &ProgramDesc,
    plan: Plan,
    choice: Choice,
    turn: usize,
) -> Result<Chosen> {
    let on_cpu = |plan: Plan, instead| {
        let origins = plan.entries.iter().map(|e| (0..e.buffers.len() as u32).collect());
        let placed = Placed { origins: origins.collect(), plan };
        Chosen { placed, accelerator: None, instead }
    };
    let asks = asks(&plan);
    if choice == Choice::Cpu {
        let told = asks.map(|_| Error::usage(ErrorCode::NO_GPU, "it was told to"));
        return Ok(on_cpu(plan, told));
    }
    if desc.gpu.is_null() || desc.gpu_driver.is_null() {
        let why = Error::usage(ErrorCode::NO_GPU, "this program has code for the CPU alone")
            .help("compile it with `tfc compile --target cuda`");
        return match (choice, asks) {
            (Choice::Cuda(_) | Choice::Gpu, _) => Err(why),
            (_, Some(_)) => Ok(on_cpu(plan, Some(why))),
            (_, None) => Ok(on_cpu(plan, None)),
        };
    }
    // SAFETY: the caller's promise.
    let code = unsafe { std::slice::from_raw_parts(desc.gpu, desc.gpu_len) };
    let code = Gpu::decode(code)
        .map_err(|e| Error::io(ErrorCode::DAMAGED_PROGRAM, format!("the code for GPUs: {e}")))?;
    // SAFETY: as above.
    let driver = unsafe { &*desc.gpu_driver.cast::<cuda::Entry>() };
    let alone = plan.gpus() == [0];
    let opened = match choice {
        Choice::Cuda(n) => Ok(n),
        _ if turn == 0 || !alone => Ok(0),
        _ => (driver.count)().map(|count| turn as u32 % count.max(1)),
    };
    // The GPU that was chosen is `/gpu:0`, and the others are counted from there.
    let opened = opened.and_then(|number| {
        let numbers: Vec<u32> = plan.gpus().iter().map(|n| number.saturating_add(*n)).collect();
        Ok((number, (driver.open)(code, &numbers, driver.direct)?))
    });
    let (number, accelerator) = match opened {
        Ok(opened) => opened,
        Err(e) => {
            return match (choice, asks) {
                (Choice::Any, _) => Ok(on_cpu(plan, Some(e))),
                (_, Some(what)) => Err(e.note(what)),
                (_, None) => Err(e),
            };
        }
    };
    let placed = (driver.place)(&plan, number, &*accelerator);
    placed.plan.check().map_err(|e| Error::bug(format!("a plan with a GPU: {e}")))?;
    Ok(Chosen { placed, accelerator: Some(accelerator), instead: None })
}

/// Which GPUs parts of a program were placed on, in a sentence; none if none were.
pub(crate) fn asks(plan: &Plan) -> Option<String> {
    let gpus = plan.asked.iter().filter(|d| d.kind == DeviceKind::Cuda);
    let names: Vec<String> = gpus.map(|d| format!("`{}`", d.placement)).collect();
    (!names.is_empty()).then(|| format!("parts of the graph are placed on {}", names.join(", ")))
}
