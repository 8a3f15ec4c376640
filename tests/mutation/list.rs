//! The faults, and the suite that finds each.

/// What is run to find a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Suite {
    /// The unit tests of this name.
    Unit(&'static str),
    /// Those of this name of the record arena alone.
    Arena(&'static str),
    /// Those of this name of the hot cache alone.
    HotCache(&'static str),
    /// Those of this name of the words of the file alone.
    Layout(&'static str),
    /// Those of the CUDA engine of this name, without a device.
    CudaUnit(&'static str),
    /// The tests of this name of the store.
    Store(&'static str),
    /// Those of this name of paths, processes and creations.
    Paths(&'static str),
    /// Those of this name of whatever an index cannot take.
    BadInput(&'static str),
    /// The kernels on a CPU.
    Kernels,
    /// The unit tests of this name, on the emulated device.
    Emulated(&'static str),
    /// As `BadInput`, on the emulated device.
    EmulatedBadInput(&'static str),
    /// The tests of this name of crashes inside kernels.
    KernelCrash(&'static str),
    /// Calls of the driver that fail, in lives of this name.
    DriverFaults(&'static str),
    /// The models of this name.
    Loom(&'static str),
}

impl Suite {
    /// What `cargo test` is told.
    pub fn arguments(self) -> Vec<&'static str> {
        match self {
            Self::Unit(name) => vec!["--lib", name],
            Self::CudaUnit(name) | Self::Emulated(name) => {
                vec!["--features", "cuda", "--lib", name]
            }
            Self::Arena(name) => vec!["--package", "gphash-arena", "--lib", name],
            Self::HotCache(name) => vec!["--package", "gphash-hot-cache", "--lib", name],
            Self::Layout(name) => vec!["--package", "gphash-layout", "--lib", name],
            Self::Store(name) => vec!["--test", "store", name],
            Self::Paths(name) => vec!["--test", "paths", name],
            Self::BadInput(name) => vec!["--test", "bad_input", name],
            Self::EmulatedBadInput(name) => {
                vec!["--features", "cuda", "--test", "bad_input", name]
            }
            Self::Kernels => vec!["--test", "kernels"],
            Self::KernelCrash(name) => {
                vec!["--features", "cuda", "--test", "kernel_crash", name]
            }
            Self::DriverFaults(name) => {
                vec!["--features", "cuda", "--test", "driver_faults", name]
            }
            Self::Loom(name) => vec!["--release", "--lib", name],
        }
    }

    /// Variables that it is run with.
    pub fn variables(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Unit(_)
            | Self::Arena(_)
            | Self::HotCache(_)
            | Self::Layout(_)
            | Self::CudaUnit(_)
            | Self::Emulated(_)
            | Self::Store(_)
            | Self::Paths(_)
            | Self::BadInput(_)
            | Self::Kernels => &[],
            Self::EmulatedBadInput(_) => &[("GPHASH_TEST_ENGINE", "cuda")],
            Self::DriverFaults(_) => &[("GPHASH_DRIVER_FAULTS", "100")],
            Self::KernelCrash(_) => &[("GPHASH_CRASH_IMAGES", "20000")],
            // The stacks of loom's threads have no room for a backtrace.
            Self::Loom(_) => &[("RUSTFLAGS", "--cfg loom"), ("RUST_BACKTRACE", "0")],
        }
    }

    /// The folder of its builds: other flags, other artifacts.
    pub fn target(self) -> &'static str {
        match self {
            Self::Loom(_) => "target-loom",
            _ => "target",
        }
    }
}

/// A fault.
pub struct Mutation {
    /// What is wrong then.
    pub name: &'static str,
    /// The source that it is in.
    pub file: &'static str,
    /// What stands there once.
    find: &'static str,
    /// What stands there instead.
    replacement: &'static str,
    /// What finds it.
    pub suite: Suite,
}

impl Mutation {
    /// The source with the fault.
    pub fn apply(&self, source: &str) -> String {
        let places = source.matches(self.find).count();
        assert_eq!(places, 1, "{}: places in {}", self.name, self.file);
        source.replace(self.find, self.replacement)
    }
}

/// All of them; each has been found by its suite.
pub const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "an insertion is decided before its item is durable",
        file: "src/table/ops/insert.rs",
        find: r"        table.persist_slot(addr, record);
        slot.show(target);
",
        replacement: "        slot.show(target);\n",
        suite: Suite::Unit("crash_tests::scripted::insert"),
    },
    Mutation {
        name: "an insertion is acknowledged before its record word is durable",
        file: "src/table/ops/insert.rs",
        find: r"        if is_alone || table.decide(target, addr, tentative) {
            medium.write_back(addr.record, 8);
            medium.fence();
",
        replacement: r"        if is_alone || table.decide(target, addr, tentative) {
            medium.write_back(addr.record, 8);
",
        suite: Suite::Unit("crash_tests::scripted::insert"),
    },
    Mutation {
        name: "an update is published before its record is durable",
        file: "src/table/ops/update.rs",
        find: r"            table.persist_record(record);
            medium.fence();
",
        replacement: "            table.persist_record(record);\n",
        suite: Suite::Unit("crash_tests::scripted::update_and_upsert"),
    },
    Mutation {
        name: "an update is acknowledged before it is durable",
        file: "src/table/ops/update.rs",
        find: r"                medium.write_back(member.addr.record, 8);
                medium.fence();
",
        replacement: "                medium.write_back(member.addr.record, 8);\n",
        suite: Suite::Unit("crash_tests::scripted::update_and_upsert"),
    },
    Mutation {
        name: "an item leaves its level before the copy above is durable",
        file: "src/table/resize.rs",
        find: r"            medium.write_back(to.addr.record, 8);
            medium.fence();
        }
",
        replacement: r"            medium.write_back(to.addr.record, 8);
        }
",
        suite: Suite::Unit("crash_tests::scripted::growth_of_levels"),
    },
    Mutation {
        name: "the copy above is published before its key is durable",
        file: "src/table/resize.rs",
        find: r"            self.write_back_slot(to.addr);
            medium.fence();
",
        replacement: "            self.write_back_slot(to.addr);\n",
        suite: Suite::Unit("crash_tests::scripted::growth_of_levels"),
    },
    Mutation {
        name: "a superblock is written before what it speaks of is durable",
        file: "src/table/checkpoint.rs",
        find: r"        // What the superblock speaks of must be durable before it.
        self.medium.fence();
",
        replacement: "",
        suite: Suite::Unit("crash_tests::scripted::growth_of_the_arena"),
    },
    Mutation {
        name: "pages go home before the journal is durable",
        file: "src/pm/journal/mod.rs",
        find: r"        file.write(&trailer.to_le_bytes(), at)?;
        file.sync()?;
",
        replacement: "        file.write(&trailer.to_le_bytes(), at)?;\n",
        suite: Suite::Unit("crash_tests::checkpoints"),
    },
    Mutation {
        name: "the journal is emptied before its pages are durable at home",
        file: "src/pm/journal/reader.rs",
        find: r"        self.runs(file, superblocks..self.len(), write)?;
        home.sync()
",
        replacement: "        self.runs(file, superblocks..self.len(), write)\n",
        suite: Suite::Unit("crash_tests::checkpoints"),
    },
    Mutation {
        name: "a journal is removed before its replay is durable",
        file: "src/pm/journal/replay.rs",
        find: "            complete.bring_home(&self.file, home)?;\n",
        replacement: r"            let write = |at, bytes: &[u8]| home.write(bytes, at);
            complete.runs(&self.file, 0..complete.len(), write)?;
",
        suite: Suite::Unit("crash_tests::checkpoints"),
    },
    Mutation {
        name: "a journal is replayed before it is durable",
        file: "src/pm/journal/replay.rs",
        find: "            complete.rewrite(&PmFile::open(self.file.entry(), true)?)?;\n",
        replacement: "",
        suite: Suite::Unit("pm::journal"),
    },
    Mutation {
        name: "a journal is removed before it is durable that the file needs none",
        file: "src/pm/journal/mod.rs",
        find: "            home.write(&bytes[..read], at)?;\n            home.sync()\n        }\n        Some(_) => Ok(()),\n        None => home.sync(),",
        replacement: "            let _ = read;\n            Ok(())\n        }\n        _ => Ok(()),",
        suite: Suite::Unit("pm::journal"),
    },
    Mutation {
        name: "a replay syncs a journal that it has not written again",
        file: "src/pm/journal/replay.rs",
        find: "            complete.rewrite(&PmFile::open(self.file.entry(), true)?)?;\n",
        replacement: "            self.file.sync()?;\n",
        suite: Suite::Unit("sync_that_fails"),
    },
    Mutation {
        name: "a superblock at home that no sync has written is relied on",
        file: "src/pm/journal/mod.rs",
        find: "            home.write(&bytes[..read], at)?;\n            home.sync()\n        }\n        Some(_) => Ok(()),\n",
        replacement: "            let _ = read;\n            home.sync()\n        }\n        Some(_) => Ok(()),\n",
        suite: Suite::Unit("sync_that_fails"),
    },
    Mutation {
        name: "a recovery completes the commit that a crash has torn",
        file: "src/table/recovery/mod.rs",
        find: "superblock.generation += 2;",
        replacement: "superblock.generation += 0;",
        suite: Suite::Unit("crash_tests::superblocks"),
    },
    Mutation {
        name: "an insertion overtakes the removal of the item that it replaces",
        file: "src/table/ops/insert.rs",
        find: r"        if removed {
            self.medium.fence();
        }
",
        replacement: "        let _ = removed;\n",
        suite: Suite::Unit("crash_tests::superblocks"),
    },
    Mutation {
        name: "a feature that nobody knows is passed over",
        file: "src/layout/superblock.rs",
        find: "        if !unknown.is_empty() {\n",
        replacement: "        if self.features == u64::MAX && !unknown.is_empty() {\n",
        suite: Suite::Unit("layout::superblock"),
    },
    Mutation {
        name: "a column of a cached value begins with the value",
        file: "ptx/kernels/index.cu",
        find: "        copy_values(cached.value + view.value_offset, value, aligned, view.value_size, is_cached);",
        replacement: "        copy_values(cached.value, value, aligned, view.value_size, is_cached);",
        suite: Suite::Kernels,
    },
    Mutation {
        name: "the metadata block is written over the copy that holds",
        file: "src/table/metadata.rs",
        find: "        block.generation += 1;\n",
        replacement: "        block.generation += 2;\n",
        suite: Suite::Unit("crash_tests::metadata"),
    },
    Mutation {
        name: "an opening after a crash reports a version again",
        file: "src/table/metadata.rs",
        find: "        let is_published = superblock.is_clean() || superblock.journal_id != 0;\n",
        replacement: "        let is_published = true;\n",
        suite: Suite::Unit("crash_tests::metadata"),
    },
    Mutation {
        name: "a version that was lost with its copy is reported again",
        file: "src/table/metadata.rs",
        find: "if found.is_whole { 1 } else { 2 };",
        replacement: "1;",
        suite: Suite::Unit("crash_tests::metadata"),
    },
    Mutation {
        name: "a version is reported before it is durable",
        file: "src/table/metadata.rs",
        find: "        block.current.version += 1;\n        self.write_metadata(&mut block);\n",
        replacement: "        block.current.version += 1;\n",
        suite: Suite::Unit("crash_tests::metadata"),
    },
    Mutation {
        name: "the extent of a damaged superblock is forgotten",
        file: "src/layout/superblock.rs",
        find: "        if whole.iter().any(Option::is_none)\n",
        replacement: "        if whole.iter().all(Option::is_none)\n",
        suite: Suite::Unit("crash_tests::superblocks"),
    },
    Mutation {
        name: "an older superblock says that a file was cleanly closed",
        file: "src/layout/superblock.rs",
        find: "        if !whole.iter().all(is_next) {\n",
        replacement: "        if !whole.iter().any(is_next) {\n",
        suite: Suite::Unit("crash_tests::superblocks"),
    },
    Mutation {
        name: "a nearly full disk gives records one at a time",
        file: "src/table/extents.rs",
        find: "                    len = (len / 2).max(useful);\n",
        replacement: "                    len = least;\n",
        suite: Suite::Unit("fault_tests::full_disk"),
    },
    Mutation {
        name: "a reservation adds levels before it has room for records",
        file: "src/table/resize.rs",
        find: "        self.make_room_for(top, additional)?;\n",
        replacement: "",
        suite: Suite::Unit("fault_tests::full_disk"),
    },
    Mutation {
        name: "an opening goes by stores that are not durable",
        file: "src/table/recovery/mod.rs",
        find: "        table.persist_found(&superblock);\n",
        replacement: r"        if false {
            table.persist_found(&superblock);
        }
",
        suite: Suite::Unit("crash_tests::scripted::kill_of_the_process"),
    },
    Mutation {
        name: "the bottom level is left before its last bucket is emptied",
        file: "src/table/resize.rs",
        find: "        for index in resize.cursor..end {\n",
        replacement: "        for index in resize.cursor..end - 1 {\n",
        suite: Suite::Unit("crash_tests::scripted::growth_of_levels"),
    },
    Mutation {
        name: "an item goes to a further round and no overflow bit says so",
        file: "src/table/ops/insert.rs",
        find: "                if round > 0 {\n",
        replacement: "                if round > ROUNDS {\n",
        suite: Suite::Unit("crash_tests::scripted::probe_in_further_rounds"),
    },
    Mutation {
        name: "a journal is written before the file's length is durable",
        file: "src/pm/mapping/checkpoint.rs",
        find: "self.sync_growth().and_then(|()| journal.seal())",
        replacement: "journal.seal()",
        suite: Suite::Unit("crash_tests::checkpoints"),
    },
    Mutation {
        name: "the pages of a failed checkpoint are forgotten",
        file: "src/pm/mapping/checkpoint.rs",
        find: "            dirty.put_back(&journal.give_up());\n            return",
        replacement: "            journal.give_up();\n            return",
        suite: Suite::Unit("fault_tests"),
    },
    Mutation {
        name: "the trailer of a journal is not compared",
        file: "src/pm/journal/reader.rs",
        find: "if trailer != hash.digest().to_le_bytes() {",
        replacement: "if false {",
        suite: Suite::Unit("pm::journal"),
    },
    Mutation {
        name: "a journal's name is not durable when pages go home",
        file: "src/pm/journal/mod.rs",
        find: r"            file.sync_dir()?;
            self.is_durable = true;
",
        replacement: "            self.is_durable = true;\n",
        suite: Suite::Unit("crash_tests::checkpoints"),
    },
    Mutation {
        name: "a journal that the file does not name is replayed",
        file: "src/pm/journal/replay.rs",
        find: "                replay.complete = None;\n",
        replacement: "",
        suite: Suite::Unit("pm::journal"),
    },
    Mutation {
        name: "a file that is torn without its lost journal is closed as whole",
        file: "src/pm/journal/mod.rs",
        find: "        if !self.is_made || self.is_orphaned || matches!",
        replacement: "        if !self.is_made || matches!",
        suite: Suite::Unit("lost_journal_tests"),
    },
    Mutation {
        name: "the superblock of the last checkpoint is written over first",
        file: "src/pm/journal/reader.rs",
        find: "        order.sort_unstable();\n",
        replacement: "        order.sort_unstable_by(|a, b| b.cmp(a));\n",
        suite: Suite::Unit("crash_tests::checkpoints"),
    },
    Mutation {
        name: "both superblocks go home before one is durable",
        file: "src/pm/journal/reader.rs",
        find: "            self.runs(file, nth..nth + 1, write)?;\n            home.sync()?;\n        }\n",
        replacement: "            self.runs(file, nth..nth + 1, write)?;\n        }\n        home.sync()?;\n",
        suite: Suite::Unit("crash_tests::checkpoints"),
    },
    Mutation {
        name: "a superblock that a death has left half home counts as the last checkpoint's",
        file: "src/pm/journal/reader.rs",
        find: "copy.is_whole() && !is_ours",
        replacement: "copy.is_whole() || is_ours",
        suite: Suite::Unit("pm::journal"),
    },
    Mutation {
        name: "a file whose journal is missing is opened",
        file: "src/pm/journal/replay.rs",
        find: "                _ => Err(missing(\"is not there\")),\n",
        replacement: "                _ => Ok(None),\n",
        suite: Suite::Unit("pm::journal"),
    },
    Mutation {
        name: "a slot is emptied before its record word",
        file: "src/table/ops/remove.rs",
        find: "                self.table.vacate(addr);\n",
        replacement: "",
        suite: Suite::Unit("crash_tests::scripted::remove"),
    },
    Mutation {
        name: "an update swings a record word before the value is written",
        file: "src/table/ops/update.rs",
        find: "            table.write_record(record, target, content);\n",
        replacement: "",
        suite: Suite::Unit("crash_tests::scripted::update_and_upsert"),
    },
    Mutation {
        name: "others take records of an extent that is not committed",
        file: "src/table/extents.rs",
        find: r"        self.commit(&mut superblock);
        self.arena.add_extent(class, offset, len);
",
        replacement: r"        self.arena.add_extent(class, offset, len);
        self.commit(&mut superblock);
",
        suite: Suite::Unit("crash_tests::threads"),
    },
    Mutation {
        name: "a record is believed to end outside of the file",
        file: "src/table/record.rs",
        find: "            && lengths.record() <= len - at;\n",
        replacement: "            && lengths.record() <= len;\n",
        suite: Suite::Unit("variable_tests::hostile"),
    },
    Mutation {
        name: "keys of one hash and one length are taken for one",
        file: "src/table/record.rs",
        find: ".all(|(word, stored)| u64::from_le_bytes(*word) == stored)",
        replacement: ".all(|(word, stored)| u64::from_le_bytes(*word) == stored || stored != 0)",
        suite: Suite::Unit("variable_tests::model"),
    },
    Mutation {
        name: "the class table is not written at a close",
        file: "src/table/checkpoint.rs",
        find: "            self.persist_later(CLASS_TABLE, bytemuck::bytes_of(&ClassTable::new(table)));\n",
        replacement: "            let _ = (CLASS_TABLE, ClassTable::new(table));\n",
        suite: Suite::Unit("crash_tests::scripted::close"),
    },
    Mutation {
        name: "the checksum of a journal's head is not compared",
        file: "src/pm/journal/reader.rs",
        find: "        if header.checksum != header.sum() {\n",
        replacement: "        if false {\n",
        suite: Suite::Unit("pm::journal"),
    },
    Mutation {
        name: "a damaged journal passes for a torn one",
        file: "src/pm/journal/replay.rs",
        find: "if header.checkpoints == superblock.checkpoints\n",
        replacement: "if false\n",
        suite: Suite::Unit("pm::journal"),
    },
    Mutation {
        name: "other pages go home before the superblock is durable",
        file: "src/pm/journal/reader.rs",
        find: "            self.runs(file, nth..nth + 1, write)?;\n            home.sync()?;\n        }\n",
        replacement: "            self.runs(file, nth..nth + 1, write)?;\n        }\n",
        suite: Suite::Unit("crash_tests::checkpoints"),
    },
    Mutation {
        name: "a journal is written over before it is idle, durably",
        file: "src/pm/journal/mod.rs",
        find: r"        file.write(bytemuck::bytes_of(&idle), 0)?;
        file.sync()?;
",
        replacement: "        file.write(bytemuck::bytes_of(&idle), 0)?;\n",
        suite: Suite::Unit("crash_tests::checkpoints"),
    },
    Mutation {
        name: "a journal is written over although it could not be made idle",
        file: "src/pm/journal/mod.rs",
        find: "        self.bring_home(home)?;\n        self.retire()?;\n",
        replacement: "        self.bring_home(home)?;\n",
        suite: Suite::Unit("pm::journal"),
    },
    Mutation {
        name: "a journal is taken over before it is idle, durably",
        file: "src/pm/journal/replay.rs",
        find: "            header.retire(&PmFile::open(self.file.entry(), true)?)?;\n",
        replacement: "",
        suite: Suite::Unit("pm::journal"),
    },
    Mutation {
        name: "a copy of the superblock comes home with the count of an earlier checkpoint",
        file: "src/pm/mapping/checkpoint.rs",
        find: "let checkpoints = if goes_home { newest } else { copy }.checkpoints;",
        replacement: "let checkpoints = if false { newest } else { copy }.checkpoints;",
        suite: Suite::Unit("crash_tests::checkpoints"),
    },
    Mutation {
        name: "a complete journal is brought home to a file of zeros",
        file: "src/pm/journal/reader.rs",
        find: "        copies.contains(&wanted)\n            && copies",
        replacement: "        copies",
        suite: Suite::Unit("pm::journal"),
    },
    Mutation {
        name: "the record of a replaced value is not retired",
        file: "ptx/kernels/index.cu",
        find: "    retire_record(records, table.counters, old & RECORD_OFFSET);\n",
        replacement: "",
        suite: Suite::Kernels,
    },
    Mutation {
        name: "a kernel for all keys is looked for by the size of keys",
        file: "src/engine/cuda/kernels/declarations.rs",
        find: "Kernel::new(\"fetch\");",
        replacement: "Kernel::new(\"fetch\").by_key_size();",
        suite: Suite::CudaUnit("kernels::declarations"),
    },
    Mutation {
        name: "a device that has failed amid a change goes on from there",
        file: "src/engine/cuda/table/writer.rs",
        find: "            Integrity::Torn(error) => format!(\"a change before that failed: {error}\"),\n",
        replacement: "            Integrity::Torn(_) => return Ok(writer),\n",
        suite: Suite::DriverFaults("calls_fail_in_memory"),
    },
    Mutation {
        name: "pages that only a failed device knows are not saved",
        file: "src/engine/cuda/table/mod.rs",
        find: "            table.medium.mark_dirty(0, table.medium.len());\n",
        replacement: "",
        suite: Suite::DriverFaults("beside_checkpoints"),
    },
    Mutation {
        name: "the record of a value that was stored for nothing is not retired",
        file: "ptx/kernels/index.cu",
        find: "given && offset == 0 && !full;",
        replacement: "false;",
        suite: Suite::Kernels,
    },
    Mutation {
        name: "a stored value is given up although its operation only waits for a slot",
        file: "ptx/kernels/index.cu",
        find: "given && offset == 0 && !full;",
        replacement: "given && offset == 0;",
        suite: Suite::Kernels,
    },
    Mutation {
        name: "what is retried retires the records of all other positions once more",
        file: "ptx/kernels/index.cu",
        find: "bool given = batch.retry != 0 ? mine : tile.has_position();",
        replacement: "bool given = tile.has_position();",
        suite: Suite::Kernels,
    },
    Mutation {
        name: "the cache shows another record's value for one that the host has written",
        file: "ptx/kernels/index.cu",
        find: "batch.stored != 0 ? change.record :",
        replacement: "batch.stored != 0 ? change.record + view.record_stride :",
        suite: Suite::Kernels,
    },
    Mutation {
        name: "a new state word is missing from the copy of its level",
        file: "ptx/kernels/index.cu",
        find: "    if (inserts) table.copy_state(slot, table.prepare(table.key_at(batch, change.position)).word);\n",
        replacement: "",
        suite: Suite::Kernels,
    },
    Mutation {
        name: "a slot is not given back in the file when its item is removed",
        file: "ptx/include/table.cuh",
        find: "        if (gone) store_words(offset_of(slot), EMPTY, 0);\n",
        replacement: "",
        suite: Suite::Kernels,
    },
    Mutation {
        name: "an item goes past round 0 and no overflow bit says so",
        file: "ptx/include/table.cuh",
        find: "                if (round > 0) mark_overflow(key);\n",
        replacement: "",
        suite: Suite::Kernels,
    },
    Mutation {
        name: "the top level is read first while items move up",
        file: "ptx/include/table.cuh",
        find: "            u32 to = from < resting_bottom() ? resting_bottom() : end;\n",
        replacement: "            u32 to = end;\n",
        suite: Suite::Kernels,
    },
    Mutation {
        name: "an insertion gives the record word the parity of no state word",
        file: "src/table/ops/insert.rs",
        find: "RecordWord::member(target.word, record).with(",
        replacement: "RecordWord::member(0, record).with(",
        suite: Suite::Unit("flip_tests"),
    },
    Mutation {
        name: "an update gives the record word the parity of no state word",
        file: "src/table/ops/update.rs",
        find: "RecordWord::member(target.word, record);",
        replacement: "RecordWord::member(0, record);",
        suite: Suite::Unit("flip_tests"),
    },
    Mutation {
        name: "a flag does not change the parity of its record word",
        file: "src/layout/words/record.rs",
        find: "        Self::even(self.offset() | flag | beside, self.0)\n",
        replacement: "        Self(self.0 & (Self::OFFSET | Self::PARITY) | flag | beside)\n",
        suite: Suite::Layout("record"),
    },
    Mutation {
        name: "the recovery scan compares no parity",
        file: "src/table/recovery/scan.rs",
        find: "        if !record.is_sound(state) {\n",
        replacement: "        if false {\n",
        suite: Suite::Unit("flip_tests"),
    },
    Mutation {
        name: "a member whose flag has flipped passes for an insertion that a crash cut short",
        file: "src/table/recovery/scan.rs",
        find: "        if !record.is_member() && !record.is_sound(state) {\n",
        replacement: "        if false {\n",
        suite: Suite::Unit("flip_tests"),
    },
    Mutation {
        name: "a slot half done is no damage in a file that was cleanly closed",
        file: "src/table/recovery/scan.rs",
        find: "        } else if scan.is_clean {\n",
        replacement: "        } else if false {\n",
        suite: Suite::Unit("flip_tests"),
    },
    Mutation {
        name: "the device stores a new item's record word without its parity",
        file: "ptx/kernels/index.cu",
        find: "table.store_words(change.state_at(), state, member_word(state, change.record));",
        replacement: "table.store_words(change.state_at(), state, change.record);",
        suite: Suite::Kernels,
    },
    Mutation {
        name: "the device stores an updated record word without its parity",
        file: "ptx/kernels/index.cu",
        find: "store(table.view.file + at, member_word(old, change.record));",
        replacement: "store(table.view.file + at, change.record);",
        suite: Suite::Kernels,
    },
    Mutation {
        name: "the device moves an item up without the parity of its words",
        file: "ptx/kernels/resize.cu",
        find: "        u64 moved = member_word(record, record & RECORD_OFFSET);\n",
        replacement: "        u64 moved = record & RECORD_OFFSET;\n",
        suite: Suite::Kernels,
    },
    Mutation {
        name: "the recovery scan of the device compares no parity",
        file: "ptx/kernels/recovery_scan.cu",
        find: "        } else if (!is_sound(state, record)) {\n",
        replacement: "        } else if (false) {\n",
        suite: Suite::KernelCrash("flipped_bits"),
    },
    Mutation {
        name: "a value is stored without its checksum",
        file: "src/table/record.rs",
        find: "                self.medium.write(at + offset, &sum.to_le_bytes());\n",
        replacement: "                let _ = (offset, sum);\n",
        suite: Suite::Unit("flip_tests"),
    },
    Mutation {
        name: "a checksum is not bound to its key",
        file: "src/layout/words/checksum.rs",
        find: "    let mut salt = key.0;\n",
        replacement: "    let mut salt = key.0 & 0;\n",
        suite: Suite::Layout("checksum"),
    },
    Mutation {
        name: "the recovery scan compares no checksums of values",
        file: "src/table/recovery/scan.rs",
        find: "            && !self.value_is_whole(record.offset(), target.hash)\n",
        replacement: "            && false\n",
        suite: Suite::Unit("flip_tests"),
    },
    Mutation {
        name: "a lookup compares no checksum although it was told to",
        file: "src/table/ops/get.rs",
        find: "if table.verifies_values() && !table",
        replacement: "if false && !table",
        suite: Suite::Unit("flip_tests"),
    },
    Mutation {
        name: "the device stores a value without its checksum",
        file: "ptx/kernels/index.cu",
        find: "            if (change.writes()) store(view.file + change.record + view.checksum_offset, sum);\n",
        replacement: "",
        suite: Suite::Kernels,
    },
    Mutation {
        name: "the page of a checksum is not noted as changed",
        file: "ptx/kernels/index.cu",
        find: "table.mark_dirty(change.record, table.record_len());",
        replacement: "table.mark_dirty(change.record, view.value_size);",
        suite: Suite::Kernels,
    },
    Mutation {
        name: "a request of a batch sees the version that it makes itself",
        file: "ptx/kernels/versions.cu",
        find: "changes.positions[middle] < at",
        replacement: "changes.positions[middle] <= at",
        suite: Suite::Kernels,
    },
    Mutation {
        name: "a pass of the sort of versions turns equal digits round",
        file: "ptx/include/radix.cuh",
        find: "    return count + __popc(lower);\n",
        replacement: "    return count + __popc(equal) - 1 - __popc(lower);\n",
        suite: Suite::Kernels,
    },
    Mutation {
        name: "readers go to a bucket that is still being filled",
        file: "ptx/include/cache.cuh",
        find: r"    if (link == 0 || (link & FILLING) != 0) return nullptr;
    return view.cache.buckets + static_cast<u64>(link - 1)",
        replacement: r"    if (link == 0) return nullptr;
    return view.cache.buckets + static_cast<u64>((link & ~FILLING) - 1)",
        suite: Suite::Kernels,
    },
    Mutation {
        name: "two warps can claim one slot",
        file: "ptx/include/table.cuh",
        find: "                           compare_exchange(state_of(slot), EMPTY, BUSY) == EMPTY;\n",
        replacement: "                           (store(state_of(slot), BUSY), true);\n",
        suite: Suite::Kernels,
    },
    Mutation {
        name: "a slot claimed in vain is not given back",
        file: "ptx/kernels/index.cu",
        find: r"            if ((change.offset & CLAIMED) != 0) {
                store(table.state_of(table.slot_at(change.state_at())), EMPTY);
            }
",
        replacement: "",
        suite: Suite::Kernels,
    },
    Mutation {
        name: "a new record word is missing from the copy of its level",
        file: "ptx/kernels/index.cu",
        find: "        table.copy_record(slot, member_word(beside, change.record));\n",
        replacement: "",
        suite: Suite::Kernels,
    },
    Mutation {
        name: "buckets of a level that was left stay in the cache",
        file: "ptx/kernels/cache.cu",
        find: "        if (linked) unlink(view, choice, ordinal, choice.free_count + number);\n",
        replacement: "",
        suite: Suite::Kernels,
    },
    Mutation {
        name: "an item that has moved up stays below",
        file: "ptx/kernels/resize.cu",
        find: "        table.clear(below, moves || moved_before);\n",
        replacement: "",
        suite: Suite::Kernels,
    },
    Mutation {
        name: "an item leaves its level on the device before it stands above",
        file: "ptx/kernels/resize.cu",
        find: r"        if (moves) table.store_words(offset, state, moved);
        persist();
        if (moves) table.copy_state(above, state);
        order();
        if (moves) table.copy_record(above, moved);
        order();
        table.clear(below, moves || moved_before);
",
        replacement: r"        table.clear(below, moves || moved_before);
        if (moves) table.store_words(offset, state, moved);
        persist();
        if (moves) table.copy_state(above, state);
        order();
        if (moves) table.copy_record(above, moved);
        order();
",
        suite: Suite::KernelCrash("crash_images"),
    },
    Mutation {
        name: "the value of a removed item stays in the cache",
        file: "ptx/kernels/index.cu",
        find: "        if (gone) uncache(view, slot.bucket.ordinal, slot.index);\n",
        replacement: "",
        suite: Suite::Kernels,
    },
    Mutation {
        name: "the value of an item that has moved up stays in the cache",
        file: "ptx/kernels/resize.cu",
        find: "        if (moves || moved_before) uncache(view, below.bucket.ordinal, below.index);\n",
        replacement: "",
        suite: Suite::Kernels,
    },
    Mutation {
        name: "a reader does not look at the record word again",
        file: "ptx/include/table.cuh",
        find: "            if (group_load(record_of(slot)) != record) continue;\n",
        replacement: "",
        suite: Suite::Kernels,
    },
    Mutation {
        name: "a changed value never comes into the cache",
        file: "ptx/kernels/index.cu",
        find: r"    copy_values(values + at, cached.value, values, view.value_size, cached.value != nullptr);
    publish_cached(cached, change.record);
",
        replacement: "    (void)(values + at);\n",
        suite: Suite::Kernels,
    },
    Mutation {
        name: "a cached value changes while its tag stands",
        file: "ptx/include/cache.cuh",
        find: r"    store_tag(cached.tag, 0);
    order();
    if ((link & FILLING) != 0) return {};
",
        replacement: r"    if ((link & FILLING) != 0) {
        store_tag(cached.tag, 0);
        return {};
    }
",
        suite: Suite::Kernels,
    },
    Mutation {
        name: "a reader does not look at the tag again when it has copied a cached value",
        file: "ptx/include/cache.cuh",
        find: "    return cached.value == nullptr || load_tag(cached.tag) == record;\n",
        replacement: "    return cached.value == nullptr || record != 0;\n",
        suite: Suite::Kernels,
    },
    Mutation {
        name: "the page of a new record word is not noted as changed",
        file: "ptx/kernels/index.cu",
        find: "        table.mark_dirty(at, 8);\n",
        replacement: "",
        suite: Suite::Kernels,
    },
    Mutation {
        name: "the page of a filled or cleared slot is not noted as changed",
        file: "ptx/include/table.cuh",
        find: "        mark_dirty(offset, SLOT_WORDS_BYTES);\n",
        replacement: "",
        suite: Suite::Kernels,
    },
    Mutation {
        name: "a copied bucket keeps the order of the file",
        file: "ptx/kernels/mirror.cu",
        find: "        split_slots(bucket, bucket, slots);\n",
        replacement: "",
        suite: Suite::Kernels,
    },
    Mutation {
        name: "a load does not make up for what was changed beside it",
        file: "ptx/kernels/cache.cu",
        find: "        bool missing = cached.value != nullptr && load_tag(cached.tag) != record;\n",
        replacement: "        bool missing = false;\n",
        suite: Suite::Kernels,
    },
    Mutation {
        name: "a retired record is taken while it may be read",
        file: "ptx/include/records.cuh",
        find: "    u64 free = records.tail - records.head;\n",
        replacement: "    u64 free = records.retired_tail - records.head;\n",
        suite: Suite::Kernels,
    },
    Mutation {
        name: "the device takes an overflow bit of a level below",
        file: "ptx/kernels/recovery_scan.cu",
        find: "        for (u32 each = level; each <= table.view.top_level; each++) {\n",
        replacement: "        for (u32 each = table.view.bottom_level; each <= table.view.top_level; each++) {\n",
        suite: Suite::KernelCrash("recovery_scan"),
    },
    Mutation {
        name: "an insertion passes by its rivals",
        file: "src/table/ops/insert.rs",
        find: "            if other == addr {\n",
        replacement: "            if other == addr || word.is_tentative() {\n",
        suite: Suite::Loom("loom_tests::changes::insert_and_insert"),
    },
    Mutation {
        name: "an insertion is decided before its tag is shown",
        file: "src/table/ops/insert.rs",
        find: "if !word.is_tentative() || !self.is_shown(other, target) {",
        replacement: "if !word.is_tentative() {",
        suite: Suite::Loom("insert_and_the_same_key_anew"),
    },
    Mutation {
        name: "a record is used again while it may be read",
        file: "src/table/alloc/arena/epoch.rs",
        find: "pub const GRACE: u64 = 2;\n",
        replacement: "pub const GRACE: u64 = 0;\n",
        suite: Suite::Loom("loom_tests::records"),
    },
    Mutation {
        name: "a reader lets go of its epoch before it has read",
        file: "src/table/alloc/arena/epoch.rs",
        find: ".store(FREE, Ordering::Release);\n",
        replacement: ".store(FREE, Ordering::Relaxed);\n",
        suite: Suite::Loom("loom_tests::records"),
    },
    Mutation {
        name: "the log goes on in front of a segment that could not be made",
        file: "src/store/wal/mod.rs",
        find: "        tail.failed = true;\n        let prepared",
        replacement: "        let prepared",
        suite: Suite::Unit("checkpoint_of_which_a_call_fails"),
    },
    Mutation {
        name: "nothing vouches for the records of the last sync",
        file: "src/store/wal/mod.rs",
        find: "                tail.write_witness();\n",
        replacement: "",
        suite: Suite::Store("flipped_bit_in_the_last_sync"),
    },
    Mutation {
        name: "the store's index takes in a log that is not durable yet",
        file: "src/store/lifecycle/open.rs",
        find: "&Replay)| log.make_durable(dir);",
        replacement: "&Replay)| Ok(drop((dir, log)));",
        suite: Suite::Unit("store::crash_tests"),
    },
    Mutation {
        name: "what is deleted in a log leaves no tombstone for what has left the index since the opening",
        file: "src/store/lifecycle/open.rs",
        find: r"
                || self.tiers.spill.version(),
                |version, entry, sequence| self.change(version, (entry, sequence), false),",
        replacement: r"
                {
                    let version = self.tiers.spill.version();
                    move || version.clone()
                },
                |version, entry, sequence| self.change(version, (entry, sequence), false),",
        suite: Suite::Store("replay"),
    },
    Mutation {
        name: "what hides items of files stays in the index of a store that is compacted",
        file: "src/store/partition.rs",
        find: "let hiding = self.evict_hiding();",
        replacement: "let hiding = Ok(());",
        suite: Suite::Store("spill"),
    },
    Mutation {
        name: "compaction leaves sorted files to their threads",
        file: "src/store/lifecycle/hiding.rs",
        find: "let files = self.state.tiers.spill.compact_all(&mut told);",
        replacement: "told(0, 0);\n        let files = Ok(());",
        suite: Suite::Store("spill"),
    },
    Mutation {
        name: "nothing leaves the index while a log is replayed",
        file: "src/store/lifecycle/open.rs",
        find: "                    self.keep_within_budget();\n",
        replacement: "",
        suite: Suite::Store("replay"),
    },
    Mutation {
        name: "a long log stays although damage has cut it",
        file: "src/store/lifecycle/open.rs",
        find: "!manifest.complete || replay.is_cut ||",
        replacement: "!manifest.complete ||",
        suite: Suite::Store("replay"),
    },
    Mutation {
        name: "a request counts as executed whatever value it has left",
        file: "src/table/record.rs",
        find: r"
                && self.medium.load(at + 16) == header.checksum",
        replacement: "",
        suite: Suite::Unit("variable_tests"),
    },
    Mutation {
        name: "the log of a store is never synced",
        file: "src/store/wal/mod.rs",
        find: "        let synced = self.syncs.time(|| segment.sync());\n",
        replacement: "        let synced = Result::Ok(drop(segment));\n",
        suite: Suite::Unit("store::crash_tests"),
    },
    Mutation {
        name: "a checkpoint of a store gives up the log before the index is durable",
        file: "src/store/lifecycle/checkpoint.rs",
        find: "        self.tiers.table.complete_sync()?;\n",
        replacement: "",
        suite: Suite::Unit("store::crash_tests"),
    },
    Mutation {
        name: "a checkpoint of a store gives up what was logged since it was begun",
        file: "src/store/lifecycle/checkpoint.rs",
        find: "manifest.sequence = sealed.sequence;",
        replacement: "manifest.sequence = self.log.next_sequence() - 1;",
        suite: Suite::Unit("store::crash_tests"),
    },
    Mutation {
        name: "a transaction does not see what is before it in its group",
        file: "src/store/mvcc/read_keys.rs",
        find: "changed.contains(key.as_slice()) || ",
        replacement: "",
        suite: Suite::Unit("store::commit::group"),
    },
    Mutation {
        name: "keys that a transaction has read are forgotten when they have no room in memory",
        file: "src/store/mvcc/read_keys.rs",
        find: "        spilled.has_one_of(&hashes)\n",
        replacement: "        spilled.has_one_of(&[])\n",
        suite: Suite::Unit("store::mvcc::read_keys"),
    },
    Mutation {
        name: "the unsynced end of the log has no part in the memory budget",
        file: "src/store/options.rs",
        find: "        UNSYNCED_BYTES_MAX.min(budget / UNSYNCED_SHARE)\n",
        replacement: "        UNSYNCED_BYTES_MAX.min(budget)\n",
        suite: Suite::Unit("store::options"),
    },
    Mutation {
        name: "a transaction is committed before what is finished late",
        file: "src/store/commit/group.rs",
        find: r"        let finished = self.finish();
        let jobs = drop_conflicting(group, |read_set, changed| {
            read_set.hold(&self.old_versions(), changed)
        });
",
        replacement: r"        let jobs = drop_conflicting(group, |read_set, changed| {
            read_set.hold(&self.old_versions(), changed)
        });
        let finished = self.finish();
",
        suite: Suite::Unit("store::commit::group"),
    },
    Mutation {
        name: "a transaction of deletions does not come again on a full disk",
        file: "src/store/commit/queue.rs",
        find: "            Self::Transaction(_, read_set) => read_set.is_live(),\n",
        replacement: "            Self::Transaction(..) => false,\n",
        suite: Suite::Store("full_disk"),
    },
    Mutation {
        name: "a segment takes over the records of the one whose file it has",
        file: "src/store/files/segment.rs",
        find: "            salt: process::random_number(),\n",
        replacement: "            salt: 7,\n",
        suite: Suite::Store("replay"),
    },
    Mutation {
        name: "the file of a segment that counts is used again",
        file: "src/store/files/dir.rs",
        find: ".filter(|number| *number < first)",
        replacement: ".filter(|number| *number <= first)",
        suite: Suite::Store("replay"),
    },
    Mutation {
        name: "what was read early is not asked for again",
        file: "src/store/commit/optimistic_reads.rs",
        find: "if answer.is_some() && changed.last(request.key()) > self.since {",
        replacement: "if answer.is_some() && changed.last(request.key()) > self.since + u64::MAX / 2 {",
        suite: Suite::Unit("store::commit::group"),
    },
    Mutation {
        name: "very many changes of a group are not noted for those who have read early",
        file: "src/store/commit/optimistic_reads.rs",
        find: "            self.all = group;\n",
        replacement: "",
        suite: Suite::Unit("store::commit::group"),
    },
    Mutation {
        name: "what was read early hides what the batch changes",
        file: "src/store/commit/execute.rs",
        find: "            match self.value_before(key, position(first + nth)) {\n",
        replacement: "            let before = self.value_before(key, position(first + nth));\n            match before.filter(|_| !is_early(nth)) {\n",
        suite: Suite::Unit("store::commit::group"),
    },
    Mutation {
        name: "a compare-and-swap compares nothing",
        file: "src/store/commit/execute.rs",
        find: "match before == expected {\n                true =>",
        replacement: "match before == expected || true {\n                true =>",
        suite: Suite::Store("read_modify_write"),
    },
    Mutation {
        name: "a read-modify-write sees nothing of its batch",
        file: "src/store/commit/execute.rs",
        find: "let replaced = newest.replace(nth);",
        replacement: "let replaced: Option<usize> = None;",
        suite: Suite::Store("read_modify_write"),
    },
    Mutation {
        name: "a write whose condition is not met is made",
        file: "src/store/commit/execute.rs",
        find: "(_, Some(Outcome::Refused(_))) | (RequestRef::Get { .. } | RequestRef::Merge { .. }, _) => {\n",
        replacement: "(RequestRef::Get { .. } | RequestRef::Merge { .. }, _) => {\n",
        suite: Suite::Store("requests_of_a_batch"),
    },
    Mutation {
        name: "offsets of columns go backwards",
        file: "src/store/columns/mod.rs",
        find: "    if !offsets.is_sorted() {\n",
        replacement: "    if offsets.is_empty() {\n",
        suite: Suite::Unit("store::columns"),
    },
    Mutation {
        name: "values for columns are joined as they were found",
        file: "src/binary_column/gather.rs",
        find: "        let is_sorted = values.is_sorted_by_key(|value| value.start);\n",
        replacement: "        let is_sorted = true;\n",
        suite: Suite::Unit("store::columns"),
    },
    Mutation {
        name: "a key without a value has the empty one in columns",
        file: "src/store/columns/values.rs",
        find: "byte >> (nth % 8) & 1 != 0",
        replacement: "byte >> (nth % 8) & 1 != 2",
        suite: Suite::Unit("store::columns"),
    },
    Mutation {
        name: "a get in columns sees nothing of its batch",
        file: "src/store/commit/execute.rs",
        find: "                Some(Some(value)) => part.set(nth, value),\n",
        replacement: "                Some(Some(_)) => {}\n",
        suite: Suite::Unit("store::commit::group"),
    },
    Mutation {
        name: "the store keeps columns when a verb has returned",
        file: "src/store/commit/queue.rs",
        find: "            Some(Batch::Columns(_)) | None => 0,\n",
        replacement: "            Some(Batch::Columns(columns)) => {\n                std::mem::forget(columns.clone());\n                0\n            }\n            None => 0,\n",
        suite: Suite::Store("columns_are_given_back"),
    },
    Mutation {
        name: "a snapshot reads what many keys have now",
        file: "src/store/partitions/reads.rs",
        find: "                    .for_each(|(nth, value)| values[nth] = value),\n",
        replacement: "                    .for_each(drop),\n",
        suite: Suite::Store("snapshots"),
    },
    Mutation {
        name: "a column of a snapshot has what its keys have now",
        file: "src/store/partitions/column_reads.rs",
        find: "            Seen::Some(seen) => part.replace(&seen),\n",
        replacement: "            Seen::Some(_) => {}\n",
        suite: Suite::Store("columns"),
    },
    Mutation {
        name: "a key of old versions is not in their filter",
        file: "src/store/mvcc/old_versions.rs",
        find: "                self.filter.insert(xxh3_64(key));\n",
        replacement: "",
        suite: Suite::Unit("store::mvcc::old_versions"),
    },
    Mutation {
        name: "a column that a GPU reads of a snapshot has what its keys have now",
        file: "src/store/partitions/gpu_columns.rs",
        find: "                self.see(&numbers, key, snapshot, read, &mut part)?;\n",
        replacement: "                let _ = (numbers, snapshot, read?);\n",
        suite: Suite::Emulated("gpu_reads::tests::columns_of_snapshots"),
    },
    Mutation {
        name: "what the index hides in files stays there at rest",
        file: "src/store/lifecycle/hiding.rs",
        find: "        Ok(own + count * bytes / (samples.len() as u64).max(1))\n",
        replacement: "        Ok(own + count * bytes / (samples.len() as u64).max(1) / 8)\n",
        suite: Suite::Store("rest_removes"),
    },
    Mutation {
        name: "a key with a tombstone is contained",
        file: "src/store/inner.rs",
        find: "Some(meta) => Ok(!meta.is_tombstone()),",
        replacement: "Some(_) => Ok(true),",
        suite: Suite::Store("spill"),
    },
    Mutation {
        name: "a second reader of one moment is not counted",
        file: "src/pool/snapshots.rs",
        find: "        *live.entry(commit_seq).or_default() += 1;\n",
        replacement: "        live.entry(commit_seq).or_insert(1);\n",
        suite: Suite::Store("snapshots"),
    },
    Mutation {
        name: "a group of several partitions counts although a prepare record is lost",
        file: "src/store/lifecycle/groups.rs",
        find: "decided.get(group) != Some(&true)",
        replacement: "!decided.contains_key(group)",
        suite: Suite::Unit("store::crash_tests"),
    },
    Mutation {
        name: "a group of several partitions counts without its commit record",
        file: "src/store/lifecycle/groups.rs",
        find: "decided.get(group) != Some(&true)",
        replacement: "decided.get(group) == Some(&false)",
        suite: Suite::Unit("store::crash_tests"),
    },
    Mutation {
        name: "old versions stay in a store at rest",
        file: "src/store/partitions/mod.rs",
        find: "            with_versions.for_each(|one| one.background.forget_unseen(&one.state));\n",
        replacement: "            drop(with_versions);\n",
        suite: Suite::Store("snapshots"),
    },
    Mutation {
        name: "work is shared with threads that are not to be had",
        file: "src/pool/parallel.rs",
        find: "        _ if !has_threads() => (0..parts).for_each(part),\n",
        replacement: "",
        suite: Suite::Store("open_stores::indexes"),
    },
    Mutation {
        name: "nobody compacts where no thread does",
        file: "src/lsm/levels.rs",
        find: "                compact_due(self);\n                return;\n",
        replacement: "                return;\n",
        suite: Suite::Store("open_stores::indexes"),
    },
    Mutation {
        name: "an older copy of a partition passes",
        file: "src/store/files/unopened.rs",
        find: "manifest.generation < known",
        replacement: "manifest.generation > known",
        suite: Suite::Store("partitions"),
    },
    Mutation {
        name: "closing a store does not write down what its partitions have come to",
        file: "src/store/lifecycle/checkpoint.rs",
        find: "    store_dir.note_others()\n",
        replacement: "    Ok(())\n",
        suite: Suite::Store("partitions"),
    },
    Mutation {
        name: "a salvage of what is whole keeps a group without its commit record",
        file: "src/store/lifecycle/recover.rs",
        find: "    options.takes_older = salvage
        && ",
        replacement: "    options.takes_older = salvage
        || ",
        suite: Suite::Unit("store::lifecycle::groups"),
    },
    Mutation {
        name: "a salvage that ends forgets that an index was made anew",
        file: "src/store/lifecycle/rebuild.rs",
        find: "unnamed),\n        salvaged: true,\n",
        replacement: "unnamed),\n        salvaged: false,\n",
        suite: Suite::Unit("store::lifecycle::groups"),
    },
    Mutation {
        name: "what stood behind a group that does not count comes back",
        file: "src/store/wal/replay.rs",
        find: "        self.has_tail = true;\n",
        replacement: "",
        suite: Suite::Unit("store::crash_tests"),
    },
    Mutation {
        name: "the index of a partition is durable before the logs of others",
        file: "src/store/partition.rs",
        find: "            self.state.shared.sync_groups()?;\n",
        replacement: "",
        suite: Suite::Unit("store::crash_tests"),
    },
    Mutation {
        name: "a checkpoint gives up commit records that others need",
        file: "src/store/partition.rs",
        find: "self.others.iter().filter_map(Weak::upgrade).collect();",
        replacement: "self.others.iter().filter_map(Weak::upgrade).take(0).collect();",
        suite: Suite::Unit("store::crash_tests"),
    },
    Mutation {
        name: "a transaction lets go of what it has read before the log has it",
        file: "src/store/commit/group.rs",
        find: "        let first = self.log.next_sequence();\n        self.shared.prefetch_cached(finals);\n",
        replacement: "        let first = self.log.next_sequence();\n        read_sets.iter().for_each(|read_set| read_set.release());\n        self.shared.prefetch_cached(finals);\n",
        suite: Suite::Store("full_calls"),
    },
    Mutation {
        name: "a leader does what a caller asked to hold the queue for",
        file: "src/store/commit/queue.rs",
        find: "job.work.batch().is_some() && !job",
        replacement: "!job",
        suite: Suite::Unit("store::commit::queue"),
    },
    Mutation {
        name: "a deletion is refused while another partition gives room back",
        file: "src/store/files/reserve.rs",
        find: "matches!(self, Self::Refill | Self::Deletion)",
        replacement: "matches!(self, Self::Refill)",
        suite: Suite::Unit("store::files::reserve"),
    },
    Mutation {
        name: "a removal leaves to others that an item has moved durably",
        file: "src/table/probe.rs",
        find: "            if record == RecordWord::NONE {\n",
        replacement: "            if record == RecordWord::NONE && self.shape.slots == 0 {\n",
        suite: Suite::Unit("table::resize"),
    },
    Mutation {
        name: "closing gives up commit records that others need",
        file: "src/store/lifecycle/checkpoint.rs",
        find: "let is_free = matches!(closed, Ok(true));",
        replacement: "let is_free = true;",
        suite: Suite::Store("partition_that_cannot_be_closed"),
    },
    Mutation {
        name: "the prepare records of an aborted group stay",
        file: "src/store/wal/mod.rs",
        find: "        tail.unsynced.truncate(kept);\n        tail.next = first;\n        // It may",
        replacement: "        let _ = kept;\n        // It may",
        suite: Suite::Unit("store::crash_tests"),
    },
    Mutation {
        name: "the commit record of an aborted group stays",
        file: "src/store/partitions/commit.rs",
        find: "                if written.is_ok() {\n                    part.state",
        replacement: "                if written.is_ok() && part.part.participants.is_empty() {\n                    part.state",
        suite: Suite::Unit("store::fault_tests::group"),
    },
    Mutation {
        name: "a moment does not wait for a commit that is being published",
        file: "src/store/mvcc/clock.rs",
        find: "            while (1..=newest).contains",
        replacement: "            while (1..0).contains",
        suite: Suite::Loom("loom_moment"),
    },
    Mutation {
        name: "a group of changes counts as made before it is",
        file: "src/store/commit/apply.rs",
        find: "        let applied = self.with_last_room(|| self.apply(alone, commit_seq, first, finals));\n",
        replacement: "        self.finished.store(commit_seq, Ordering::Release);\n        let applied = self.with_last_room(|| self.apply(alone, commit_seq, first, finals));\n",
        suite: Suite::Store("one_after"),
    },
    Mutation {
        name: "a deletion leaves nothing of a value on its way into a file",
        file: "src/store/resident/tiers.rs",
        find: "        is_evicting\n            || version.may_have(key)",
        replacement: "        is_evicting && !is_evicting\n            || version.may_have(key)",
        suite: Suite::Unit("store::lifecycle::eviction"),
    },
    Mutation {
        name: "a deletion leaves nothing of a value that a file has",
        file: "src/store/resident/tiers.rs",
        find: "            || version.may_have(key)\n",
        replacement: "            || is_evicting && version.may_have(key)\n",
        suite: Suite::Unit("store::lifecycle::eviction"),
    },
    Mutation {
        name: "an item leaves the table although it has changed",
        file: "src/store/resident/evict.rs",
        find: "if stamp == stamps[nth] {",
        replacement: "if stamp == stamps[nth] || stamp > 0 {",
        suite: Suite::Unit("store::lifecycle::eviction"),
    },
    Mutation {
        name: "an item comes up over a newer one",
        file: "src/store/resident/promote.rs",
        find: "if self.tiers.table.get(key, |_, _| ())?.is_none() && (is_same || is_newest()?) {",
        replacement: "if is_same || is_newest()? {",
        suite: Suite::Unit("store::lifecycle::eviction"),
    },
    Mutation {
        name: "items go into files before the log is durable",
        file: "src/store/lifecycle/eviction.rs",
        find: "        self.shared.sync_logs()?;\n        Ok(found)",
        replacement: "        Ok(found)",
        suite: Suite::Unit("store::lifecycle::eviction"),
    },
    Mutation {
        name: "an item goes into a file although it has changed since it was found",
        file: "src/store/lifecycle/eviction.rs",
        find: "Ok((stamp, value)) if stamp == cold.items[some[found]].stamp => {",
        replacement: "Ok((stamp, value)) if stamp > 0 => {",
        suite: Suite::Unit("store::lifecycle::eviction"),
    },
    Mutation {
        name: "a round of eviction begins no earlier although changes would have waited for the last one",
        file: "src/store/resident/budget.rs",
        find: "limit - brought.min(limit / EARLY_SHARE * 3)",
        replacement: "limit - brought.min(0)",
        suite: Suite::Unit("store::lifecycle::eviction"),
    },
    Mutation {
        name: "a chunk of items that leave has none of the last key before a cut",
        file: "src/hot_cache/cold_items.rs",
        find: "                chunks.push(start..end);\n",
        replacement: "                chunks.push(start..end - 1);\n",
        suite: Suite::Unit("store::lifecycle::eviction"),
    },
    Mutation {
        name: "a manifest takes its name before it is durable",
        file: "src/store/files/manifest.rs",
        find: "        file.sync()?;\n        file.rename",
        replacement: "        file.rename",
        suite: Suite::Unit("store::crash_tests"),
    },
    Mutation {
        name: "the name of a log segment is not durable",
        file: "src/store/files/segment.rs",
        find: "        file.sync()?;\n        file.sync_dir()?;\n        Ok(Self {",
        replacement: "        file.sync()?;\n        Ok(Self {",
        suite: Suite::Unit("store::crash_tests"),
    },
    Mutation {
        name: "an edit begins with the whole copy of the manifest",
        file: "src/store/files/manifest.rs",
        find: "for nth in [*first, 1 - *first] {",
        replacement: "for nth in [0, 1] {",
        suite: Suite::Unit("store::files::manifest"),
    },
    Mutation {
        name: "a sorted file counts before it is durable",
        file: "src/lsm/sst/writer.rs",
        find: "self.out.sync()?;",
        replacement: "self.out.flush()?;",
        suite: Suite::Unit("lsm::tests::crashes"),
    },
    Mutation {
        name: "the name of a sorted file is not durable",
        file: "src/lsm/levels.rs",
        find: "self.files.first().map_or(Ok(()), |sst| sst.sync_names())",
        replacement: "Ok(())",
        suite: Suite::Unit("lsm::tests::crashes"),
    },
    Mutation {
        name: "an opening removes sorted files before the list without them is durable",
        file: "src/lsm/levels.rs",
        find: "            // The list may not be durable yet: a power cut could bring back one that has them.\n            catalog.edit(&[], &[])?;\n",
        replacement: "",
        suite: Suite::Unit("lsm::tests::crashes"),
    },
    Mutation {
        name: "a value file counts before it is durable",
        file: "src/lsm/values/writer.rs",
        find: "self.out.sync()?;",
        replacement: "self.out.flush()?;",
        suite: Suite::Unit("lsm::tests::crashes"),
    },
    Mutation {
        name: "a value file goes while a sorted file refers to it",
        file: "src/lsm/values/file.rs",
        find: "if self.users.fetch_sub(1, Ordering::AcqRel) == 1 {",
        replacement: "if self.users.fetch_sub(1, Ordering::AcqRel) >= 1 {",
        suite: Suite::Unit("lsm::tests::value_files"),
    },
    Mutation {
        name: "a value is returned whatever its checksum",
        file: "src/lsm/values/file.rs",
        find: "match found == value.checksum {",
        replacement: "match found == value.checksum || true {",
        suite: Suite::Unit("lsm::tests::damage"),
    },
    Mutation {
        name: "values of a worn file stay where they are",
        file: "src/lsm/version.rs",
        find: "values.saturating_sub(self.bytes) > values / 3",
        replacement: "values.saturating_sub(self.bytes) > values",
        suite: Suite::Unit("lsm::tests::value_files"),
    },
    Mutation {
        name: "a read that did not wait and is short counts",
        file: "src/pm/file.rs",
        find: "read => Ok(read? == len),",
        replacement: "read => Ok(read? <= len),",
        suite: Suite::Unit("lsm::tests::lookups"),
    },
    Mutation {
        name: "a key whose block a disk has begun to read is left out",
        file: "src/lsm/lookups.rs",
        find: "Err(NotRead::WouldBlock) => some.push(lookup),",
        replacement: "Err(NotRead::WouldBlock) => {}",
        suite: Suite::Unit("lsm::tests::lookups"),
    },
    Mutation {
        name: "blocks of many keys are waited for one after the other",
        file: "src/lsm/lookups.rs",
        find: "for waits in [false, true] {",
        replacement: "for waits in [true] {",
        suite: Suite::Unit("lsm::tests::lookups"),
    },
    Mutation {
        name: "values of a page are waited for one after the other",
        file: "src/lsm/page.rs",
        find: "(runs.len() > 1).then(bytes).flatten()",
        replacement: "(runs.len() > usize::MAX - 1).then(bytes).flatten()",
        suite: Suite::Unit("lsm::tests::lookups"),
    },
    Mutation {
        name: "a salvage keeps an entry whose value is lost",
        file: "src/lsm/values/salvage.rs",
        find: "read => Ok(read.unwrap_or(false)),",
        replacement: "_ => Ok(true),",
        suite: Suite::Unit("lsm::tests::damage"),
    },
    Mutation {
        name: "the key at which a compaction is cut is in two parts",
        file: "src/lsm/compaction/job.rs",
        find: "if to.is_some_and(|to| to <= entry.key) {",
        replacement: "if to.is_some_and(|to| to < entry.key) {",
        suite: Suite::Unit("lsm::tests::model"),
    },
    Mutation {
        name: "a tombstone goes although a deeper level has the key",
        file: "src/lsm/compaction/job.rs",
        find: "None if hides() =>",
        replacement: "None if false && hides() =>",
        suite: Suite::Unit("lsm::tests::model"),
    },
    Mutation {
        name: "an item of another key stands for an entry of the ordered view",
        file: "src/store/ordered/chunk.rs",
        find: "if !self.chunk.is_only(entry, key) {",
        replacement: "if false {",
        suite: Suite::Unit("store::ordered"),
    },
    Mutation {
        name: "only the last shard is asked for the newest snapshot",
        file: "src/pool/snapshots.rs",
        find: "newest = newest.max(before.map(|(seq, _)| *seq));",
        replacement: "newest = before.map(|(seq, _)| *seq);",
        suite: Suite::Unit("snapshots"),
    },
    Mutation {
        name: "readers do not hear that old versions were kept",
        file: "src/store/commit/apply.rs",
        find: "            self.newest_kept.fetch_max(commit_seq, Ordering::SeqCst);\n",
        replacement: "",
        suite: Suite::Store("snapshots"),
    },
    Mutation {
        name: "a page of a range has room for any number of bytes",
        file: "src/store/ordered/page.rs",
        find: "self.is_full = self.bytes > 0 && bytes > PAGE_BYTES_MAX;",
        replacement: "self.is_full = false;",
        suite: Suite::Store("memory"),
    },
    Mutation {
        name: "a range copies a long value out of its buffer",
        file: "src/store/partitions/order.rs",
        find: "EntryMeta(stamp).value(std::mem::take(value))",
        replacement: "EntryMeta(stamp).value(value.clone())",
        suite: Suite::Store("memory"),
    },
    Mutation {
        name: "a block that has not been read is taken to be behind the next key",
        file: "src/lsm/merge.rs",
        find: "before.is_read().cmp(&cursor.is_read())",
        replacement: "cursor.is_read().cmp(&before.is_read())",
        suite: Suite::Unit("lsm::tests::model"),
    },
    Mutation {
        name: "an older run of level 0 comes before a newer one",
        file: "src/lsm/version.rs",
        find: "        runs[..newest].reverse();\n",
        replacement: "",
        suite: Suite::Unit("lsm::tests::model"),
    },
    Mutation {
        name: "files of a failed edit are removed",
        file: "src/lsm/levels.rs",
        find: "            doubtful.extend(added.iter().filter(is_new).cloned());\n",
        replacement: "            added.iter().filter(is_new).for_each(|sst| sst.set_obsolete());\n",
        suite: Suite::Unit("lsm::tests::faults"),
    },
    Mutation {
        name: "the checksum of a block is not checked",
        file: "src/lsm/sst/block/frame.rs",
        find: "    if checksum != expected {",
        replacement: "    if false {",
        suite: Suite::Unit("lsm::tests::damage"),
    },
    Mutation {
        name: "files that change their level are removed",
        file: "src/lsm/levels.rs",
        find: " in gone.iter().filter(|(_, sst)| !is_moved(sst.number())) {",
        replacement: " in gone.iter() {",
        suite: Suite::Unit("lsm::tests::model"),
    },
    Mutation {
        name: "the last key of a sorted file is passed by",
        file: "src/lsm/version.rs",
        find: "*sst.properties().largest < *key;",
        replacement: "*sst.properties().largest <= *key;",
        suite: Suite::Unit("lsm::tests::model"),
    },
    Mutation {
        name: "files of level 0 that share a key are in two slices",
        file: "src/lsm/compaction/slices.rs",
        find: "last.largest < properties.smallest",
        replacement: "last.largest <= properties.smallest",
        suite: Suite::Unit("lsm::tests::slices"),
    },
    Mutation {
        name: "level 0 goes down past files of level 1",
        file: "src/lsm/compaction/slices.rs",
        find: "        overlap(version.level(1), &self.smallest, &self.largest)",
        replacement: "        overlap(version.level(1), &self.smallest, &self.smallest)",
        suite: Suite::Unit("lsm::tests::model"),
    },
    Mutation {
        name: "a forked child is taken for the process that has opened the file",
        file: "src/process.rs",
        find: "    FORKS.fetch_add(1, Ordering::Relaxed);",
        replacement: "",
        suite: Suite::Paths("fork"),
    },
    Mutation {
        name: "runs that many ranges read stay as they are",
        file: "src/lsm/compaction/slices.rs",
        find: "        seeks.saturating_mul(SEEK_BYTES) >=",
        replacement: "        u64::from(seeks > seeks) >",
        suite: Suite::Unit("lsm::tests::slices"),
    },
    Mutation {
        name: "compaction is not told of ranges that were read",
        file: "src/lsm/levels.rs",
        find: "        if is_next(before, before + seeks, SEEKS_ASKED) && has_slice_read_often(version) {\n",
        replacement: "        if before > before + seeks {\n",
        suite: Suite::Store("spill::ranges"),
    },
    Mutation {
        name: "a moved record is published before it is durable",
        file: "src/table/compact.rs",
        find: r"            table.persist_record(to);
            medium.fence();
",
        replacement: "            table.persist_record(to);\n",
        suite: Suite::Unit("crash_tests::scripted::compaction"),
    },
    Mutation {
        name: "a record that has moved is free before that is durable",
        file: "src/table/compact.rs",
        find: r"                medium.write_back(addr.record, 8);
                medium.fence();
                self.retire(from);
",
        replacement: "                self.retire(from);\n",
        suite: Suite::Unit("crash_tests::scripted::compaction"),
    },
    Mutation {
        name: "an extent table that is not durable is named",
        file: "src/table/free_extents.rs",
        find: "        self.medium.write_back(start, EXTENT_TABLE_LEN);\n",
        replacement: "",
        suite: Suite::Unit("crash_tests::scripted::compaction"),
    },
    Mutation {
        name: "one superblock names the extent table that is no more",
        file: "src/table/free_extents.rs",
        find: r"        superblock.extent_count = count;
        self.commit(superblock);
        self.commit(superblock);
",
        replacement: r"        superblock.extent_count = count;
        self.commit(superblock);
",
        suite: Suite::Unit("crash_tests::superblocks"),
    },
    Mutation {
        name: "records of a part that is emptied are handed out",
        file: "src/table/alloc/arena/vacate.rs",
        find: "        if self.is_active.load(Ordering::Acquire)\n",
        replacement: "        if false\n",
        suite: Suite::Arena("vacate"),
    },
    Mutation {
        name: "a part leaves that is not empty",
        file: "src/table/alloc/arena/vacate.rs",
        find: "(is_unused || free.len() as u64 == part.count) {",
        replacement: "(is_unused || free.len() as u64 <= part.count) {",
        suite: Suite::Arena("vacate"),
    },
    Mutation {
        name: "room is punched before the checkpoint that gives it up",
        file: "src/table/free_extents.rs",
        find: "            Domain::Checkpointed => Stage::Fresh,\n",
        replacement: "            Domain::Checkpointed => Stage::Settled,\n",
        suite: Suite::Unit("room_goes_back_after_the_checkpoint"),
    },
    Mutation {
        name: "changes beside a shrink are not noted",
        file: "src/table/session.rs",
        find: "        if self.is_noting && target.reserved.is_none() {",
        replacement: "        if false {",
        suite: Suite::Loom("loom_tests::growth::shrink"),
    },
    Mutation {
        name: "a shrink begins beside batches that note nothing",
        file: "src/table/shrink.rs",
        find: "        if !self.wait_for_pins() {\n            return Copied::NotAll;",
        replacement: "        if false {\n            return Copied::NotAll;",
        suite: Suite::Loom("loom_tests::growth::shrink"),
    },
    Mutation {
        name: "what batches change while levels shrink is not copied",
        file: "src/table/session.rs",
        find: "        if !self.changed.is_empty() {\n            self.table.copy_changed",
        replacement: "        if false {\n            self.table.copy_changed",
        suite: Suite::Loom("loom_tests::growth::shrink"),
    },
    Mutation {
        name: "what a batch has copied to smaller levels is copied again",
        file: "src/table/shrink.rs",
        find: "        match self.holds(new, word) {",
        replacement: "        match false {",
        suite: Suite::Loom("loom_tests::growth::shrink"),
    },
    Mutation {
        name: "a level of free room is named in one copy of the superblock",
        file: "src/table/resize.rs",
        find: "        if free.is_some() {\n            // What was appended",
        replacement: "        if false {\n            // What was appended",
        suite: Suite::Unit("superblock_damage_in_the_newest_copy"),
    },
    Mutation {
        name: "a level of free room is not cleared",
        file: "src/table/resize.rs",
        find: "                self.clear(offset, len);\n",
        replacement: "",
        suite: Suite::Unit("crash_tests"),
    },
    Mutation {
        name: "smaller levels are shown before all batches note what they change",
        file: "src/table/shrink.rs",
        find: "        if !self.wait_for_pins() {\n            return Copied::NotAll;\n        }\n        noting.show(new);",
        replacement: "        noting.show(new);\n        if !self.wait_for_pins() {\n            return Copied::NotAll;\n        }",
        suite: Suite::Loom("loom_tests::growth::shrink_and_two"),
    },
    Mutation {
        name: "a record goes into the window of another part of the log",
        file: "src/pm/window.rs",
        find: "*first == start && ",
        replacement: "",
        suite: Suite::Unit("pm::window"),
    },
    Mutation {
        name: "the filter of a batch's changes forgets some",
        file: "src/pool/hash_filter.rs",
        find: "            part.words[nth] |= 1 << bit;\n",
        replacement: "            part.words[nth] = 1 << bit;\n",
        suite: Suite::Unit("store::commit"),
    },
    Mutation {
        name: "what earlier requests leave is not in a column that a GPU helps to read",
        file: "src/store/partitions/gpu_columns.rs",
        find: "                part.set(nth, value);\n",
        replacement: "                let _ = (nth, value);\n",
        suite: Suite::Emulated("gpu_reads::tests::columns_have_what_was_put"),
    },
    Mutation {
        name: "what is added leaves other partitions less than they need",
        file: "src/store/files/reserve.rs",
        find: "                _ => self.others().try_for_each(Share::restore),\n",
        replacement: "                _ => Ok(()),\n",
        suite: Suite::Unit("reserve"),
    },
    Mutation {
        name: "what chunks before have of a partition is not counted",
        file: "src/pool/split.rs",
        find: "                *count += chunk.of(rank).len();\n",
        replacement: "                let _ = rank;\n",
        suite: Suite::Unit("split"),
    },
    Mutation {
        name: "requests of a partition begin anew in each chunk",
        file: "src/pool/split.rs",
        find: "(position(before)..).zip(of_partition)",
        replacement: "(position(before * 0)..).zip(of_partition)",
        suite: Suite::Unit("split"),
    },
    Mutation {
        name: "which values there are is added to what the buffers had",
        file: "src/binary_column/gather.rs",
        find: "        validity.fill(0);\n",
        replacement: "",
        suite: Suite::Unit("store::columns"),
    },
    Mutation {
        name: "values that have come are lost when their buffer grows",
        file: "src/binary_column/builder.rs",
        find: "        bytes[..used].copy_from_slice(&old[..used]);\n",
        replacement: "        drop(old);\n",
        suite: Suite::Unit("store::columns"),
    },
    Mutation {
        name: "two versions of a bucket are not sorted",
        file: "src/store/commit/key_writes.rs",
        find: "if bucket.len() > 1 {",
        replacement: "if bucket.len() > 2 {",
        suite: Suite::Unit("key_writes"),
    },
    Mutation {
        name: "a partitioner that says otherwise is taken at its word",
        file: "src/store/partitions/route.rs",
        find: "if said != number {",
        replacement: "if false {",
        suite: Suite::Store("partitioner"),
    },
    Mutation {
        name: "a store whose names are lost takes any partitioner",
        file: "src/store/partitions/route.rs",
        find: "&& is_known {",
        replacement: "{",
        suite: Suite::Store("partitioner"),
    },
    Mutation {
        name: "a part that panics is forgotten",
        file: "src/pool/crew.rs",
        find: "            resume_unwind(panic);",
        replacement: "            drop(panic);",
        suite: Suite::Unit("crew"),
    },
    Mutation {
        name: "a moment sees a group that comes after it",
        file: "src/store/mvcc/published.rs",
        find: "state & IS_SHOWN != 0 && state >> SEQ_SHIFT <= moment",
        replacement: "state & IS_SHOWN != 0",
        suite: Suite::Loom("loom_moment_sees"),
    },
    Mutation {
        name: "a changed slot is not noted for who has copies of the buckets",
        file: "src/table/session.rs",
        find: "        if self.is_watched {\n            self.table.note_slot(addr);",
        replacement: "        if !self.is_watched {\n            self.table.note_slot(addr);",
        suite: Suite::Emulated("partitions::gpu_reads"),
    },
    Mutation {
        name: "a slot whose item moves up is not noted for who has copies of the buckets",
        file: "src/table/resize.rs",
        find: "        self.note_moved(from);\n        // A copy above",
        replacement: "        // A copy above",
        suite: Suite::Emulated("locator_tests"),
    },
    Mutation {
        name: "the device names an item that is being moved",
        file: "ptx/kernels/locator.cu",
        find: "(TENTATIVE | COLLIDED | FROZEN)",
        replacement: "(TENTATIVE | COLLIDED)",
        suite: Suite::Emulated("locator_tests"),
    },
    Mutation {
        name: "the device says that a key is absent which is being moved",
        file: "ptx/kernels/locator.cu",
        find: "        is_seen |= group_any(state == fingerprint);\n",
        replacement: "",
        suite: Suite::Emulated("locator_tests"),
    },
    Mutation {
        name: "the device says that keys are absent while items move",
        file: "src/engine/cuda/locator.rs",
        find: "levels == copied[&number].levels && !levels.draining(table.shape.levels)",
        replacement: "levels.top >= copied[&number].levels.top",
        suite: Suite::Emulated("locator_tests"),
    },
    Mutation {
        name: "absent keys have empty values",
        file: "src/binary_column/gather.rs",
        find: "u8::from(end & NULL_END == 0)",
        replacement: "u8::from(end & NULL_END != u32::MAX)",
        suite: Suite::Unit("store::columns"),
    },
    Mutation {
        name: "the record of a slot that has changed is not copied to the device",
        file: "src/engine/cuda/locator.rs",
        find: "            lines.extend(all",
        replacement: "            if number > 0 { continue; }\n            lines.extend(all",
        suite: Suite::Emulated("locator_tests"),
    },
    Mutation {
        name: "a long value leaves the record that was there before on the device",
        file: "src/engine/cuda/locator.rs",
        find: "false => SMALLEST_RECORD,",
        replacement: "false => continue,",
        suite: Suite::Emulated("locator_tests"),
    },
    Mutation {
        name: "the device gives the value of another key",
        file: "ptx/kernels/locator.cu",
        find: "if (group_any(differs)) return nullptr;",
        replacement: "",
        suite: Suite::Emulated("locator_tests"),
    },
    Mutation {
        name: "the device gives a damaged value",
        file: "ptx/kernels/locator.cu",
        find: "mix(lengths) ^ sequence) == checksum;",
        replacement: "mix(lengths) ^ sequence) != checksum + 1;",
        suite: Suite::Emulated("locator_tests"),
    },
    Mutation {
        name: "the values of each chunk are placed at the beginning",
        file: "ptx/kernels/locator.cu",
        find: "before += found.chunks[nth].bytes;",
        replacement: "before += 0;",
        suite: Suite::Emulated("partitions::gpu_reads"),
    },
    Mutation {
        name: "the device has no record that is across two pieces of a file",
        file: "ptx/kernels/locator.cu",
        find: "PIECE > PIECE + PIECE_TAIL",
        replacement: "PIECE > PIECE",
        suite: Suite::Emulated("locator_tests"),
    },
    Mutation {
        name: "the device looks in the nearest buckets alone",
        file: "ptx/kernels/locator.cu",
        find: "round <= OVERFLOW_ROUNDS",
        replacement: "round < 1",
        suite: Suite::Emulated("partitions::gpu_reads"),
    },
    Mutation {
        name: "values are put behind a gap of a column",
        file: "ptx/gpu/locator/column.rs",
        find: "            target.is_closed |= !is_placed;\n",
        replacement: "            let _ = is_placed;\n",
        suite: Suite::Emulated("partitions::gpu_reads"),
    },
    Mutation {
        name: "the room that a device leaves for a value stays as it is",
        file: "src/store/partitions/gpu_columns.rs",
        find: "        asked.complete(&mut builder);\n",
        replacement: "        drop(asked);\n",
        suite: Suite::Emulated("partitions::gpu_reads"),
    },
    Mutation {
        name: "a device is asked for a key that the column has deleted",
        file: "src/store/partitions/gpu_questions.rs",
        find: "                    Some(None) => ABSENT,",
        replacement: "                    Some(None) => ASKED,",
        suite: Suite::Emulated("partitions::gpu_reads"),
    },
    Mutation {
        name: "a line of a record is not repeated behind the piece before",
        file: "ptx/kernels/locator.cu",
        find: "        if (piece > 0 && within < PIECE_TAIL) to(",
        replacement: "        if (piece > 0 && within < PIECE_TAIL && false) to(",
        suite: Suite::Emulated("locator_tests"),
    },
    Mutation {
        name: "an eviction lowers what a partition needs for what is added beside it",
        file: "src/store/files/reserve.rs",
        find: "            Purpose::Eviction { files } => bytes.max(self.needed + files),",
        replacement: "            Purpose::Eviction { .. } => bytes,",
        suite: Suite::Unit("reserve"),
    },
    Mutation {
        name: "pinned memory of columns has no bound",
        file: "ptx/gpu/pinned_pool.rs",
        find: "blocks.pinned - idle + len > PINNED_BYTES_MAX",
        replacement: "idle > usize::MAX - 1",
        suite: Suite::Emulated("partitions::gpu_reads"),
    },
    Mutation {
        name: "a noted slot is not found below the summary of notes",
        file: "src/table/changed_slots.rs",
        find: "        set(&self.words, slot / WORD_BITS);",
        replacement: "",
        suite: Suite::Emulated("partitions::gpu_reads"),
    },
    Mutation {
        name: "the device looks a fingerprint up in one bucket of each level",
        file: "ptx/kernels/locator.cu",
        find: "nth < view.locations; nth++",
        replacement: "nth < 1; nth++",
        suite: Suite::Emulated("partitions::gpu_reads"),
    },
    Mutation {
        name: "a key of which a newer run has an entry is kept once more",
        file: "ptx/kernels/compaction.cu",
        find: "        bool is_kept = after > 0 && compare_keys",
        replacement: "        bool is_kept = after >= 0 && compare_keys",
        suite: Suite::Emulated("lsm::tests::gpu::gpu_makes_the_same_files"),
    },
    Mutation {
        name: "a tombstone that hides something is left out",
        file: "ptx/kernels/compaction.cu",
        find: "        if (dropped[nth] != 0) job.kept",
        replacement: "        if (dropped[nth] == 0) job.kept",
        suite: Suite::Emulated("lsm::tests::gpu::gpu_makes_the_same_files"),
    },
    Mutation {
        name: "a block of a compaction does not end where its file does",
        file: "ptx/kernels/compaction.cu",
        find: "            starts = position / job.block_bytes != before / job.block_bytes ||\n                     position / job.file_bytes != before / job.file_bytes;",
        replacement: "            starts = position / job.block_bytes != before / job.block_bytes;",
        suite: Suite::Emulated("lsm::tests::gpu::gpu_makes_the_same_files"),
    },
    Mutation {
        name: "a filter has a word with another salt",
        file: "ptx/kernels/compaction.cu",
        find: "    0x47b6137b, 0x44974d91,",
        replacement: "    0x47b6137d, 0x44974d91,",
        suite: Suite::Emulated("lsm::tests::gpu::gpu_makes_the_same_files"),
    },
    Mutation {
        name: "a key at a restart point shares bytes with the one before",
        file: "ptx/kernels/compaction.cu",
        find: "        if (of_block % RESTART_INTERVAL != 0) {\n            u32 last",
        replacement: "        if (of_block != 0) {\n            u32 last",
        suite: Suite::Emulated("lsm::tests::gpu::gpu_makes_the_same_files"),
    },
    Mutation {
        name: "the largest sequence number of a block is the smallest one of its lanes",
        file: "ptx/kernels/compaction.cu",
        find: "            largest = other > largest ? other : largest;",
        replacement: "            largest = other < largest ? other : largest;",
        suite: Suite::Emulated("lsm::tests::gpu::gpu_makes_the_same_files"),
    },
    Mutation {
        name: "what files have in value files counts for the first one alone",
        file: "ptx/kernels/compaction.cu",
        find: "static_cast<u64>(job.files[block_of(job, nth)]) * job.value_file_count + low;",
        replacement: "low;",
        suite: Suite::Emulated("lsm::tests::gpu::gpu_makes_the_same_files"),
    },
    Mutation {
        name: "the key at which a job is cut is in both parts",
        file: "ptx/kernels/compaction.cu",
        find: "job.bounds + job.stride, job.to_len, job.stride) < 0;",
        replacement: "job.bounds + job.stride, job.to_len, job.stride) <= 0;",
        suite: Suite::Emulated("lsm::tests::gpu::gpu_makes_parts_of_jobs"),
    },
    Mutation {
        name: "a change leaves the old value in the hot cache until it is published",
        file: "src/hot_cache/bucket.rs",
        find: "            held.remove(nth);\n            offset = Some(descriptor.offset());",
        replacement: "            offset = Some(descriptor.offset());",
        suite: Suite::HotCache("swaps"),
    },
    Mutation {
        name: "a get fills the hot cache while a change of its bucket is under way",
        file: "src/hot_cache/bucket.rs",
        find: "if self.blockers.load(Ordering::Relaxed) == 0 && is_hot() {",
        replacement: "if is_hot() {",
        suite: Suite::HotCache("buckets"),
    },
    Mutation {
        name: "a fill does not ask again whether its bin is hot",
        file: "src/hot_cache/bucket.rs",
        find: "if self.blockers.load(Ordering::Relaxed) == 0 && is_hot() {",
        replacement: "if self.blockers.load(Ordering::Relaxed) == 0 {",
        suite: Suite::HotCache("buckets"),
    },
    Mutation {
        name: "a swap purges nothing",
        file: "src/hot_cache/lib.rs",
        find: "            for bucket in &self.buckets {",
        replacement: "            for bucket in &self.buckets[..0] {",
        suite: Suite::HotCache("swaps"),
    },
    Mutation {
        name: "a swap does not wait for changes that are under way",
        file: "src/hot_cache/lib.rs",
        find: "        wait();\n",
        replacement: "        drop(wait);\n",
        suite: Suite::HotCache("swap_waits"),
    },
    Mutation {
        name: "changes of bins that are newly hot do not block them yet",
        file: "src/hot_cache/lib.rs",
        find: "        self.router.block_also(&hot);\n        wait();\n        if self.router.serve_only(&hot) {",
        replacement: "        wait();\n        let dropped = self.router.serve_only(&hot);\n        self.router.block_also(&hot);\n        if dropped {",
        suite: Suite::HotCache("swap_waits"),
    },
    Mutation {
        name: "a group is published before its keys are blocked in the hot cache",
        file: "src/store/commit/apply.rs",
        find: "        let _blocked = self.shared.block_cached(group.finals());\n",
        replacement: "",
        suite: Suite::Store("hot_cache"),
    },
    Mutation {
        name: "a group of several partitions does not block its keys in the hot cache",
        file: "src/store/partitions/commit.rs",
        find: "        Some(_) => finals.sum(),\n",
        replacement: "        Some(_) => return Vec::from_iter(finals.map(|_| None)),\n",
        suite: Suite::Store("hot_cache"),
    },
    Mutation {
        name: "a swap waits for the changes of one partition alone",
        file: "src/store/partitions/hot_reads.rs",
        find: "states().for_each(|state| drop(state.applying()))",
        replacement: "states().take(1).for_each(|state| drop(state.applying()))",
        suite: Suite::Unit("swap_waits"),
    },
    Mutation {
        name: "a file of a store is where a program prints to",
        file: "src/pm/dir.rs",
        find: "        ..=libc::STDERR_FILENO => {\n",
        replacement: "        ..0 => {\n",
        suite: Suite::Store("open_stores::store_takes"),
    },
    Mutation {
        name: "a file takes all addresses that a limited process has",
        file: "src/pm/address_range.rs",
        find: "power(left / 2)),",
        replacement: "u64::MAX),",
        suite: Suite::Unit("address_range"),
    },
    Mutation {
        name: "the allocator is asked for its free memory at each occasion",
        file: "src/pool/heap.rs",
        find: "took.saturating_mul(rest)",
        replacement: "took",
        suite: Suite::Unit("heap"),
    },
    Mutation {
        name: "a turn of a parallel loop takes up another one while it waits for its parts",
        file: "src/pool/lib.rs",
        find: "        let run = || match threads.filter(|_| !is_in_foreign_pool()) {\n            Some(threads) => shared(&threads, work),\n            None => alone(work),\n        };\n        // The caller's thread would do tasks of others meanwhile, which may call us again.\n        match is_in_foreign_pool() {\n            true => run_off_pool(run),\n",
        replacement: "        let run = || match threads {\n            Some(threads) => shared(&threads, work),\n            None => alone(work),\n        };\n        // The caller's thread would do tasks of others meanwhile, which may call us again.\n        match is_in_foreign_pool() {\n            true => run(),\n",
        suite: Suite::Store("threads"),
    },
    Mutation {
        name: "asynchronous requests count no longer once they are executed",
        file: "src/store/commit/queue.rs",
        find: "                    state.finished.push((callback, bytes, outcome));\n",
        replacement: "                    state.bytes -= bytes;\n                    state.finished.push((callback, 0, outcome));\n",
        suite: Suite::Store("callbacks::full_queue"),
    },
    Mutation {
        name: "files that are damaged keep others from being compacted",
        file: "src/lsm/compaction/plan.rs",
        find: "                self.set_aside.insert(number, found);\n",
        replacement: "                drop(found);\n",
        suite: Suite::Unit("lsm::tests::slices::other"),
    },
    Mutation {
        name: "each manifest that cannot be written costs a segment of the log",
        file: "src/store/wal/mod.rs",
        find: "            tail.prepared = Some(prepared);\n",
        replacement: "            drop(prepared);\n",
        suite: Suite::Unit("manifest_that_cannot"),
    },
    Mutation {
        name: "the tool gives a store names that it does not know",
        file: "src/store/partitions/mod.rs",
        find: "if let Some(names) = options.names_to_check() {",
        replacement: "if let Some(names) = Some(options.names()) {",
        suite: Suite::Store("recover::compaction"),
    },
    Mutation {
        name: "a segment that is prepared keeps a record that was taken back",
        file: "src/store/wal/mod.rs",
        find: "        tail.prepared = None;\n",
        replacement: "",
        suite: Suite::Unit("aborted_record"),
    },
    Mutation {
        name: "an insertion takes the mark of another one in its slot for its own",
        file: "src/table/ops/insert.rs",
        find: "medium.load(mine.record) != tentative.with(RecordWord::COLLIDED).0",
        replacement: "medium.load(mine.record) & RecordWord::COLLIDED == 0",
        suite: Suite::Unit("insertion_is_not_taken"),
    },
    Mutation {
        name: "an insertion helps a rival that names no record",
        file: "src/table/ops/insert.rs",
        find: "if other.state < addr.state && self.record_in_bounds(word) {",
        replacement: "if other.state < addr.state {",
        suite: Suite::Unit("rival_that_names_no_record"),
    },
    Mutation {
        name: "a damaged slot is left behind when levels shrink",
        file: "src/table/shrink.rs",
        find: "            new.give_up();\n        }\n        (is_there",
        replacement: "        }\n        (is_there",
        suite: Suite::Unit("damaged_slot_is_not_left"),
    },
    Mutation {
        name: "a shrink that finds no room leaves the disk full",
        file: "src/table/shrink.rs",
        find: "                self.give_back_preallocated();\n",
        replacement: "",
        suite: Suite::Unit("table::shrink::tests"),
    },
    Mutation {
        name: "a compaction moves the record of a damaged slot",
        file: "src/table/compact.rs",
        find: "            if !record.is_sound(state) {\n",
        replacement: "            if false {\n",
        suite: Suite::Unit("table::shrink::tests"),
    },
    Mutation {
        name: "a level is dropped with a damaged slot in it",
        file: "src/table/resize.rs",
        find: "            resize.damaged = resize.damaged.or(damaged);\n",
        replacement: "            let _ = damaged;\n",
        suite: Suite::Unit("table::resize::tests"),
    },
    Mutation {
        name: "levels shrink beside a damaged slot that is no item's",
        file: "src/table/shrink.rs",
        find: "if is_there && !record.is_sound(state)",
        replacement: "if is_there && record.is_member() && !record.is_sound(state)",
        suite: Suite::Unit("table::shrink::tests"),
    },
    Mutation {
        name: "a device gives back records that readers may hold",
        file: "src/engine/cuda/table/record_pool.rs",
        find: "        table.arena.retire(retired, || table.epochs.current());\n",
        replacement: "        table.arena.give(retired);\n",
        suite: Suite::Emulated("record_pool::tests"),
    },
    Mutation {
        name: "answers in device memory may be anywhere",
        file: "src/index/device.rs",
        find: r#"[("keys", keys.address()), ("answers", answers.address())]"#,
        replacement: r#"[("keys", keys.address())]"#,
        suite: Suite::CudaUnit("index::device::tests"),
    },
    Mutation {
        name: "an insertion that is held up passes for damage",
        file: "src/table/ops/insert.rs",
        find: "self.epochs.try_advance() >= epoch + GRACE",
        replacement: "epoch > 0",
        suite: Suite::Unit("ops::insert::tests"),
    },
    Mutation {
        name: "a shrink makes room while others wait for its end",
        file: "src/table/shrink.rs",
        find: r"            if self.shrinking.is_hurried() {
                return Ok(None);
            }
            prepared",
        replacement: "            prepared",
        suite: Suite::Unit("table::shrink::tests"),
    },
    Mutation {
        name: "a file that a device's scan finds damaged stays pinned",
        file: "src/engine/cuda/recovery_scan.rs",
        find: "Ok(Some(found)) if found.damage.is_empty())",
        replacement: "Ok(Some(found)) if found.slots > 0)",
        suite: Suite::Emulated("recovery_scan::tests"),
    },
    Mutation {
        name: "nothing is compacted beside damage that lookups have met",
        file: "src/engine/cuda/service.rs",
        find: "let done = catch_unwind(AssertUnwindSafe(work));",
        replacement: "let done = catch_unwind(AssertUnwindSafe(|| handed_back.clone().and_then(|()| work())));",
        suite: Suite::Emulated("index::device::tests"),
    },
    Mutation {
        name: "a device grows the table for a key whose one bucket is full",
        file: "src/engine/cuda/batch/write.rs",
        find: "                self.check_reserved(batch.operands)?;\n",
        replacement: "",
        suite: Suite::Emulated("index::device::tests"),
    },
    Mutation {
        name: "a table that is taken back forgets which records were given up",
        file: "src/table/recovery/mod.rs",
        find: "            .max(self.arena.high_water(class));\n",
        replacement: "            .max(0);\n",
        suite: Suite::CudaUnit("retake_after_a_compaction"),
    },
    Mutation {
        name: "free room goes back to the file system while a device has it",
        file: "src/engine/cuda/recovery_scan.rs",
        find: "        table.set_pinned(true);\n",
        replacement: "",
        suite: Suite::DriverFaults("free_room_of_a_killed_file"),
    },
    Mutation {
        name: "damage that lookups have met is told by every sync",
        file: "src/engine/cuda/table/counts.rs",
        find: "!self.told.lock().insert(counted.damaged)",
        replacement: "self.told.lock().contains(&counted.damaged)",
        suite: Suite::DriverFaults("damage_that_a_lookup_meets"),
    },
    Mutation {
        name: "merged values stay that nothing reads",
        file: "src/store/commit/execute.rs",
        find: "                    made[replaced] = Some(Outcome::Met);\n",
        replacement: "",
        suite: Suite::Unit("merged_values_are_kept"),
    },
    Mutation {
        name: "merged values go that a swap answers",
        file: "src/store/commit/execute.rs",
        find: "replaced.filter(|_| !is_swap)",
        replacement: "replaced.filter(|_| !is_swap || true)",
        suite: Suite::Unit("merged_values_are_kept"),
    },
    Mutation {
        name: "a deletion waits for room because of what is beside it",
        file: "src/store/commit/group.rs",
        find: "            goes_before(self.finish(), || Requests::One(job).only_delete())?;\n",
        replacement: "            self.finish()?;\n",
        suite: Suite::Unit("deletion_goes_before"),
    },
    Mutation {
        name: "an asynchronous request overtakes a batch of several partitions",
        file: "src/store/async_verbs.rs",
        find: "        let partition = self.partition_of(&requests);\n",
        replacement: "        let partition = self.partition_of(&requests).or(match &requests[..] {\n            [one] => Some(partitions.of(one.key())),\n            _ => None,\n        });\n",
        suite: Suite::Unit("asynchronous_requests_keep"),
    },
    Mutation {
        name: "a change that is waited for overtakes asynchronous ones of its thread",
        file: "src/store/partitions/mod.rs",
        find: "(is_one && !self.async_order.has_outstanding(number)).then(",
        replacement: "is_one.then(",
        suite: Suite::Unit("changes_that_are_waited_for"),
    },
    Mutation {
        name: "asynchronous requests count as done before their callbacks are called",
        file: "src/store/partitions/mod.rs",
        find: "            let _outstanding = outstanding;\n",
        replacement: "            drop(outstanding);\n",
        suite: Suite::Unit("callbacks_of_a_thread"),
    },
    Mutation {
        name: "an item gives way to a newer one whose value cannot be read",
        file: "src/store/resident/tiers.rs",
        find: "newer > sequence => version.get(key).map(|_| Some(newer)),",
        replacement: "newer > sequence => version.find(key).map(|_| Some(newer)),",
        suite: Suite::Unit("items_that_files_have_newer"),
    },
    Mutation {
        name: "callbacks are called while a checkpoint is taken",
        file: "src/store/commit/queue.rs",
        find: "            self.run_next_group(leader);\n        }\n    }\n",
        replacement: "            self.run_next_group(leader);\n            self.serve(leader);\n        }\n    }\n",
        suite: Suite::Unit("callbacks_are_called_by_callers"),
    },
    Mutation {
        name: "a thread serves its own partition alone",
        file: "src/store/commit/queue.rs",
        find: "            leader.serve_others();\n",
        replacement: "",
        suite: Suite::Store("partition_without_threads"),
    },
    Mutation {
        name: "the leader asks the user's partitioner again",
        file: "src/store/partitions/column_reads.rs",
        find: "numbers.push(low_byte(number as u64));",
        replacement: "let _ = number;\n                    let key = batch.key(positions.start + nth);\n                    numbers.push(low_byte(self.number_of(key) as u64));",
        suite: Suite::Store("partitioner_that_panics_once"),
    },
    Mutation {
        name: "the name of a merge operator is asked for unguarded",
        file: "src/store/merge.rs",
        find: "operator: user_code::merge(|| operator.name().into())\n            .unwrap_or_else(|_| \"whose name() panics\".into()),",
        replacement: "operator: operator.name().into(),",
        suite: Suite::Store("merge_that_fails_beside"),
    },
    Mutation {
        name: "a thread that ends has lost its role",
        file: "src/pool/crew.rs",
        find: "let before = ROLE.try_with(|of_thread| of_thread.replace(role));",
        replacement: "let before = Ok::<_, ()>(ROLE.replace(role));",
        suite: Suite::Store("thread_ends"),
    },
    Mutation {
        name: "keys that a disk refuses are written each time",
        file: "src/store/mvcc/read_keys.rs",
        find: "spill.read_bytes_max.max(2 * self.failed)",
        replacement: "spill.read_bytes_max",
        suite: Suite::Unit("disk_that_refuses_keys"),
    },
    Mutation {
        name: "forged blocks are gathered in the order of their file",
        file: "src/lsm/gather.rs",
        find: "last.as_deref() < Some(key.as_slice())",
        replacement: "last.as_deref() != Some(key.as_slice())",
        suite: Suite::Unit("blocks_in_another_order"),
    },
    Mutation {
        name: "a flush leaves a log that is behind",
        file: "src/store/shared.rs",
        find: "logs.filter(|log| log.is_behind()).collect();",
        replacement: "logs.filter(|log| log.is_behind()).skip(1).collect();",
        suite: Suite::Unit("power_cut_leaves_whole_batches"),
    },
    Mutation {
        name: "partitions that wait do so one after the other",
        file: "src/pool/parallel.rs",
        find: "run_on(WAITING_THREADS, parts, part)",
        replacement: "run_on(1, parts, part)",
        suite: Suite::Unit("parts_wait_side_by_side"),
    },
    Mutation {
        name: "nobody wakes those who take more than their share",
        file: "src/pool/demands.rs",
        find: "                keeper.call_if_possible();\n",
        replacement: "                let _ = keeper;\n",
        suite: Suite::Unit("who_grows_wakes"),
    },
    Mutation {
        name: "nobody waits for what others owe",
        file: "src/pool/demands.rs",
        find: "if self.all[number].bytes() <= self.kept() {",
        replacement: "if true {",
        suite: Suite::Unit("who_grows_waits"),
    },
    Mutation {
        name: "a partition is granted what another one takes",
        file: "src/pool/demands.rs",
        find: "(left + own - others).max(self.share)",
        replacement: "left.max(self.share)",
        suite: Suite::Unit("resident::demands"),
    },
    Mutation {
        name: "what a partition takes is not known at an opening",
        file: "src/store/lifecycle/background.rs",
        find: "            budget.note_taken(&partition.state.tiers);\n",
        replacement: "",
        suite: Suite::Store("partition_takes_more_than_its_share"),
    },
    Mutation {
        name: "nobody calls back where no thread does",
        file: "src/store/mod.rs",
        find: "        self.partitions().serve_if_nobody_does();\n        answer\n",
        replacement: "        answer\n",
        suite: Suite::Unit("callbacks_are_called_by_callers"),
    },
    Mutation {
        name: "who waits for room relies on a thread that is not there",
        file: "src/store/commit/queue.rs",
        find: "if leader.lacks_server().load(Ordering::Relaxed) {",
        replacement: "if false {",
        suite: Suite::Unit("callers_make_room"),
    },
    Mutation {
        name: "compaction at rest tries damaged files each time",
        file: "src/lsm/levels.rs",
        find: "        let mut failed: HashMap<u64, Error> = HashMap::new();\n",
        replacement: "        self.plan().try_all();\n        let mut failed: HashMap<u64, Error> = HashMap::new();\n",
        suite: Suite::Unit("lsm::tests::slices::other"),
    },
    Mutation {
        name: "a partition that says it is a store is recovered as one",
        file: "src/store/lifecycle/recover.rs",
        find: "says that it is one.\n            identity::check_name(&root)?;\n",
        replacement: "says that it is one.\n",
        suite: Suite::Store("partition_that_became"),
    },
    Mutation {
        name: "a file with the name of a partition counts as one",
        file: "src/store/lifecycle/rebuild.rs",
        find: "if !names.contains(&name) || !root.join(&name).is_dir() {",
        replacement: "if !names.contains(&name) {",
        suite: Suite::Store("files_with_names_of_partitions"),
    },
    Mutation {
        name: "items of any length come up into the table at once",
        file: "src/store/resident/promote.rs",
        find: "                if bytes + len > most {",
        replacement: "                if bytes + len == 0 {",
        suite: Suite::Unit("store::lifecycle::eviction::tests::promot"),
    },
    Mutation {
        name: "keys of items that come up into the table are not counted",
        file: "src/store/resident/promote.rs",
        find: "let len = (key.len() + value.len()) as u64;",
        replacement: "let len = value.len() as u64;",
        suite: Suite::Unit("store::lifecycle::eviction::tests::promot"),
    },
    Mutation {
        name: "items that one group has no room for are forgotten",
        file: "src/store/resident/promote.rs",
        find: "                    tiers.put_back_promotable([key].into_iter().chain(keys));\n",
        replacement: "",
        suite: Suite::Unit("store::lifecycle::eviction::tests::promot"),
    },
    Mutation {
        name: "damaged files are tried again as often as at first",
        file: "src/lsm/compaction/plan.rs",
        find: "2 * before.pause",
        replacement: "before.pause",
        suite: Suite::Unit("damaged_files_are_left"),
    },
    Mutation {
        name: "a merge goes on with a cursor that others have overtaken",
        file: "src/lsm/merge.rs",
        find: "if advanced.is_ok() && self.is_first_before() {",
        replacement: "if advanced.is_ok() && self.cursors[first].key().is_some() {",
        suite: Suite::Unit("lsm::tests::model"),
    },
    Mutation {
        name: "what comes to hide items of files meanwhile leaves with the others",
        file: "src/store/lifecycle/hiding.rs",
        find: "stamp.sequence() < next && hides(",
        replacement: "next > 0 && hides(",
        suite: Suite::Unit("eviction_of_what_hides"),
    },
    Mutation {
        name: "an item goes with the file that it was promoted from",
        file: "src/store/resident/tiers.rs",
        find: "EntryMeta::new(meta.sequence(), false).0",
        replacement: "meta.0",
        suite: Suite::Unit("promoted_item_outlives"),
    },
    Mutation {
        name: "a slice that cannot be read keeps others from being compacted",
        file: "src/lsm/levels.rs",
        find: "if matches!(error, Error::NoSpace { .. } | Error::ReadOnly { .. }) {",
        replacement: "if error.is_refusal() {",
        suite: Suite::Unit("lsm::tests::faults::other"),
    },
    Mutation {
        name: "a page of a range is lost with the item behind it",
        file: "src/store/ordered/chunk.rs",
        find: "            Err(Error::Damaged { .. }) if filling.end_early() => return Ok(read),\n",
        replacement: "",
        suite: Suite::Unit("store::ordered::tests::page_ends"),
    },
    Mutation {
        name: "files that nobody reads keep new ones from being made",
        file: "src/lsm/sst/writer.rs",
        find: "with_descriptors(|| dir.create_file(&name))?",
        replacement: "dir.create_file(&name)?",
        suite: Suite::Unit("lsm::tests::faults::additions"),
    },
    Mutation {
        name: "a change gives up the record that a damaged word names",
        file: "src/table/probe.rs",
        find: "&& !member.record.is_sound(target.word)",
        replacement: "&& member.record.0 == 0",
        suite: Suite::BadInput("changes_give_up"),
    },
    Mutation {
        name: "a kernel gives up the record that a damaged word names",
        file: "ptx/kernels/index.cu",
        find: "if (found.is_sound) there",
        replacement: "if (true) there",
        suite: Suite::EmulatedBadInput("changes_give_up"),
    },
    Mutation {
        name: "a kernel inserts a second item beside a damaged slot",
        file: "ptx/kernels/index.cu",
        find: "} else if (INSERTS && !table.met_damage) {",
        replacement: "} else if (INSERTS) {",
        suite: Suite::EmulatedBadInput("item_with"),
    },
    Mutation {
        name: "a kernel reads a record from its middle on",
        file: "ptx/include/table.cuh",
        find: "(offset & (alignment - 1)) == 0",
        replacement: "offset % 8 == 0",
        suite: Suite::EmulatedBadInput("item_with_an_invalid"),
    },
    Mutation {
        name: "a partition whose disk was full counts as replayed",
        file: "src/store/lifecycle/open.rs",
        find: "        if self.is_full {\n            let replayed",
        replacement: "        if false && self.is_full {\n            let replayed",
        suite: Suite::Store("replay::long_logs"),
    },
];
