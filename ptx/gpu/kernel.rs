//! A kernel as the host declares it: its name, and the types of its arguments.

use std::marker::PhantomData;

use bytemuck::{NoUninit, bytes_of};

/// A kernel that takes the arguments `A`.
#[derive(Debug, Clone, Copy)]
pub struct Kernel<A> {
    /// Its name, up to the suffix for the size of keys.
    pub name: &'static str,
    /// Whether there is one for keys of a word and one for wider keys.
    pub has_key_sizes: bool,
    /// Whether it may store into the file.
    pub writes_file: bool,
    arguments: PhantomData<fn(A)>,
}

impl<A> Kernel<A> {
    /// A kernel that serves keys of every size and only reads the file.
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            has_key_sizes: false,
            writes_file: false,
            arguments: PhantomData,
        }
    }

    /// The same, compiled for keys of a word and for wider ones.
    pub const fn by_key_size(mut self) -> Self {
        self.has_key_sizes = true;
        self
    }

    /// The same, which may store into the file.
    pub const fn writing(mut self) -> Self {
        self.writes_file = true;
        self
    }
}

/// The arguments of a kernel, in its order: a tuple of plain data.
pub trait Arguments {
    /// The bytes of each.
    type Bytes<'a>: AsRef<[&'a [u8]]>
    where
        Self: 'a;

    /// The bytes of each, as a launch takes them.
    fn bytes(&self) -> Self::Bytes<'_>;
}

macro_rules! arguments {
    ($count:literal: $($argument:ident $field:tt)+) => {
        impl<$($argument: NoUninit),+> Arguments for ($($argument,)+) {
            type Bytes<'a>
                = [&'a [u8]; $count]
            where
                Self: 'a;

            fn bytes(&self) -> Self::Bytes<'_> {
                [$(bytes_of(&self.$field)),+]
            }
        }
    };
}

arguments!(1: A 0);
arguments!(2: A 0 B 1);
arguments!(3: A 0 B 1 C 2);
arguments!(4: A 0 B 1 C 2 D 3);
arguments!(5: A 0 B 1 C 2 D 3 E 4);
