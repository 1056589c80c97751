//! Failpoints: named points in the engine where a test can intervene.
//!
//! The engine passes its points by name: `worker.failpoints().pass(&SCANNED)`. Without the feature
//! `hooks` that does nothing: the type is empty and the calls are empty functions. With it, a test
//! can run a closure there, return an error, or stop a thread until the test releases it. So a race
//! that needs one instruction between two others is played, not waited for.
//!
//! A point can also be a *fault*: `worker.failpoints().misbehaves(&GAPS_UNLOCKED)` is false until a
//! test arms the point. Then the engine leaves a step out, or does it wrong, so that a test can see
//! whether its checks find that.
//!
//! # State
//!
//! One registry for each [`Workers`](crate::worker::Workers), because two databases in one process
//! share nothing: for each name, the number of passages, an action, and whether a fault is armed.
//!
//! # Invariants
//!
//! * I1  An action runs without the registry's mutex: it may pass points itself, take locks, or
//!   stop.
//! * I2  An error at a point that cannot fail is a panic, because the test asked for the
//!   impossible.
//!
//! # Why not the crate `fail`
//!
//! It has one registry for the process, filled from strings and an environment variable. Tests that
//! run side by side would meet in it, and two databases could not differ. Its actions are a list to
//! choose from; these tests mostly need a closure that runs a whole other transaction at the point,
//! with the types of the test. The rest of the work is this page.

use std::fmt;

/// A named place in the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Failpoint {
    name: &'static str,
    kind: PointKind,
}

/// The possible interventions at a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum PointKind {
    Passing,
    Failing,
    Fault,
}

impl Failpoint {
    /// Returns a point that is only passed.
    pub const fn passing(name: &'static str) -> Self {
        let kind = PointKind::Passing;
        Self { name, kind }
    }

    /// Returns a point where an error may be returned, as from a device.
    pub const fn failing(name: &'static str) -> Self {
        let kind = PointKind::Failing;
        Self { name, kind }
    }

    /// Returns a point where a test can make the engine misbehave.
    pub const fn fault(name: &'static str) -> Self {
        let kind = PointKind::Fault;
        Self { name, kind }
    }

    /// Returns its name: `crate/what`.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// True if an error may be returned.
    pub const fn fails(&self) -> bool {
        matches!(self.kind, PointKind::Failing)
    }
}

impl fmt::Display for Failpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name)
    }
}

/// Actions of tests at the points of one database. Cheap to clone; all clones are one.
#[derive(Clone, Default)]
pub struct Failpoints(#[cfg(feature = "hooks")] enabled::Entries);

// Without the feature it takes no space.
#[cfg(not(feature = "hooks"))]
const _: () = assert!(size_of::<Failpoints>() == 0);

impl fmt::Debug for Failpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failpoints").finish_non_exhaustive()
    }
}

#[cfg(not(feature = "hooks"))]
impl Failpoints {
    /// Passes `point`.
    #[inline(always)]
    pub fn pass(&self, _point: &Failpoint) {}

    /// Passes `point`, where an error may be returned.
    ///
    /// # Errors
    /// The error that a test asked for.
    #[inline(always)]
    pub fn try_pass(&self, _point: &Failpoint) -> std::io::Result<()> {
        Ok(())
    }

    /// True if the engine is to misbehave at `fault`.
    #[inline(always)]
    pub fn misbehaves(&self, _fault: &Failpoint) -> bool {
        false
    }

    /// True if the engine is to misbehave at any fault.
    #[inline(always)]
    pub fn misbehaves_anywhere(&self) -> bool {
        false
    }
}

#[cfg(feature = "hooks")]
pub use enabled::FailpointStop;

#[cfg(feature = "hooks")]
mod enabled {
    use super::{Failpoint, Failpoints, PointKind};
    use crate::shim::unmodelled::{AtomicU32, Ordering};
    use crate::shim::{Arc, Condvar, Mutex, lock};
    use std::collections::HashMap;
    use std::io;
    use std::sync::PoisonError;
    use std::time::Duration;

    pub(super) type Entries = Arc<PointRegistry>;

    #[derive(Default)]
    pub(super) struct PointRegistry {
        points: Mutex<HashMap<&'static str, PointEntry>>,
        /// Number of armed faults. Relaxed: a hint, so that no mutex is locked while there is none.
        armed: AtomicU32,
    }

    /// Runs at a point; the number is that of the passage, from 1 on.
    type PointAction = dyn Fn(u64) -> io::Result<()> + Send + Sync;

    #[derive(Default)]
    pub(super) struct PointEntry {
        passed: u64,
        action: Option<Arc<PointAction>>,
        is_armed: bool,
    }

    /// A test that waits longer for a thread to reach a point waits in vain.
    const MAX_WAIT: Duration = Duration::from_secs(120);

    impl Failpoints {
        /// Passes `point`.
        pub fn pass(&self, point: &Failpoint) {
            debug_assert!(
                point.kind == PointKind::Passing,
                "{point} is not only passed"
            );
            if let Err(error) = self.run_action(point) {
                panic!("nothing can fail at {point}: {error}"); // I2
            }
        }

        /// Passes `point`, where an error may be returned.
        ///
        /// # Errors
        /// The error that a test asked for.
        pub fn try_pass(&self, point: &Failpoint) -> io::Result<()> {
            debug_assert!(point.fails(), "{point} cannot fail by its name");
            self.run_action(point)
        }

        /// True if the engine is to misbehave at `fault`.
        pub fn misbehaves(&self, fault: &Failpoint) -> bool {
            debug_assert!(fault.kind == PointKind::Fault, "{fault} is no fault");
            self.misbehaves_anywhere()
                && lock(&self.0.points)
                    .get(fault.name)
                    .is_some_and(|entry| entry.is_armed)
        }

        /// True if the engine is to misbehave at any fault.
        pub fn misbehaves_anywhere(&self) -> bool {
            self.0.armed.load(Ordering::Relaxed) > 0
        }

        /// Makes the engine misbehave at `fault` from now on.
        pub fn arm(&self, fault: &Failpoint) {
            debug_assert!(fault.kind == PointKind::Fault, "{fault} is no fault");
            let mut entries = lock(&self.0.points);
            let entry = entries.entry(fault.name).or_default();
            if !std::mem::replace(&mut entry.is_armed, true) {
                self.0.armed.fetch_add(1, Ordering::Relaxed);
            }
        }

        fn run_action(&self, point: &Failpoint) -> io::Result<()> {
            let (passed, action) = {
                let mut entries = lock(&self.0.points);
                let entry = entries.entry(point.name).or_default();
                entry.passed += 1;
                (entry.passed, entry.action.clone())
            };
            action.map_or(Ok(()), |action| action(passed)) // I1
        }

        /// Makes `action` run at each passage of `point`, with its number, instead of the previous
        /// action.
        pub fn set(
            &self,
            point: &Failpoint,
            action: impl Fn(u64) -> io::Result<()> + Send + Sync + 'static,
        ) {
            lock(&self.0.points).entry(point.name).or_default().action = Some(Arc::new(action));
        }

        /// As [`set`](Self::set), at the next passage only.
        pub fn once(&self, point: &Failpoint, action: impl FnOnce() + Send + 'static) {
            let action = Mutex::new(Some(action));
            self.set(point, move |_| {
                // Taken before it runs: it may pass the point itself.
                let action = lock(&action).take();
                if let Some(action) = action {
                    action();
                }
                Ok(())
            });
        }

        /// Makes the next thread that reaches `point` stop there until the [`FailpointStop`] is
        /// released or dropped.
        pub fn stop(&self, point: &Failpoint) -> FailpointStop {
            let stop = FailpointStop(Arc::default());
            let there = FailpointStop(stop.0.clone());
            self.once(point, move || there.wait_here());
            stop
        }

        /// Removes the action at `point`, or disarms the fault.
        pub fn clear(&self, point: &Failpoint) {
            let mut entries = lock(&self.0.points);
            let entry = entries.entry(point.name).or_default();
            entry.action = None;
            if std::mem::take(&mut entry.is_armed) {
                self.0.armed.fetch_sub(1, Ordering::Relaxed);
            }
        }

        /// Number of passages of `point`.
        pub fn passages(&self, point: &Failpoint) -> u64 {
            lock(&self.0.points)
                .get(point.name)
                .map_or(0, |entry| entry.passed)
        }
    }

    /// A thread that stops at a point.
    #[derive(Debug)]
    pub struct FailpointStop(Arc<(Mutex<StopState>, Condvar)>);

    #[derive(Debug, Default)]
    struct StopState {
        reached: bool,
        released: bool,
    }

    impl FailpointStop {
        /// Waits until the thread has stopped.
        ///
        /// # Panics
        /// If no thread comes for two minutes.
        pub fn reached(&self) {
            self.wait("nobody came to the point", |state| state.reached);
        }

        /// Lets the thread continue, now or when it comes.
        pub fn release(&self) {
            lock(&self.0.0).released = true;
            self.0.1.notify_all();
        }

        fn wait_here(&self) {
            lock(&self.0.0).reached = true;
            self.0.1.notify_all();
            self.wait("nobody let the thread go on", |state| state.released);
        }

        fn wait(&self, otherwise: &str, done: impl Fn(&StopState) -> bool) {
            let state = lock(&self.0.0);
            let (state, waited) = self
                .0
                .1
                .wait_timeout_while(state, MAX_WAIT, |state| !done(state))
                .unwrap_or_else(PoisonError::into_inner);
            drop(state);
            assert!(!waited.timed_out(), "{otherwise}");
        }
    }

    impl Drop for FailpointStop {
        fn drop(&mut self) {
            self.release();
        }
    }
}
