//! What a device or its driver refuses.

/// What was being done, what was found, and what is needed instead.
#[derive(Debug, Clone, thiserror::Error)]
#[error("GPU: {what}: {found}; {expected}")]
pub struct Error {
    /// What was being done.
    pub what: &'static str,
    /// What the driver answered.
    pub found: String,
    /// What is needed, or what to do.
    pub expected: String,
}

/// `Result` with this [`Error`].
pub type Result<T> = std::result::Result<T, Error>;
