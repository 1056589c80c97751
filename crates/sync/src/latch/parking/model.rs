//! The protocol over sleepers that a model checker can see.

use super::lot::{Found, Lot, Spin};
use super::word::Word;
use crate::shim::{Arc, AtomicUsize, Condvar, Mutex, UnsafeCell, lock};
use std::collections::VecDeque;

/// Sleepers of one latch, in the order in which they came.
#[derive(Debug)]
struct Line {
    sleepers: Mutex<VecDeque<Arc<Sleeper>>>,
    is_fair: bool,
    others: AtomicUsize,
}

#[derive(Debug)]
struct Sleeper {
    told: Mutex<Option<bool>>,
    woken: Condvar,
}

/// There is no time to pass in a model.
#[derive(Debug, Default)]
struct Never;

impl Spin for Never {
    fn spin(&mut self) -> bool {
        false
    }

    fn reset(&mut self) {}
}

impl Lot for Line {
    type Spin = Never;

    fn others(&self) -> &AtomicUsize {
        &self.others
    }

    fn sleep(&self, _address: usize, validate: impl Fn() -> bool) -> bool {
        let me = Arc::new(Sleeper {
            told: Mutex::new(None),
            woken: Condvar::new(),
        });
        {
            let mut sleepers = lock(&self.sleepers);
            if !validate() {
                return false;
            }
            sleepers.push_back(me.clone());
        }
        let mut told = lock(&me.told);
        loop {
            match *told {
                Some(yours) => return yours,
                None => told = me.woken.wait(told).expect("nobody panics"),
            }
        }
    }

    fn wake(&self, _address: usize, decide: impl FnOnce(Found) -> bool) {
        let mut sleepers = lock(&self.sleepers);
        let first = sleepers.pop_front();
        let yours = decide(Found {
            sleeper: first.is_some(),
            others: !sleepers.is_empty(),
            is_fair: self.is_fair,
        });
        drop(sleepers);
        if let Some(first) = first {
            *lock(&first.told) = Some(yours);
            first.woken.notify_one();
        }
    }
}

/// A value behind it.
#[derive(Debug)]
pub struct Modelled<T> {
    word: Word<Line>,
    value: UnsafeCell<T>,
}

// SAFETY: as for `Latched`: one holder after the other reaches the value.
unsafe impl<T: Send> Sync for Modelled<T> {}

impl<T> Modelled<T> {
    /// `value` behind a plain latch. Where it `is_fair`, whoever sleeps is handed it.
    pub fn new(value: T, is_fair: bool) -> Self {
        let line = Line {
            sleepers: Mutex::new(VecDeque::new()),
            is_fair,
            others: AtomicUsize::new(0),
        };
        Self {
            word: Word::over(line, false),
            value: UnsafeCell::new(value),
        }
    }

    /// Calls `body` with the value, once nobody else has it. `plain` is what the latch is to be from then on, if anything.
    pub fn with<R>(&self, plain: Option<bool>, body: impl FnOnce(&mut T) -> R) -> R {
        if !self.word.take_plain() {
            self.word.take();
        }
        self.held(plain, body)
    }

    /// As [`with`](Self::with); `before` is called first, by the holder.
    pub fn with_after<R>(&self, before: impl FnOnce(), body: impl FnOnce(&mut T) -> R) -> R {
        if !self.word.take_plain() {
            self.word.take();
        }
        before();
        self.held(None, body)
    }

    /// Calls `body` with the value if nobody else has it.
    pub fn try_with<R>(&self, body: impl FnOnce(&mut T) -> R) -> Option<R> {
        (self.word.take_plain() || self.word.try_take()).then(|| self.held(None, body))
    }

    fn held<R>(&self, plain: Option<bool>, body: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: the latch is held.
        let result = self.value.with_mut(|value| body(unsafe { &mut *value }));
        if let Some(plain) = plain {
            self.word.set_plain(plain);
        }
        if !self.word.give_back_plain() {
            self.word.give_back();
        }
        result
    }

    /// Calls `body` with the value if nobody has it, taking nothing: what an elided pass looks at.
    ///
    /// # Safety
    ///
    /// Nobody comes meanwhile.
    pub unsafe fn if_free<R>(&self, body: impl FnOnce(&T) -> R) -> Option<R> {
        // SAFETY: nobody has it, and nobody comes.
        (self.word.is_free()).then(|| self.value.with(|value| body(unsafe { &*value })))
    }

    /// The value without the latch.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}
