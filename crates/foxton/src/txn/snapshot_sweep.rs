//! Sweeps: the background thread collects versions, warns, and ends snapshots that keep too much.

use std::sync::Arc;

use foxton_sync::worker::Worker;

use super::bound::BoundTxn;
use super::end_versions::examine_released;
use crate::engine::Engine;

impl BoundTxn {
    /// Makes the background thread collect versions until no snapshot is left.
    pub(super) fn start_sweeps(&self) {
        start_sweeps(&self.ctx.engine, &self.ctx.worker);
    }
}

fn start_sweeps(engine: &Arc<Engine>, worker: &Worker) {
    if engine.snapshots.is_being_swept() {
        return;
    }
    let swept = Arc::downgrade(engine);
    let sweep = move |worker: &Worker| {
        let engine = swept.upgrade()?;
        let front = || engine.persistence.front();
        let now = engine.workers.clock().now();
        loop {
            let goes_on = engine.snapshots.goes_on(worker, front, now);
            examine_released(&engine, worker);
            if !goes_on {
                return None;
            }
            warn(&engine);
            if !engine.snapshots.end_largest(engine.options.version_bytes) {
                return Some(engine.snapshots.linger);
            }
        }
    };
    engine
        .background
        .repeat(worker, engine.snapshots.linger, Box::new(sweep));
}

/// Warns the program, if it has asked for that and there is reason to.
fn warn(engine: &Engine) {
    let Some(call) = &engine.options.version_warning else {
        return;
    };
    if let Some(warning) = engine.snapshots.warning(engine.options.version_bytes) {
        call.call(&warning);
    }
}
