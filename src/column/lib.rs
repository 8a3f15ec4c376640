//! The columns of a value: which of its bytes hold what.

pub mod metadata;
#[cfg(test)]
mod tests;

use std::fmt;

pub use metadata::{KeyKind, Metadata};

use serde::{Serialize, Serializer};

/// Most columns of a value.
pub const COLUMNS_MAX: usize = 16;

/// Most bytes of a column's name.
pub const COLUMN_NAME_MAX: usize = 31;

/// Most dimensions of a column.
pub const RANK_MAX: usize = 4;

/// Bytes that a processor fetches from memory at once. Columns of an optimizer's state share none with
/// columns that lookups read.
const CACHE_LINE: usize = 64;

/// The type of the elements of a [`Column`]. Numbers are little endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DType {
    /// Unsigned integer of 8 bits.
    U8,
    /// Unsigned integer of 16 bits.
    U16,
    /// Unsigned integer of 32 bits.
    U32,
    /// Unsigned integer of 64 bits.
    U64,
    /// Signed integer of 8 bits.
    I8,
    /// Signed integer of 16 bits.
    I16,
    /// Signed integer of 32 bits.
    I32,
    /// Signed integer of 64 bits.
    I64,
    /// IEEE 754 binary16.
    F16,
    /// bfloat16: the upper half of a binary32.
    BF16,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
    /// Opaque bytes; an element is one byte.
    Bytes,
}

impl DType {
    const ALL: [Self; 13] = [
        Self::U8,
        Self::U16,
        Self::U32,
        Self::U64,
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::F16,
        Self::BF16,
        Self::F32,
        Self::F64,
        Self::Bytes,
    ];

    /// Bytes of an element.
    pub const fn size(self) -> usize {
        match self {
            Self::U8 | Self::I8 | Self::Bytes => 1,
            Self::U16 | Self::I16 | Self::F16 | Self::BF16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    /// The number of it in the file.
    #[doc(hidden)]
    pub const fn code(self) -> u8 {
        match self {
            Self::U8 => 1,
            Self::U16 => 2,
            Self::U32 => 3,
            Self::U64 => 4,
            Self::I8 => 5,
            Self::I16 => 6,
            Self::I32 => 7,
            Self::I64 => 8,
            Self::F16 => 9,
            Self::BF16 => 10,
            Self::F32 => 11,
            Self::F64 => 12,
            Self::Bytes => 13,
        }
    }

    /// The type of a number in the file.
    #[doc(hidden)]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.code() == code)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::I8 => "i8",
            Self::I16 => "i16",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::Bytes => "bytes",
        })
    }
}

impl Serialize for DType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What a [`Column`] is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ColumnRole {
    /// Parameters that a lookup reads, such as the row of an embedding table.
    #[default]
    Weight,
    /// What an optimizer keeps beside the weights, such as a momentum. Lookups do not read it, so it may
    /// not lie in a 64-byte line of a column that they read.
    OptimizerState,
    /// Anything else that a lookup reads.
    Other,
}

impl ColumnRole {
    const ALL: [Self; 3] = [Self::Weight, Self::OptimizerState, Self::Other];

    /// The number of it in the file.
    #[doc(hidden)]
    pub const fn code(self) -> u8 {
        match self {
            Self::Weight => 1,
            Self::OptimizerState => 2,
            Self::Other => 3,
        }
    }

    /// The role of a number in the file.
    #[doc(hidden)]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.code() == code)
    }
}

impl fmt::Display for ColumnRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Weight => "weight",
            Self::OptimizerState => "optimizer state",
            Self::Other => "other",
        })
    }
}

/// A column of the values of an index: an array of one type at fixed bytes of every value.
///
/// # Examples
/// ```
/// # use gphash_column as gphash;
/// use gphash::{Column, ColumnRole, DType};
///
/// #[repr(C)]
/// struct Row {
///     weight: [f32; 16],
///     momentum: [f32; 16],
/// }
/// let weight = Column::new("weight", DType::F32, [16], std::mem::offset_of!(Row, weight));
/// let momentum = Column::new("momentum", DType::F32, [16], std::mem::offset_of!(Row, momentum))
///     .with_role(ColumnRole::OptimizerState);
/// assert_eq!((weight.len(), momentum.offset()), (Some(64), 64));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Column {
    name: String,
    dtype: DType,
    role: ColumnRole,
    shape: Vec<usize>,
    offset: usize,
}

#[expect(
    clippy::len_without_is_empty,
    reason = "a column that an index accepts is not empty"
)]
impl Column {
    /// A column of role [`Weight`](ColumnRole::Weight).
    ///
    /// - `name`: 1 to 31 bytes, none of them zero.
    /// - `shape`: its dimensions, at most 4, each at least 1; none for a scalar.
    /// - `offset`: its first byte in the value.
    ///
    /// What no value can have is refused when an index is made with it.
    #[must_use]
    pub fn new(
        name: impl Into<String>,
        dtype: DType,
        shape: impl Into<Vec<usize>>,
        offset: usize,
    ) -> Self {
        Self {
            name: name.into(),
            dtype,
            role: ColumnRole::default(),
            shape: shape.into(),
            offset,
        }
    }

    /// The same column with another role.
    #[must_use]
    pub fn with_role(mut self, role: ColumnRole) -> Self {
        self.role = role;
        self
    }

    /// Its name, which no other column of the value has.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Type of its elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// What it is for.
    pub fn role(&self) -> ColumnRole {
        self.role
    }

    /// Its dimensions, outermost first; none for a scalar. Elements lie in row-major order.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Its first byte in the value.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Bytes of it: those of an element times all dimensions; `None` if no number says it.
    pub fn len(&self) -> Option<usize> {
        let sizes = self.shape.iter();
        sizes
            .copied()
            .try_fold(self.dtype.size(), usize::checked_mul)
    }

    /// Its bytes in the value, if it lies in one of `value_size` bytes.
    fn range(&self, value_size: usize) -> Option<std::ops::Range<usize>> {
        let end = self.offset.checked_add(self.len()?)?;
        (end <= value_size).then_some(self.offset..end)
    }
}

impl fmt::Display for Column {
    /// As `momentum: f32[16] at byte 64, optimizer state`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            dtype,
            role,
            shape,
            offset,
        } = self;
        write!(f, "{name}: {dtype}{shape:?} at byte {offset}, {role}")
    }
}

/// Checks that values of `value_size` bytes can have these columns.
///
/// # Errors
/// What was found, and what is expected.
pub fn check(columns: &[Column], value_size: usize) -> Result<(), (String, String)> {
    let refuse = |found: String, expected: &str| Err((found, expected.to_owned()));
    if columns.len() > COLUMNS_MAX {
        return refuse(format!("{} columns", columns.len()), "at most 16");
    }
    let mut end = 0;
    for (nth, column) in columns.iter().enumerate() {
        let name = &column.name;
        if !(1..=COLUMN_NAME_MAX).contains(&name.len()) || name.contains('\0') {
            return refuse(
                format!("a column of the name {name:?}"),
                "1 to 31 bytes, none of them zero",
            );
        }
        if columns[..nth].iter().any(|other| other.name == *name) {
            return refuse(
                format!("two columns of the name {name:?}"),
                "names that differ",
            );
        }
        if column.shape.len() > RANK_MAX || column.shape.contains(&0) {
            return refuse(
                format!("column {name:?} of shape {:?}", column.shape),
                "at most 4 dimensions, each at least 1",
            );
        }
        let Some(range) = column.range(value_size) else {
            return refuse(
                format!(
                    "column {name:?} of {} and shape {:?} at byte {}",
                    column.dtype, column.shape, column.offset
                ),
                &format!("an end within the {value_size} bytes of a value"),
            );
        };
        if range.start < end {
            return refuse(
                format!("column {name:?} at byte {}", range.start),
                &format!("columns in the order of their offsets, this one from byte {end} on"),
            );
        }
        end = range.end;
    }
    Ok(())
}

/// Checks that the columns of an optimizer's state lie apart from those that lookups read. Records of values
/// above 64 bytes begin with a line; shorter ones are in one line anyway. The columns have been
/// [checked](check).
///
/// # Errors
/// What was found, and which padding is needed.
pub fn check_lines(columns: &[Column], value_size: usize) -> Result<(), (String, String)> {
    if value_size <= CACHE_LINE {
        return Ok(());
    }
    let is_state = |column: &Column| column.role == ColumnRole::OptimizerState;
    for pair in columns.windows(2) {
        let [before, after] = pair else { continue };
        let end = before.offset + before.len().unwrap_or_default();
        let is_shared = (end - 1) / CACHE_LINE == after.offset / CACHE_LINE;
        if is_state(before) != is_state(after) && is_shared {
            let next = end.next_multiple_of(CACHE_LINE);
            return Err((
                format!(
                    "column {:?} ({}) at byte {}, in a 64-byte line of column {:?} ({}), which ends at byte {end}",
                    after.name, after.role, after.offset, before.name, before.role
                ),
                format!(
                    "optimizer state in lines of its own: {} bytes of padding before column {:?}, so that it begins at byte {next}",
                    next - after.offset,
                    after.name
                ),
            ));
        }
    }
    Ok(())
}
