//! Rows of a file in the Criteo format: a label, 13 integers and 26 categories on a line,
//! separated by tabs. A category is 8 hexadecimal digits, or nothing where it is missing.

use std::error::Error;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use crate::embedding::{FEATURES, Row, key};

const INTEGERS: usize = 13;
const COLUMNS: usize = 1 + INTEGERS + FEATURES;

/// Longest line that can belong to this format, in bytes, with room to spare.
const LINE_LIMIT: u64 = 4096;

/// Reads rows one after the other.
pub struct Reader {
    path: PathBuf,
    input: BufReader<File>,
    line: Vec<u8>,
    number: u64,
    remaining: u64,
}

impl Reader {
    pub fn open(path: &Path) -> Result<Self, Box<dyn Error>> {
        let refuse = |error: io::Error| format!("{}: {error}", path.display());
        let file = File::open(path).map_err(refuse)?;
        let remaining = file.metadata().map_err(refuse)?.len();
        Ok(Self {
            path: path.to_path_buf(),
            input: BufReader::new(file),
            line: Vec::new(),
            number: 0,
            remaining,
        })
    }

    /// Bytes of the file that are still to be read.
    pub fn remaining(&self) -> u64 {
        self.remaining
    }

    fn read_line(&mut self) -> Result<Option<Row>, Box<dyn Error>> {
        self.line.clear();
        let mut input = self.input.by_ref().take(LINE_LIMIT);
        let length = input
            .read_until(b'\n', &mut self.line)
            .map_err(|error| format!("{}: {error}", self.path.display()))?;
        if length == 0 {
            return Ok(None);
        }
        self.remaining = self.remaining.saturating_sub(length as u64);
        self.number += 1;
        if length as u64 == LINE_LIMIT {
            let what = format!("more than {LINE_LIMIT} bytes without an end of line");
            return Err(self.refuse(None, what));
        }
        parse(without_end(&self.line))
            .map(Some)
            .map_err(|Refusal { column, what }| self.refuse(column, what))
    }

    fn refuse(&self, column: Option<usize>, what: String) -> Box<dyn Error> {
        Box::new(Malformed {
            path: self.path.clone(),
            line: self.number,
            column,
            what,
        })
    }
}

impl Iterator for Reader {
    type Item = Result<Row, Box<dyn Error>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read_line().transpose()
    }
}

/// A line of the file that is not a row.
#[derive(Debug)]
struct Malformed {
    path: PathBuf,
    line: u64,
    column: Option<usize>,
    what: String,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: line {}", self.path.display(), self.line)?;
        if let Some(column) = self.column {
            write!(f, ", column {column}")?;
        }
        write!(f, ": {}", self.what)
    }
}

impl Error for Malformed {}

/// What is wrong with a line, and in which column if in one.
struct Refusal {
    column: Option<usize>,
    what: String,
}

fn parse(line: &[u8]) -> Result<Row, Refusal> {
    let columns = line.split(|byte| *byte == b'\t').count();
    if columns != COLUMNS {
        return Err(Refusal {
            column: None,
            what: format!(
                "{columns} columns; expected {COLUMNS}, separated by tabs: a label, {INTEGERS} \
                 integers, {FEATURES} categories"
            ),
        });
    }
    let mut row = [0; FEATURES];
    for (column, field) in line.split(|byte| *byte == b'\t').enumerate() {
        let expected = match column {
            0 if matches!(field, b"0" | b"1") => continue,
            0 => "a label, 0 or 1",
            1..=INTEGERS if field.is_empty() || integer(field).is_some() => continue,
            1..=INTEGERS => "an integer or nothing",
            _ => {
                let feature = column - 1 - INTEGERS;
                if field.is_empty() {
                    row[feature] = key(feature, None);
                    continue;
                }
                if let Some(hash) = category(field) {
                    row[feature] = key(feature, Some(hash));
                    continue;
                }
                "8 hexadecimal digits or nothing"
            }
        };
        let found = String::from_utf8_lossy(field);
        return Err(Refusal {
            column: Some(column + 1),
            what: format!("{found:?}; expected {expected}"),
        });
    }
    Ok(row)
}

fn integer(field: &[u8]) -> Option<i64> {
    str::from_utf8(field).ok()?.parse().ok()
}

fn category(field: &[u8]) -> Option<u32> {
    // `from_str_radix` alone would take a sign.
    if field.len() != 8 || !field.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u32::from_str_radix(str::from_utf8(field).ok()?, 16).ok()
}

fn without_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(first_category: &str) -> String {
        let mut fields = vec!["1".to_string()];
        fields.extend((0..INTEGERS).map(|n| if n == 3 { String::new() } else { n.to_string() }));
        fields.push(first_category.into());
        fields.extend((1..FEATURES).map(|n| {
            if n % 2 == 0 {
                String::new()
            } else {
                "0000000f".into()
            }
        }));
        fields.join("\t")
    }

    #[test]
    fn row_has_one_key_per_feature() {
        let row = parse(without_end(format!("{}\r\n", line("68fd1e64")).as_bytes()));
        let row = row.unwrap_or_else(|refusal| panic!("{}", refusal.what));
        assert_eq!(row[0], key(0, Some(0x68fd_1e64)));
        assert_eq!(row[1], key(1, Some(15)));
        assert_eq!(row[24], key(24, None));
    }

    #[test]
    fn row_error_names_column_and_content() {
        for wrong in ["68fd1e6", "+8fd1e64", "68fd1e64a", "wxyz1234"] {
            let refusal = parse(line(wrong).as_bytes()).expect_err("refused");
            assert_eq!(refusal.column, Some(15));
            assert!(refusal.what.contains(wrong), "{}", refusal.what);
        }
        let refusal = parse(b"1\t2\t3").expect_err("refused");
        assert!(
            refusal.what.starts_with("3 columns; expected 40"),
            "{}",
            refusal.what
        );
    }
}
