//! Bound on the progress of tests whose threads may wait for each other for ever.
#![cfg(test)]

use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Looks at a counter that does not move, one after the other, until the test fails. Each is
/// followed by a sleep of [`PAUSE`], so they take a minute at least, and more on a busy machine.
const MOST_LOOKS: u32 = 6_000;
const PAUSE: Duration = Duration::from_millis(10);

/// Times that a thread of a test wakes without the frames for which it waits. It wakes each
/// millisecond or later, and no test makes a thread wait for many seconds.
const MOST_RETRIES: u32 = 60_000;

/// Counts a retry. Fails if there were so many that the frames must be lost.
pub(super) fn count_retry(retries: &mut u32) {
    *retries += 1;
    assert!(*retries < MOST_RETRIES, "no frames after {retries} retries");
}

/// Counter of steps that the threads of a test finish.
#[derive(Debug, Clone, Default)]
pub(super) struct TestProgress(Arc<AtomicU64>);

impl TestProgress {
    /// Counts a step.
    pub(super) fn step(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Runs `body` in another thread. Fails, and leaves that thread alone, if the steps that it counts
/// stop: a thread that waits for a wake-up that was lost cannot be stopped.
pub(super) fn fail_if_stalled(body: impl FnOnce(&TestProgress) + Send + 'static) {
    watch(MOST_LOOKS, body);
}

fn watch(most_looks: u32, body: impl FnOnce(&TestProgress) + Send + 'static) {
    let progress = TestProgress::default();
    let thread = {
        let progress = progress.clone();
        thread::spawn(move || body(&progress))
    };
    let (mut seen, mut looks) = (0, 0);
    while !thread.is_finished() {
        thread::sleep(PAUSE);
        let now = progress.0.load(Ordering::Relaxed);
        looks = if now == seen { looks + 1 } else { 0 };
        seen = now;
        assert!(
            looks < most_looks,
            "no step after step {now} while this thread looked {looks} times"
        );
    }
    if let Err(payload) = thread.join() {
        panic::resume_unwind(payload);
    }
}

#[test]
fn a_test_that_stalls_fails_and_another_does_not() {
    fail_if_stalled(TestProgress::step);
    let failed = panic::catch_unwind(|| watch(3, |_| thread::park()));
    let message = failed.expect_err("it never steps");
    let message = message.downcast_ref::<String>().expect("a message");
    assert!(message.starts_with("no step after step 0"), "{message}");
}
