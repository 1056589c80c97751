//! Stand-in where sleepers cannot be seen: a mutex around two marks, and a condition variable.

use crate::shim::{Condvar, Mutex, lock};

struct State {
    held: bool,
    extended: bool,
}

pub(super) struct Standin {
    state: Mutex<State>,
    freed: Condvar,
}

impl Standin {
    pub(super) fn new(extended: bool) -> Self {
        let held = false;
        Self {
            state: Mutex::new(State { held, extended }),
            freed: Condvar::new(),
        }
    }

    pub(super) fn try_acquire_plain(&self) -> bool {
        let mut state = lock(&self.state);
        let free = !state.held && !state.extended;
        state.held |= free;
        free
    }

    pub(super) fn try_release_plain(&self) -> bool {
        let mut state = lock(&self.state);
        let plain = state.held && !state.extended;
        state.held &= !plain;
        drop(state);
        if plain {
            self.freed.notify_one();
        }
        plain
    }

    pub(super) fn try_acquire(&self) -> bool {
        !std::mem::replace(&mut lock(&self.state).held, true)
    }

    pub(super) fn acquire(&self) {
        let mut state = lock(&self.state);
        while state.held {
            state = self.freed.wait(state).expect("nobody panics holding it");
        }
        state.held = true;
    }

    pub(super) fn release(&self) {
        lock(&self.state).held = false;
        self.freed.notify_one();
    }

    pub(super) fn is_free(&self) -> bool {
        !lock(&self.state).held
    }

    pub(super) fn is_plain(&self) -> bool {
        !lock(&self.state).extended
    }

    pub(super) fn set_plain(&self, plain: bool) {
        lock(&self.state).extended = !plain;
    }
}
