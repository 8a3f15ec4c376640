//! Threads that wait for one of them, and do parts of its work meanwhile: they are awake, so nobody has to be
//! woken up for work that takes less time than that.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, Thread};

use parking_lot::Mutex;

/// How often the leader checks whether the last parts are done before it sleeps.
const SPINS_MAX: u32 = 1 << 12;

/// What a thread has to do with a crew.
#[derive(Default)]
enum Role {
    #[default]
    None,
    /// What it does in parts is done by this crew.
    Leads(Arc<Crew>),
    /// It does a part, alone.
    Helps,
}

thread_local! {
    static ROLE: RefCell<Role> = const { RefCell::new(Role::None) };
}

/// What is made of the role of this thread. One whose data is being dropped has none.
fn of_role<T>(make: impl Fn(&Role) -> T) -> T {
    let made = ROLE.try_with(|role| make(&role.borrow()));
    made.unwrap_or_else(|_| make(&Role::None))
}

/// See the [module](self).
#[derive(Default)]
pub struct Crew {
    work: Mutex<Option<Arc<Work>>>,
    /// There is work of which some parts may be left.
    has_work: AtomicBool,
    /// Somebody leads.
    is_led: AtomicBool,
    /// Threads that help, as soon as there is work.
    awake: AtomicUsize,
}

/// What does a part. It is there as long as some are left.
struct Part(*const (dyn Fn(usize) + Sync));

// SAFETY: threads call it through a shared reference alone, and it is `Sync`.
unsafe impl Send for Part {}
// SAFETY: as above.
unsafe impl Sync for Part {}

/// Work in parts, each of which somebody takes.
struct Work {
    part: Part,
    parts: usize,
    /// The next part that nobody has taken.
    next: AtomicUsize,
    /// Parts that are not done.
    left: AtomicUsize,
    leader: Thread,
    /// What the first part that has panicked did so with.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Work {
    /// Does a part; `false` if all are taken.
    fn help(&self) -> bool {
        let nth = self.next.fetch_add(1, Ordering::Relaxed);
        if nth >= self.parts {
            return false;
        }
        // SAFETY: this part was taken and is not done, so `left` is not 0, and the leader waits in `run` until it is,
        // whatever panics.
        let part = unsafe { &*self.part.0 };
        let done = catch_unwind(AssertUnwindSafe(|| part(nth)));
        if let Err(panic) = done {
            let mut first = self.panic.lock();
            match &*first {
                None => *first = Some(panic),
                // To drop it might panic again.
                Some(_) => std::mem::forget(panic),
            }
        }
        // The last access to what the leader lends.
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.leader.unpark();
        }
        true
    }

    /// Waits until all parts are done.
    fn wait(&self) {
        for _ in 0..SPINS_MAX {
            if self.left.load(Ordering::Acquire) == 0 {
                return;
            }
            std::hint::spin_loop();
        }
        while self.left.load(Ordering::Acquire) != 0 {
            thread::park();
        }
    }
}

/// Gives a thread a role, until dropped.
struct Playing(Role);

impl Playing {
    fn new(role: Role) -> Self {
        let before = ROLE.try_with(|of_thread| of_thread.replace(role));
        Self(before.unwrap_or_default())
    }
}

impl Drop for Playing {
    fn drop(&mut self) {
        let role = std::mem::take(&mut self.0);
        // Else there was none to be replaced.
        let _ = ROLE.try_with(|of_thread| of_thread.replace(role));
    }
}

/// Says that somebody leads, until dropped.
struct Led<'c>(&'c AtomicBool);

impl<'c> Led<'c> {
    fn new(is_led: &'c AtomicBool) -> Self {
        is_led.store(true, Ordering::Relaxed);
        Self(is_led)
    }
}

impl Drop for Led<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl Crew {
    /// Does `work`, whose parts those do, too, who [help](Self::help). One thread at a time may do so.
    pub fn do_with<T>(self: &Arc<Self>, work: impl FnOnce() -> T) -> T {
        let _leads = Playing::new(Role::Leads(Arc::clone(self)));
        let _led = Led::new(&self.is_led);
        work()
    }

    /// Whether somebody leads, and may have parts to do.
    pub fn is_led(&self) -> bool {
        self.is_led.load(Ordering::Relaxed)
    }

    /// Does parts of what the leader does now, as long as there are some; `false` if there is none.
    pub fn help(&self) -> bool {
        if !self.has_work.load(Ordering::Acquire) {
            return false;
        }
        // Whoever is in the way has just got it: to sleep for it would take longer.
        let Some(work) = self.work.try_lock().and_then(|work| work.clone()) else {
            return false;
        };
        let _helps = Playing::new(Role::Helps);
        let mut has_helped = false;
        while work.help() {
            has_helped = true;
        }
        has_helped
    }

    /// Counts the caller among those who help while `wait` runs.
    pub fn stand_by<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.awake.fetch_add(1, Ordering::Relaxed);
        let waited = wait();
        self.awake.fetch_sub(1, Ordering::Relaxed);
        waited
    }

    /// How many threads would help.
    pub fn awake(&self) -> usize {
        self.awake.load(Ordering::Relaxed)
    }

    fn run(&self, parts: usize, part: &(dyn Fn(usize) + Sync)) {
        // SAFETY: two pointers to the same, of which the second says nothing of how long that lives. It is used as
        // long as parts are left, and this call waits for the last one.
        let part = unsafe {
            std::mem::transmute::<
                *const (dyn Fn(usize) + Sync + '_),
                *const (dyn Fn(usize) + Sync + 'static),
            >(part)
        };
        let work = Arc::new(Work {
            part: Part(part),
            parts,
            next: AtomicUsize::new(0),
            left: AtomicUsize::new(parts),
            leader: thread::current(),
            panic: Mutex::new(None),
        });
        *self.work.lock() = Some(Arc::clone(&work));
        self.has_work.store(true, Ordering::Release);
        {
            let _helps = Playing::new(Role::Helps);
            while work.help() {}
        }
        self.has_work.store(false, Ordering::Relaxed);
        *self.work.lock() = None;
        work.wait();
        let panic = work.panic.lock().take();
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }
}

/// Has parts done by the crew of the caller, if he has to do with one; `false` if he has not.
pub(super) fn run(parts: usize, part: &(dyn Fn(usize) + Sync)) -> bool {
    let crew = of_role(|role| match role {
        Role::None => None,
        Role::Leads(crew) => Some(Some(Arc::clone(crew))),
        Role::Helps => Some(None),
    });
    match crew {
        None => return false,
        Some(None) => (0..parts).for_each(part),
        Some(Some(crew)) => crew.run(parts, part),
    }
    true
}

/// Does `work`, all parts of which this thread does.
pub(super) fn alone<T>(work: impl FnOnce() -> T) -> T {
    let _helps = Playing::new(Role::Helps);
    work()
}

/// Whether the caller does a part, alone.
pub(super) fn is_alone() -> bool {
    of_role(|role| matches!(role, Role::Helps))
}

/// Threads among which the caller's crew shares work, if he has to do with one.
pub(super) fn threads() -> Option<usize> {
    of_role(|role| match role {
        Role::None => None,
        Role::Leads(crew) => Some(1 + crew.awake.load(Ordering::Relaxed)),
        Role::Helps => Some(1),
    })
}

#[cfg(all(test, not(loom)))]
mod tests;
