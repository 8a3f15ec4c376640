//! The workloads that are measured beside their limits.

use crate::workload::distribution::Law;
use crate::workload::plan::Workload;

/// A workload with its law.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Load,
    Uniform,
    Zipf,
    Absent,
    Update,
    Mixed,
}

impl Kind {
    /// What runs on a loaded table.
    pub const ON_LOADED: [Kind; 5] = [
        Kind::Uniform,
        Kind::Zipf,
        Kind::Absent,
        Kind::Update,
        Kind::Mixed,
    ];

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Load => "load",
            Kind::Uniform => "get, uniform",
            Kind::Zipf => "get, Zipf 0.99",
            Kind::Absent => "get, absent",
            Kind::Update => "update, uniform",
            Kind::Mixed => "YCSB-A, Zipf 0.99",
        }
    }

    /// The verbs.
    pub fn workload(self) -> Workload {
        match self {
            Kind::Load => Workload::Load,
            Kind::Uniform | Kind::Zipf => Workload::C,
            Kind::Absent => Workload::Negative,
            Kind::Update => Workload::Update,
            Kind::Mixed => Workload::A,
        }
    }

    /// How records are drawn.
    pub fn law(self) -> Law {
        match self {
            Kind::Zipf | Kind::Mixed => Law::Zipfian,
            _ => Law::Uniform,
        }
    }
}

/// What stands in the way of a workload.
pub struct Limit {
    pub kind: Kind,
    /// Operations of a batch; a CPU does the same at every batch size.
    pub batch: Option<usize>,
    /// Million operations a second.
    pub mops: f64,
    /// What it is made of.
    pub what: String,
}

/// The limit of a workload in batches of this size, if it has been measured.
pub fn limit_of(limits: &[Limit], kind: Kind, batch: usize) -> Option<&Limit> {
    limits
        .iter()
        .find(|limit| limit.kind == kind && limit.batch.is_none_or(|of| of == batch))
}
