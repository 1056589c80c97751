//! One transaction tried over and over: how often it aborted, and why.

use foxton_sync::htm::{Abort, Cause, Rtm};

/// Counts of its attempts.
#[derive(Debug, Clone, Default)]
pub(super) struct Attempts {
    committed: u64,
    aborted: [u64; Cause::ALL.len()],
}

impl Attempts {
    /// Runs `body` in a transaction this many times; an aborted attempt is not repeated.
    pub(super) fn times(rtm: Rtm, attempts: u32, mut body: impl FnMut()) -> Attempts {
        let mut tried = Attempts::default();
        for _ in 0..attempts {
            tried.count(rtm.run(&mut body));
        }
        tried
    }

    /// Counts an attempt by its end.
    #[inline(always)]
    pub(super) fn count(&mut self, ended: Result<(), Abort>) {
        match ended {
            Ok(()) => self.committed += 1,
            Err(abort) => self.aborted[abort.cause() as usize] += 1,
        }
    }

    pub(super) fn add(&mut self, other: &Attempts) {
        self.committed += other.committed;
        for (mine, theirs) in self.aborted.iter_mut().zip(&other.aborted) {
            *mine += theirs;
        }
    }

    /// The share of the attempts that aborted.
    pub(super) fn share(&self) -> f64 {
        let aborted: u64 = self.aborted.iter().sum();
        aborted as f64 / (aborted + self.committed).max(1) as f64
    }

    /// The causes of aborts, the most frequent first.
    pub(super) fn causes(&self) -> String {
        let mut causes: Vec<(u64, Cause)> = Cause::ALL
            .into_iter()
            .map(|cause| (self.aborted[cause as usize], cause))
            .filter(|(count, _)| *count > 0)
            .collect();
        causes.sort_by_key(|&(count, _)| std::cmp::Reverse(count));
        let named: Vec<String> = causes
            .iter()
            .map(|(count, cause)| format!("{cause} {count}"))
            .collect();
        match named.as_slice() {
            [] => "-".to_owned(),
            _ => named.join(", "),
        }
    }
}
