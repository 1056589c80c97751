//! Time of all figures together: an estimate, corrected by those that are done.

use std::{
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use crate::{figure::Listed, progress::Progress};

/// How often the bar moves.
const TICK: Duration = Duration::from_millis(500);
/// A figure that takes longer than planned counts as needing this many seconds more.
const OVERDUE: f64 = 5.0;

/// Planned time that is done, and planned time to come.
#[derive(Debug)]
pub(super) struct Clock {
    /// Planned seconds of all figures.
    total: f64,
    /// Planned seconds of the figures that are done.
    over: f64,
    /// Seconds that those took.
    took: f64,
}

impl Clock {
    pub(super) fn new<'l>(figures: impl Iterator<Item = &'l Listed>) -> Clock {
        Clock {
            total: figures.map(planned).sum(),
            over: 0.0,
            took: 0.0,
        }
    }

    /// Returns the planned time of all figures.
    pub(super) fn whole(&self) -> Duration {
        Duration::from_secs_f64(self.total)
    }

    /// Counts a figure as done.
    pub(super) fn done(&mut self, figure: &Listed, seconds: f64) {
        self.over += planned(figure);
        self.took += seconds;
    }

    /// Returns the planned seconds that are done, this far into the figure that is being made.
    fn at(&self, figure: &Listed, elapsed: f64) -> f64 {
        self.over + elapsed.min(planned(figure))
    }

    /// Returns the seconds left, this far into the figure: the plan, scaled by how much longer the
    /// figures so far took.
    pub(super) fn left(&self, figure: &Listed, elapsed: f64) -> f64 {
        let pace = match self.over > 0.0 {
            true => self.took / self.over,
            false => 1.0,
        };
        let after = (self.total - self.over - planned(figure)).max(0.0);
        (planned(figure) * pace - elapsed).max(OVERDUE * pace.min(1.0)) + after * pace
    }

    /// Calls `what` while the bar moves.
    pub(super) fn while_telling<R>(
        &self,
        figure: &Listed,
        progress: &Progress,
        place: &str,
        what: impl FnOnce() -> R,
    ) -> R {
        let began = Instant::now();
        let tell = || {
            let elapsed = began.elapsed().as_secs_f64();
            progress.at(Duration::from_secs_f64(self.at(figure, elapsed)));
            progress.now(&format!(
                "{place}  {}  {} left",
                figure.id,
                words(self.left(figure, elapsed))
            ));
        };
        let (stop, stopped) = mpsc::channel::<()>();
        thread::scope(|scope| {
            scope.spawn(move || {
                tell();
                while stopped.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                    tell();
                }
            });
            let result = what();
            drop(stop);
            result
        })
    }
}

/// Formats a time: `about 12 min`, `40 s`.
pub(super) fn words(seconds: f64) -> String {
    match seconds {
        long if long >= 90.0 => format!("about {:.0} min", long / 60.0),
        short => format!("{short:.0} s"),
    }
}

/// Planned seconds of a figure.
fn planned(figure: &Listed) -> f64 {
    f64::from(figure.brief)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure;

    #[test]
    fn the_time_left_shrinks_and_follows_the_pace_of_what_is_done() {
        let found = |id| figure::find(id).expect("it is listed");
        let three = ["003-table4", "003-table5", "002-fig14"].map(found);
        let [first, second, _] = three;
        let each = three.map(planned);
        let whole: f64 = each.iter().sum();
        let mut clock = Clock::new(three.into_iter());
        assert_eq!(clock.whole(), Duration::from_secs_f64(whole));
        assert_eq!(clock.left(first, 0.0), whole);
        assert_eq!(clock.left(first, 20.0), whole - 20.0);
        // Over time, but not over.
        assert_eq!(clock.left(first, each[0] + 40.0), whole - each[0] + OVERDUE);
        clock.done(first, 2.0 * each[0]);
        assert_eq!(
            clock.left(second, 0.0),
            2.0 * (whole - each[0]),
            "everything takes twice as long"
        );
        assert_eq!(clock.at(second, each[1] + 30.0), each[0] + each[1]);
        assert_eq!(
            (words(240.0), words(42.3)),
            ("about 4 min".to_owned(), "42 s".to_owned())
        );
    }
}
