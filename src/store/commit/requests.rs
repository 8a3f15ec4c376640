//! The requests of a group by their positions, whatever the callers have given them in.

use std::ops::Range;
use std::path::Path;

use super::REQUESTS_PER_THREAD_MIN;
use crate::pool::parallel;
use crate::pool::split::position;
use crate::store::columns::ValueColumns;
use crate::store::columns::requests::{ColumnBatch, RequestKind};
use crate::store::request::{Request, RequestRef};
use crate::{Error, Result};

/// How many requests a batch has.
///
/// # Errors
/// [`Error::Limit`] for more than 32 bits count, of the store whose index is at `path`.
pub fn count_of_requests(len: usize, path: &Path) -> Result<u32> {
    u32::try_from(len).map_err(|_| Error::Limit {
        path: path.into(),
        what: "the number of requests in a batch",
        needed: len as u64,
        limit: u32::MAX.into(),
    })
}

/// The requests of one job.
#[derive(Debug, Clone, Copy)]
pub enum Batch<'r> {
    Owned(&'r [Request]),
    Columns(&'r ColumnBatch),
}

impl<'r> Batch<'r> {
    pub fn len(self) -> usize {
        match self {
            Self::Owned(requests) => requests.len(),
            Self::Columns(columns) => columns.len(),
        }
    }

    /// What its requests are answered by.
    pub fn form(self) -> AnswerForm {
        match self {
            Self::Owned(_) => AnswerForm::Responses,
            Self::Columns(columns) if columns.is_answered() => AnswerForm::Values,
            Self::Columns(_) => AnswerForm::Nothing,
        }
    }

    /// The buffers that its answers may take.
    pub fn take_buffers(self) -> ValueColumns {
        match self {
            Self::Owned(_) => ValueColumns::default(),
            Self::Columns(columns) => columns.take_buffers(),
        }
    }

    /// The key of request `nth`.
    pub fn key(self, nth: usize) -> &'r [u8] {
        self.at(nth).key()
    }

    /// Request `nth`.
    #[inline]
    pub fn at(self, nth: usize) -> RequestAt<'r> {
        match self {
            Self::Owned(requests) => RequestAt::Owned(&requests[nth]),
            Self::Columns(columns) => RequestAt::Column(columns, nth),
        }
    }

    pub fn requests(self) -> impl Iterator<Item = RequestAt<'r>> {
        (0..self.len()).map(move |nth| self.at(nth))
    }

    /// The keys of its requests.
    pub fn keys(self) -> impl Iterator<Item = &'r [u8]> {
        self.requests().map(RequestAt::key)
    }

    /// The keys of requests that may change them.
    pub fn changed_keys(self) -> impl Iterator<Item = &'r [u8]> {
        let changes = self.requests().filter(|request| !request.is_get());
        changes.map(RequestAt::key)
    }
}

/// What requests are answered by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerForm {
    /// A response each.
    Responses,
    /// A column of values, and failures.
    Values,
    /// That they were executed.
    Nothing,
}

/// One request, in what its caller has given it in.
#[derive(Debug, Clone, Copy)]
pub enum RequestAt<'r> {
    Owned(&'r Request),
    Column(&'r ColumnBatch, usize),
}

impl<'r> RequestAt<'r> {
    pub fn key(self) -> &'r [u8] {
        match self {
            Self::Owned(request) => request.key(),
            Self::Column(columns, nth) => columns.key(nth),
        }
    }

    #[inline]
    pub fn is_get(self) -> bool {
        match self {
            Self::Owned(request) => request.is_get(),
            Self::Column(columns, nth) => columns.kind(nth) == RequestKind::Get,
        }
    }

    fn is_read_modify_write(self) -> bool {
        match self {
            Self::Owned(request) => request.is_read_modify_write(),
            Self::Column(columns, nth) => columns.kind(nth) == RequestKind::Merge,
        }
    }

    fn request(self) -> RequestRef<'r> {
        match self {
            Self::Owned(request) => request.into(),
            Self::Column(columns, nth) => columns.request(nth),
        }
    }
}

/// The requests of a group of jobs, one job after the other.
#[derive(Debug)]
pub enum Requests<'r> {
    /// Those of one, which may be very many.
    One(Batch<'r>),
    /// Those at some positions of one.
    Part(Batch<'r>, Vec<u32>),
    /// Those of several.
    Joined(Vec<RequestAt<'r>>),
}

impl<'r> Requests<'r> {
    /// Those of these jobs.
    pub fn of(jobs: &[Batch<'r>]) -> Self {
        match jobs {
            [job] => Self::One(*job),
            _ => Self::Joined(jobs.iter().flat_map(|job| job.requests()).collect()),
        }
    }

    pub fn len(&self) -> usize {
        match self {
            Self::One(batch) => batch.len(),
            Self::Part(_, positions) => positions.len(),
            Self::Joined(requests) => requests.len(),
        }
    }

    #[inline]
    fn at(&self, nth: usize) -> RequestAt<'r> {
        match self {
            Self::One(batch) => batch.at(nth),
            Self::Part(batch, positions) => batch.at(positions[nth] as usize),
            Self::Joined(requests) => requests[nth],
        }
    }

    /// Request `nth`.
    pub fn get(&self, nth: usize) -> RequestRef<'r> {
        self.at(nth).request()
    }

    /// The key of request `nth`.
    pub fn key(&self, nth: usize) -> &'r [u8] {
        self.at(nth).key()
    }

    /// The positions of those that may change their keys, in ascending order.
    pub fn changes(&self) -> Vec<u32> {
        let of_part = |part: Range<usize>| -> Vec<u32> {
            let changes = part.filter(|&nth| !self.is_get(nth));
            changes.map(position).collect()
        };
        let parts = parallel::parts(self.len(), REQUESTS_PER_THREAD_MIN);
        parallel::map_if_shared(parts, of_part).concat()
    }

    /// Whether request `nth` only reads.
    #[inline]
    pub fn is_get(&self, nth: usize) -> bool {
        self.at(nth).is_get()
    }

    /// Whether what request `nth` changes depends on the value before it.
    pub fn is_read_modify_write(&self, nth: usize) -> bool {
        self.at(nth).is_read_modify_write()
    }

    /// Whether all of them delete, whatever their keys have.
    pub fn only_delete(&self) -> bool {
        let is_delete = |nth: usize| matches!(self.get(nth), RequestRef::Delete { .. });
        parallel::all(self.len(), REQUESTS_PER_THREAD_MIN, is_delete)
    }
}
