//! One transaction, tried over and over: how often it aborted, and why.

use foxton_sync::htm::{Abort, Cause, Rtm};

/// What came of it.
#[derive(Debug, Clone, Default)]
pub(super) struct Tried {
    committed: u64,
    aborted: [u64; Cause::ALL.len()],
}

impl Tried {
    /// `body` in a transaction, so many times; it is not called again where it aborted.
    pub(super) fn times(rtm: Rtm, attempts: u32, mut body: impl FnMut()) -> Tried {
        let mut tried = Tried::default();
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

    pub(super) fn add(&mut self, other: &Tried) {
        self.committed += other.committed;
        for (mine, theirs) in self.aborted.iter_mut().zip(&other.aborted) {
            *mine += theirs;
        }
    }

    /// The share that aborted.
    pub(super) fn share(&self) -> f64 {
        let aborted: u64 = self.aborted.iter().sum();
        aborted as f64 / (aborted + self.committed).max(1) as f64
    }

    /// The causes that there were, the most frequent first.
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
