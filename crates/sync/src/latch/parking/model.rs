//! The protocol over sleepers that a model checker can see.

use super::sleeper_table::{SleeperTable, SpinPhase, WakeState};
use super::word::ParkingWord;
use crate::shim::{Arc, AtomicUsize, Condvar, Mutex, UnsafeCell, lock};
use std::collections::VecDeque;

/// Sleepers of one latch, in the order in which they came.
#[derive(Debug)]
struct ModelSleepers {
    sleepers: Mutex<VecDeque<Arc<ModelSleeper>>>,
    is_fair: bool,
    others: AtomicUsize,
}

#[derive(Debug)]
struct ModelSleeper {
    handed_over: Mutex<Option<bool>>,
    woken: Condvar,
}

/// A model has no time to spin.
#[derive(Debug, Default)]
struct NoSpin;

impl SpinPhase for NoSpin {
    fn spin(&mut self) -> bool {
        false
    }

    fn reset(&mut self) {}
}

impl SleeperTable for ModelSleepers {
    type Spin = NoSpin;

    fn extended_latches(&self) -> &AtomicUsize {
        &self.others
    }

    fn sleep(&self, _address: usize, validate: impl Fn() -> bool) -> bool {
        let me = Arc::new(ModelSleeper {
            handed_over: Mutex::new(None),
            woken: Condvar::new(),
        });
        {
            let mut sleepers = lock(&self.sleepers);
            if !validate() {
                return false;
            }
            sleepers.push_back(me.clone());
        }
        let mut handed_over = lock(&me.handed_over);
        loop {
            match *handed_over {
                Some(yours) => return yours,
                None => handed_over = me.woken.wait(handed_over).expect("nobody panics"),
            }
        }
    }

    fn wake(&self, _address: usize, decide: impl FnOnce(WakeState) -> bool) {
        let mut sleepers = lock(&self.sleepers);
        let first = sleepers.pop_front();
        let yours = decide(WakeState {
            sleeper: first.is_some(),
            others: !sleepers.is_empty(),
            is_fair: self.is_fair,
        });
        drop(sleepers);
        if let Some(first) = first {
            *lock(&first.handed_over) = Some(yours);
            first.woken.notify_one();
        }
    }
}

/// A value behind a modelled parking latch.
#[derive(Debug)]
pub struct ModelParking<T> {
    word: ParkingWord<ModelSleepers>,
    value: UnsafeCell<T>,
}

// SAFETY: as for `Latched`: one holder after the other reaches the value.
unsafe impl<T: Send> Sync for ModelParking<T> {}

impl<T> ModelParking<T> {
    /// Returns `value` behind a plain latch. If it `is_fair`, each sleeper gets the latch handed
    /// over.
    pub fn new(value: T, is_fair: bool) -> Self {
        let line = ModelSleepers {
            sleepers: Mutex::new(VecDeque::new()),
            is_fair,
            others: AtomicUsize::new(0),
        };
        Self {
            word: ParkingWord::over(line, false),
            value: UnsafeCell::new(value),
        }
    }

    /// Calls `body` with the value, once no other thread has it. `plain` sets the latch's mark from
    /// then on.
    pub fn with<R>(&self, plain: Option<bool>, body: impl FnOnce(&mut T) -> R) -> R {
        if !self.word.try_acquire_plain() {
            self.word.acquire();
        }
        self.held(plain, body)
    }

    /// As [`with`](Self::with); the holder calls `before` first.
    pub fn with_after<R>(&self, before: impl FnOnce(), body: impl FnOnce(&mut T) -> R) -> R {
        if !self.word.try_acquire_plain() {
            self.word.acquire();
        }
        before();
        self.held(None, body)
    }

    /// Calls `body` with the value if no other thread has it.
    pub fn try_with<R>(&self, body: impl FnOnce(&mut T) -> R) -> Option<R> {
        (self.word.try_acquire_plain() || self.word.try_acquire()).then(|| self.held(None, body))
    }

    fn held<R>(&self, plain: Option<bool>, body: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: the latch is held.
        let result = self.value.with_mut(|value| body(unsafe { &mut *value }));
        if let Some(plain) = plain {
            self.word.set_plain(plain);
        }
        if !self.word.try_release_plain() {
            self.word.release();
        }
        result
    }

    /// Calls `body` with the value if the latch is free, without taking it, as an elided pass reads
    /// it.
    ///
    /// # Safety
    ///
    /// No other thread comes meanwhile.
    pub unsafe fn if_free<R>(&self, body: impl FnOnce(&T) -> R) -> Option<R> {
        // SAFETY: no thread has it, and none comes.
        (self.word.is_free()).then(|| self.value.with(|value| body(unsafe { &*value })))
    }

    /// Returns the value without the latch.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}
