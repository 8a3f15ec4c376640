//! Merges: changes that make a value of the one before.

use super::commit::user_code;
use super::request::check_value;
use crate::{Error, Result};

/// Makes the new value of a key from the one that it has and from an operand: a counter, a list
/// that grows, a maximum.
///
/// The log holds the values that came out, so a recovery merges nothing again. A store is opened with
/// an operator of the name that it was made with.
///
/// ```
/// use gphash::store::MergeOperator;
///
/// /// Puts the operand behind the value.
/// struct Append;
///
/// impl MergeOperator for Append {
///     fn name(&self) -> &str {
///         "append"
///     }
///
///     fn merge(&self, _: &[u8], value: Option<&[u8]>, operand: &[u8]) -> Result<Vec<u8>, String> {
///         Ok([value.unwrap_or_default(), operand].concat())
///     }
/// }
/// # assert_eq!(Append.merge(b"", Some(b"a"), b"b").unwrap(), b"ab");
/// ```
pub trait MergeOperator: Send + Sync {
    /// Its name: 1 to 1,024 bytes.
    fn name(&self) -> &str;

    /// The new value of `key`, from `value`, which is `None` if the key has none, and `operand`.
    /// Operands of one key come in the order of their requests, each on the value that the one
    /// before has made. Several threads may call at a time, for any keys, and more than once for one
    /// operand, as when a group is tried again. So the value must depend on the arguments alone. It may
    /// read the store, which has none of the group's changes yet; what changes one, and asynchronous calls, are refused
    /// with [`Error::Reentrant`], also in another store.
    ///
    /// # Errors
    /// Words for the caller of the merge, who gets them in an [`Error::Merge`]; a panic does the
    /// same. The key keeps its value then.
    fn merge(&self, key: &[u8], value: Option<&[u8]>, operand: &[u8]) -> Result<Vec<u8>, String>;
}

/// Calls the operator, whatever it does.
pub fn merge(
    operator: &dyn MergeOperator,
    key: &[u8],
    value: Option<&[u8]>,
    operand: &[u8],
) -> Result<Vec<u8>> {
    let merged = user_code::merge(|| operator.merge(key, value, operand))
        .unwrap_or_else(|words| Err(format!("it panicked: {words}")));
    let merged = merged.map_err(|reason| Error::Merge {
        operator: user_code::merge(|| operator.name().into())
            .unwrap_or_else(|_| "whose name() panics".into()),
        reason,
    })?;
    check_value("merged value", &merged)?;
    Ok(merged)
}
