//! Who serves a table: the device, and the CPU once the device has failed for good.
//!
//! A call of the driver that fails is an error of the batch that needed it. What that batch has
//! done is then unknown if the device had begun to change the table. No batch goes on from there.
//! The table is taken back from the engine and recovered as by an opening, without being closed.
//! Then the device takes it over anew if its driver works again, else the CPU.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use super::table::{Copiers, DeviceTable, Prepared, Told};
use crate::engine::cpu::CpuEngine;
use crate::gpu::budget::IndexBudget;
use crate::gpu::device::{Device, Entered};
use crate::pm::Mapping;
use crate::pool::run_off_pool;
use crate::table::Table;
use crate::table::idle::IdleWatch;
use crate::table::maintenance::Pace;
use crate::{Engine, Error, Options, Result};

/// How long a call lets one go first who waits to be alone: longer than most batches take, so that those under way
/// have ended by then.
const TURN: Duration = Duration::from_millis(10);

/// The device of an index, and who serves its table.
pub(super) struct Service {
    /// Held shared by whoever is served, alone by whoever changes who serves.
    serving: RwLock<Serving>,
    /// Held while the device has let go of the file.
    away: Mutex<()>,
    /// Damage that lookups have met, and nobody was told of yet.
    untold: Mutex<Option<Error>>,
    /// Where that is which callers were told of, however often the device has let go of the file since.
    told: Told,
    device: Device,
    budget: IndexBudget,
    ordinal: u32,
    options: Options,
}

enum Serving {
    /// No table is attached.
    Nobody,
    Device(Box<DeviceTable>),
    Host(CpuEngine),
    /// The CPU, while the device has let go of the file. The threads wait for it: there may be none to be had later.
    Away(CpuEngine, Copiers),
    /// The table could not be recovered, for this reason.
    Lost(String),
}

/// Who serves one call.
pub(super) enum Server<'s> {
    Device(&'s DeviceTable),
    Host(&'s CpuEngine),
}

impl Service {
    pub(super) fn new(device: Device, ordinal: u32, options: &Options) -> Self {
        Self {
            serving: RwLock::new(Serving::Nobody),
            away: Mutex::default(),
            untold: Mutex::default(),
            told: Told::default(),
            device,
            budget: IndexBudget::new(options.device_memory_budget),
            ordinal,
            options: options.clone(),
        }
    }

    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    pub(super) fn budget(&self) -> &IndexBudget {
        &self.budget
    }

    /// Makes the device current for the calling thread.
    fn enter(&self) -> Result<Entered> {
        Ok(self.device.enter()?)
    }

    pub(super) fn options(&self) -> &Options {
        &self.options
    }

    /// What has come of a call that tells of damage: also of that which was found before.
    pub(super) fn tell<T>(&self, answer: Result<T>) -> Result<T> {
        let untold = self.untold.lock().take();
        answer.and_then(|answer| untold.map_or(Ok(answer), Err))
    }

    /// Which engine serves the table.
    pub(super) fn engine(&self) -> Engine {
        match &*self.serving.read_recursive() {
            Serving::Host(_) => Engine::Cpu,
            _ => Engine::Cuda {
                device: self.ordinal,
            },
        }
    }

    /// Lets the device serve the table from here on.
    ///
    /// # Errors
    /// [`Error::Gpu`]; nobody serves it then.
    pub(super) fn attach(
        &self,
        table: &Table<Mapping>,
        prepared: &mut Option<Prepared>,
    ) -> Result<()> {
        // What a scan has pinned stays with the caller if the device cannot be entered: it could not be given back.
        let entered = self.enter().inspect_err(|_| table.set_pinned(false));
        let _entered = entered?;
        *self.serving.write() = self.take_over(table, prepared.take(), None)?;
        Ok(())
    }

    /// Has the device take the table over, which it pins. The device is entered.
    fn take_over(
        &self,
        table: &Table<Mapping>,
        prepared: Option<Prepared>,
        copiers: Option<Copiers>,
    ) -> Result<Serving> {
        table.set_pinned(true);
        let told = Told::clone(&self.told);
        let device = (&self.device, &self.budget);
        DeviceTable::new(device, &self.options, table, prepared, copiers, told)
            .map(|device_table| Serving::Device(Box::new(device_table)))
            .inspect_err(|_| table.set_pinned(false))
    }

    /// The CPU, which serves the table instead of the device.
    fn host_instead(&self, error: &Error) -> Serving {
        tracing::warn!(%error, "the CPU goes on instead of the GPU");
        Serving::Host(CpuEngine::new(self.options.threads))
    }

    /// Serves a call. The device is entered meanwhile.
    ///
    /// # Errors
    /// Those of the call. After [`Error::Gpu`] the next call is served by whoever can.
    pub(super) fn serve<T>(
        &self,
        table: &Table<Mapping>,
        call: impl FnOnce(Server<'_>) -> Result<T>,
    ) -> Result<T> {
        self.serve_by(self.enter_service(), table, call)
    }

    /// Waits for a turn at most while another one waits to be alone, who else might wait for ever beside calls that
    /// follow each other closely. Not for longer: a thread of a pool may be served already.
    fn enter_service(&self) -> RwLockReadGuard<'_, Serving> {
        let in_turn = self.serving.try_read_for(TURN);
        in_turn.unwrap_or_else(|| self.serving.read_recursive())
    }

    /// As [`serve`](Self::serve), once the device has come back if it has let go of the file.
    ///
    /// # Errors
    /// As [`serve`](Self::serve).
    pub(super) fn serve_on_device<T>(
        &self,
        table: &Table<Mapping>,
        call: impl FnOnce(Server<'_>) -> Result<T>,
    ) -> Result<T> {
        loop {
            let serving = self.enter_service();
            if !matches!(*serving, Serving::Away(..)) {
                return self.serve_by(serving, table, call);
            }
            drop(serving);
            table.maintenance.idle.hurry(|| drop(self.away.lock()));
        }
    }

    fn serve_by<T>(
        &self,
        serving: RwLockReadGuard<'_, Serving>,
        table: &Table<Mapping>,
        call: impl FnOnce(Server<'_>) -> Result<T>,
    ) -> Result<T> {
        let answer = match &*serving {
            Serving::Device(device_table) => {
                let serve = |_entered| call(Server::Device(device_table));
                self.enter().and_then(serve)
            }
            Serving::Host(engine) | Serving::Away(engine, _) => return call(Server::Host(engine)),
            Serving::Nobody => return Err(without_table()),
            Serving::Lost(reason) => return Err(lost(reason)),
        };
        drop(serving);
        if let Err(Error::Gpu { .. }) = &answer {
            run_off_pool(|| self.take_back_if_failed(table));
        }
        answer
    }

    /// One round of the table's maintenance; gives how long to rest.
    pub(super) fn maintain(
        &self,
        table: &Table<Mapping>,
        pace: &mut Pace,
        watch: &mut IdleWatch,
    ) -> Option<Duration> {
        let rest = self.maintain_served(table, pace);
        let compact = || {
            let mut is_done = true;
            let work = || table.compact_paced().map(|done| is_done = done);
            let Some(compacted) = self.without_device(table, work) else {
                // Others do so; what they leave is for later.
                return Ok(false);
            };
            if let Err(error @ Error::Damaged { .. }) = compacted {
                // The lookups that have met it have had no call to be told by.
                *self.untold.lock() = Some(error);
                return Ok(is_done);
            }
            compacted.map(|()| is_done)
        };
        rest.or_else(|| table.compact_if_idle(watch, compact))
    }

    fn maintain_served(&self, table: &Table<Mapping>, pace: &mut Pace) -> Option<Duration> {
        let kept = self.serve(table, |server| match server {
            // Who watches stores wants those of batches alone.
            Server::Device(_) if self.options.write_trace.is_some() => Ok(None),
            Server::Device(device_table) => device_table.maintain(table, pace),
            Server::Host(_) => Ok(table.maintain(pace)),
        });
        kept.unwrap_or_else(|error| {
            tracing::warn!(%error, "the maintenance rests");
            None
        })
    }

    /// Finds out, after a call of the driver has failed, whether the device can go on from where it is,
    /// and takes the table back from it if not.
    fn take_back_if_failed(&self, table: &Table<Mapping>) {
        let mut serving = self.serving.write();
        let Serving::Device(device_table) = &*serving else {
            return;
        };
        let goes_on = |_entered| device_table.check(table);
        if let Err(error) = self.enter().and_then(goes_on) {
            tracing::warn!(%error, "taking the table back from the GPU");
            self.take_back(&mut serving, table, true);
        }
    }

    /// Takes the table back from the device and recovers it, and lets the device serve it again if it can
    /// and is `wanted`, else the CPU.
    fn take_back(&self, serving: &mut Serving, table: &Table<Mapping>, wanted: bool) {
        let Serving::Device(device_table) = std::mem::replace(serving, Serving::Nobody) else {
            return;
        };
        // A device that cannot be entered does nothing any more, and frees nothing.
        let entered = self.enter();
        let copiers = device_table.release(table);
        match copiers.install(|| table.retake()) {
            Ok(recovery) => tracing::info!(?recovery, "took the table back from the GPU"),
            Err(error) => {
                tracing::error!(%error, "the table cannot be used until it is opened again");
                *serving = Serving::Lost(error.to_string());
                return;
            }
        }
        table.set_pinned(false);
        *serving = match wanted {
            true => entered
                .and_then(|_entered| self.take_over(table, None, Some(copiers)))
                .unwrap_or_else(|error| self.host_instead(&error)),
            false => Serving::Host(CpuEngine::new(self.options.threads)),
        };
    }

    /// Finishes what is under way, so that the table can be closed. Nobody serves it then.
    ///
    /// # Errors
    /// [`Error::Damaged`] if lookups have met damage, [`Error::Gpu`] if the table could not be recovered
    /// after the device had failed. The file is then as after a crash.
    pub(super) fn detach(&self, table: &Table<Mapping>) -> Result<()> {
        run_off_pool(|| {
            let mut serving = self.serving.write();
            let given = match &*serving {
                Serving::Device(device_table) => {
                    let hand_back = |_entered| device_table.hand_back(table);
                    self.enter().and_then(hand_back)
                }
                _ => Ok(()),
            };
            let given = match given {
                Err(error @ Error::Gpu { .. }) => {
                    tracing::warn!(%error, "closing without the GPU");
                    self.take_back(&mut serving, table, false);
                    Ok(())
                }
                given => given,
            };
            let _entered = self.enter();
            let served = std::mem::replace(&mut *serving, Serving::Nobody);
            match served {
                Serving::Lost(reason) => Err(lost(&reason)),
                served => {
                    drop(served);
                    table.set_pinned(false);
                    given
                }
            }
        })
    }

    /// Does `work` to the table while the device lets go of it. The CPU serves batches meanwhile; those on device
    /// slices wait. Only one at a time does so: `None` if others do.
    ///
    /// # Errors
    /// [`Error::Gpu`] if the device cannot let go; the table is then served by whoever can. Those of `work`, else
    /// [`Error::Damaged`] if lookups have met damage.
    pub(super) fn without_device(
        &self,
        table: &Table<Mapping>,
        work: impl FnOnce() -> Result<()> + Send,
    ) -> Option<Result<()>> {
        let _away = self.away.try_lock()?;
        Some(run_off_pool(|| {
            let handed_back = match self.let_go(table) {
                Err(error) => return Err(error),
                Ok(None) => return work(),
                Ok(Some(handed_back)) => handed_back,
            };
            // What a callback of the caller panics with must not leave the table unattended.
            let done = catch_unwind(AssertUnwindSafe(work));
            self.come_back(table);
            if let (Err(damage), Err(_) | Ok(Err(_))) = (&handed_back, &done) {
                *self.untold.lock() = Some(damage.clone());
            }
            done.unwrap_or_else(|panic| resume_unwind(panic))
                .and(handed_back)
        }))
    }

    /// Has the device give the table to the CPU; `None` if the CPU has it anyway, else whether lookups have met damage.
    fn let_go(&self, table: &Table<Mapping>) -> Result<Option<Result<()>>> {
        let mut serving = self.serving.write();
        let device_table = match &*serving {
            Serving::Device(device_table) => device_table,
            Serving::Host(_) | Serving::Away(..) => return Ok(None),
            Serving::Nobody => return Err(without_table()),
            Serving::Lost(reason) => return Err(lost(reason)),
        };
        let hand_back = |_entered| device_table.hand_back(table);
        let handed_back = self.enter().and_then(hand_back);
        if let Err(error @ Error::Gpu { .. }) = handed_back {
            self.take_back(&mut serving, table, true);
            return Err(error);
        }
        let _entered = self.enter();
        table.follow_engine();
        let copiers = Copiers::clone(&device_table.copiers);
        *serving = Serving::Away(CpuEngine::new(self.options.threads), copiers);
        table.set_pinned(false);
        Ok(Some(handed_back))
    }

    /// Has the device take the table over again. Only the last step holds up batches.
    fn come_back(&self, table: &Table<Mapping>) {
        table.set_pinned(true);
        let entered = self.enter();
        let prepared = (entered.as_ref().map_err(Clone::clone))
            .and_then(|_entered| DeviceTable::prepare(&self.device, &self.options, table));
        let mut serving = self.serving.write();
        // What the CPU has begun.
        table.finish_draining_quietly();
        let copiers = match &*serving {
            Serving::Away(_, copiers) => Some(Copiers::clone(copiers)),
            _ => None,
        };
        *serving = prepared
            .and_then(|prepared| self.take_over(table, Some(prepared), copiers))
            .unwrap_or_else(|error| {
                table.set_pinned(false);
                self.host_instead(&error)
            });
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Device memory is freed in the context of the calling thread.
        let _entered = self.enter();
        *self.serving.get_mut() = Serving::Nobody;
    }
}

fn without_table() -> Error {
    Error::Gpu {
        what: "running a batch",
        found: "an engine without a table".into(),
        expected: "an open index".into(),
    }
}

fn lost(reason: &str) -> Error {
    Error::Gpu {
        what: "going on after a call of the driver has failed",
        found: reason.into(),
        expected: "open the index again".into(),
    }
}
