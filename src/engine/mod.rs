//! The engines: the same operations on the same file, with the same answers.

pub mod cpu;

use crate::options::{Engine, Options};
use crate::{Error, Result};
use cpu::CpuEngine;

/// The engine of an open index.
pub(crate) enum Backend {
    Cpu(CpuEngine),
}

impl Backend {
    /// The engine that the options ask for.
    pub(crate) fn choose(options: &Options) -> Result<Self> {
        match options.engine {
            Engine::Auto | Engine::Cpu => Ok(Backend::Cpu(CpuEngine::new(options.threads))),
            Engine::Cuda { device } => Err(Error::Gpu {
                what: "opening the device",
                found: format!("device {device} asked of a build without the feature `cuda`"),
                expected: "build with `--features cuda`, or use Engine::Auto or Engine::Cpu".into(),
            }),
        }
    }

    /// Which engine this is.
    pub(crate) fn engine(&self) -> Engine {
        match self {
            Backend::Cpu(_) => Engine::Cpu,
        }
    }
}
