//! Admission: the number of transactions that run at once.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::thread;

use foxton_sync::admission::AdmissionControl;
use foxton_sync::named_enum::UnknownChoice;

const CHOICES: [&str; 3] = ["unlimited", "adaptive", "numbers from 1"];

/// Maximum number of transactions that run at once. Further ones wait at their beginning, where
/// they hold no locks and so block no other transaction. The transaction of a task waits in its
/// first operation.
///
/// Admission helps where many more threads than processors update the same rows. Most running
/// transactions then wait for each other, and the processors spend their time on putting threads to
/// sleep and waking them. It also helps where threads only read, because each thread finds the
/// caches filled with data that others read. See [`foxton_sync::admission`]. Transactions of
/// sessions are not counted and never wait for admission. A transaction that waits for the log
/// does not count.
///
/// ```
/// use foxton::Admission;
///
/// assert_eq!("adaptive".parse(), Ok(Admission::Adaptive));
/// assert_eq!("4".parse::<Admission>()?.to_string(), "4");
/// assert!("few".parse::<Admission>().is_err());
/// # Ok::<(), foxton::options::UnknownChoice>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Admission {
    /// No limit.
    Unlimited,
    /// No limit, or three transactions per processor while that commits more.
    ///
    /// The engine finds out by trials of half a second. It starts one when more than eight
    /// transactions per processor are blocked by locks, or ran within a tenth of a second, and this
    /// process keeps three fifths of the processors busy. It repeats the trial after two seconds,
    /// or later if trials do not help, but at most after eight. Where transactions wait for
    /// something else, a trial ends after some 30 ms, during which a few of them are admitted. The
    /// next trial then comes later and later, up to a minute (`examples/waiting.rs`).
    #[default]
    Adaptive,
    /// At most this many. Transactions that wait for a row, or for their program, count. If all
    /// admitted transactions wait like that, one more is admitted every 10 ms, however idle the
    /// processors are. So do not use this where transactions wait for people or the network, or
    /// where threads have several transactions open.
    Fixed(NonZeroU32),
}

impl Admission {
    pub(crate) fn open(self) -> Option<AdmissionControl> {
        match self {
            Admission::Unlimited => None,
            Admission::Adaptive => {
                let processors = thread::available_parallelism().map_or(1, usize::from);
                let processors = u32::try_from(processors).unwrap_or(u32::MAX / 2);
                Some(AdmissionControl::adaptive(processors))
            }
            Admission::Fixed(count) => Some(AdmissionControl::new(count.get())),
        }
    }
}

impl fmt::Display for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Admission::Unlimited => f.write_str("unlimited"),
            Admission::Adaptive => f.write_str("adaptive"),
            Admission::Fixed(count) => count.fmt(f),
        }
    }
}

impl FromStr for Admission {
    type Err = UnknownChoice;

    fn from_str(name: &str) -> Result<Self, UnknownChoice> {
        match name {
            // `all` is the former spelling.
            "unlimited" | "all" => Ok(Admission::Unlimited),
            "adaptive" => Ok(Admission::Adaptive),
            number => number
                .parse()
                .map(Admission::Fixed)
                .map_err(|_| UnknownChoice::new("admission", name, &CHOICES)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::{Database, Lock, Options, Table};

    const ROWS: Table<u32, u32> = Table::new("rows");

    #[test]
    fn a_waiter_for_a_row_is_blocked_until_granted_or_refused() {
        let mut options = Options::tiny();
        options.admission = Admission::Adaptive;
        let db = Database::in_memory(options).unwrap();
        let blocked = || db.engine().admission.as_ref().unwrap().blocked();
        let mut holder = db.begin().unwrap();
        holder.put(&ROWS, &1, &1).unwrap();
        let ask = |wait: Duration| {
            let mut tx = db.begin().unwrap();
            tx.get_locked(&ROWS, &1, Lock::Shared.timeout(wait))
        };
        assert!(ask(Duration::from_millis(1)).is_err());
        assert_eq!(blocked(), 0, "it was refused");
        thread::scope(|scope| {
            let waiter = scope.spawn(|| ask(Duration::MAX));
            while blocked() == 0 {
                thread::yield_now();
            }
            holder.commit().unwrap();
            assert_eq!(waiter.join().unwrap().unwrap(), Some(1));
        });
        assert_eq!(blocked(), 0, "it has it");
    }
}
