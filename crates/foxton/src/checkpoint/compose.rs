//! Composition of several changes of one row, in order.

use std::mem;

use crate::redo::patch;
use crate::redo::record::Effect;
use crate::types::codec::Undecodable;

const NO_ROW: Undecodable = Undecodable {
    expected: "a patch for a row that is there",
};

/// The composed change, and a buffer for the next one.
#[derive(Debug, Default)]
pub(super) struct ComposedChange {
    state: State,
    bytes: Vec<u8>,
    spare: Vec<u8>,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Gone,
    Value,
    Patch,
}

impl ComposedChange {
    /// Begins with `effect` and discards earlier changes.
    pub(super) fn begin(&mut self, effect: Effect<'_>) {
        let (state, bytes): (_, &[u8]) = match effect {
            Effect::Delete => (State::Gone, &[]),
            Effect::Put(value) => (State::Value, value),
            Effect::Patch(patch) => (State::Patch, patch),
        };
        self.state = state;
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
    }

    /// Adds the next change.
    ///
    /// # Errors
    /// If it is a patch that was not made for this value.
    pub(super) fn add(&mut self, effect: Effect<'_>) -> Result<(), Undecodable> {
        let Effect::Patch(next) = effect else {
            self.begin(effect);
            return Ok(());
        };
        self.spare.clear();
        match self.state {
            State::Gone => return Err(NO_ROW),
            State::Value => patch::apply(next, &self.bytes, &mut self.spare)?,
            State::Patch => patch::join(&self.bytes, next, &mut self.spare)?,
        }
        mem::swap(&mut self.bytes, &mut self.spare);
        Ok(())
    }

    /// Returns the composed change.
    pub(super) fn effect(&self) -> Effect<'_> {
        match self.state {
            State::Gone => Effect::Delete,
            State::Value => Effect::Put(&self.bytes),
            State::Patch => Effect::Patch(&self.bytes),
        }
    }
}
