//! Reading a value file, and how long it stays.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use super::{FORMAT, ValueRef, ValueUse, checksum, header, name};
use crate::lsm::NotRead;
use crate::lsm::cache::{FileCache, FileKind};
use crate::lsm::header::HEADER;
use crate::{Error, Result};

/// The longest value of which the disk is asked for others beside it: longer ones keep it busy one after the other.
const TRIED_BYTES_MAX: usize = 256 << 10;

/// A value file that sorted files refer to. Once the last of these that counts is obsolete, and all are dropped, the
/// cache removes it.
#[derive(Debug)]
pub struct ValueFile {
    cache: Arc<FileCache>,
    number: u64,
    /// Its length in bytes; 0 while it is written.
    len: AtomicU64,
    /// Sorted files that refer to it, and are not obsolete.
    users: AtomicUsize,
    is_obsolete: AtomicBool,
    /// A value could not be read.
    is_damaged: AtomicBool,
}

impl ValueFile {
    /// One that is being written.
    pub fn begun(cache: Arc<FileCache>, number: u64) -> Self {
        Self {
            cache,
            number,
            len: AtomicU64::new(0),
            users: AtomicUsize::new(0),
            is_obsolete: AtomicBool::new(false),
            is_damaged: AtomicBool::new(false),
        }
    }

    /// Opens one.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::Foreign`], [`Error::NewerFormat`], [`Error::Damaged`], or what the operating
    /// system answers.
    pub fn open(cache: Arc<FileCache>, store_id: [u64; 2], number: u64) -> Result<Self> {
        let opened = Self::begun(cache, number);
        if !opened.cache.dir().has(&name(number))? {
            return Err(Error::Missing {
                path: opened.path(),
                advice: "put it back: it has values that are nowhere else",
            });
        }
        let file = opened.cache.file(FileKind::Values, number)?;
        let mut bytes = vec![0; HEADER];
        let read = file.read(&mut bytes, 0)?;
        header(store_id, number).check(&bytes[..read], FORMAT, &opened.path())?;
        opened.set_len(file.len()?);
        Ok(opened)
    }

    /// Opens one of which nothing but its values tells what it is.
    ///
    /// # Errors
    /// What the operating system answers.
    pub fn open_headless(cache: Arc<FileCache>, number: u64) -> Result<Self> {
        let opened = Self::begun(cache, number);
        opened.set_len(opened.cache.file(FileKind::Values, number)?.len()?);
        Ok(opened)
    }

    /// Its number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Where it is.
    pub fn path(&self) -> PathBuf {
        self.cache.dir().join(name(self.number))
    }

    /// Its length in bytes; `None` while it is written.
    pub fn len(&self) -> Option<u64> {
        let len = self.len.load(Ordering::Acquire);
        (len > 0).then_some(len)
    }

    pub fn set_len(&self, len: u64) {
        self.len.store(len, Ordering::Release);
    }

    /// Checks that it has what a sorted file refers to.
    ///
    /// # Errors
    /// [`Error::Truncated`].
    pub fn check(&self, of: &ValueUse) -> Result<()> {
        match self.len() {
            Some(found) if found < of.end => Err(Error::Truncated {
                path: self.path(),
                found,
                expected: of.end,
            }),
            _ => Ok(()),
        }
    }

    /// Reads a value.
    ///
    /// # Errors
    /// [`Error::Damaged`], or what the operating system answers.
    pub fn read(&self, value: &ValueRef) -> Result<Vec<u8>> {
        self.checked(value, self.bytes(value.offset, value.len)?)
    }

    /// So many bytes of values, or those before the end of the file.
    ///
    /// # Errors
    /// What the operating system answers.
    pub fn bytes(&self, at: u64, len: usize) -> Result<Vec<u8>> {
        let file = self.cache.file(FileKind::Values, self.number)?;
        let mut bytes = vec![0; len];
        let read = file.read(&mut bytes, at)?;
        bytes.truncate(read);
        Ok(bytes)
    }

    /// As [`read`](Self::read), but waits for no disk.
    ///
    /// # Errors
    /// [`NotRead::WouldBlock`], and as there.
    pub fn try_read(&self, value: &ValueRef) -> Result<Vec<u8>, NotRead> {
        Ok(self.checked(value, self.try_bytes(value.offset, value.len)?)?)
    }

    /// As [`bytes`](Self::bytes), but waits for no disk.
    ///
    /// # Errors
    /// [`NotRead::WouldBlock`], and as there.
    pub fn try_bytes(&self, at: u64, len: usize) -> Result<Vec<u8>, NotRead> {
        if !self.cache.are_on_disk() {
            return Ok(self.bytes(at, len)?);
        }
        if len > TRIED_BYTES_MAX {
            return Err(NotRead::WouldBlock);
        }
        let file = self.cache.file(FileKind::Values, self.number)?;
        let read = self.cache.try_read(&file, at, len);
        read.ok_or(NotRead::WouldBlock)
    }

    /// The bytes of a value if these are.
    ///
    /// # Errors
    /// [`Error::Damaged`].
    pub fn checked(&self, value: &ValueRef, bytes: Vec<u8>) -> Result<Vec<u8>> {
        let found = checksum(&bytes);
        if bytes.len() != value.len {
            let found = format!("{} bytes of {}", bytes.len(), value.len);
            return Err(self.damage(value, found));
        }
        match found == value.checksum {
            true => Ok(bytes),
            false => {
                let found = format!("checksum {found:#x}; expected {:#x}", value.checksum);
                Err(self.damage(value, found))
            }
        }
    }

    /// Whether a value could not be read.
    pub fn is_damaged(&self) -> bool {
        self.is_damaged.load(Ordering::Relaxed)
    }

    /// Notes that a value could not be read.
    pub fn give_up(&self) {
        self.is_damaged.store(true, Ordering::Relaxed);
    }

    /// Has its values read again.
    pub fn try_again(&self) {
        self.is_damaged.store(false, Ordering::Relaxed);
    }

    fn damage(&self, value: &ValueRef, found: String) -> Error {
        self.give_up();
        Error::Damaged {
            path: self.path(),
            what: "value",
            at: value.offset,
            found,
        }
    }

    /// Notes that a sorted file that counts refers to it.
    pub fn hold(&self) {
        self.users.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that one no longer counts.
    pub fn release(&self) {
        if self.users.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.set_obsolete();
        }
    }

    /// As [`set_obsolete`](Self::set_obsolete), if no sorted file that counts refers to it.
    pub fn set_obsolete_if_unused(&self) {
        if self.users.load(Ordering::Acquire) == 0 {
            self.set_obsolete();
        }
    }

    /// Lets the file be removed when nobody holds it any longer.
    pub fn set_obsolete(&self) {
        if !self.is_obsolete.swap(true, Ordering::AcqRel) {
            self.cache.expect();
        }
    }
}

impl Drop for ValueFile {
    fn drop(&mut self) {
        if self.is_obsolete.load(Ordering::Acquire) {
            self.cache.give_up(FileKind::Values, self.number, 0);
        }
    }
}
