//! How long all figures take together, guessed beforehand and corrected by those that are done.

use std::{
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use crate::progress::Progress;

/// How often the bar moves.
const TICK: Duration = Duration::from_millis(500);
/// A figure that takes longer than planned is said to take this much more.
const OVERDUE: f64 = 5.0;

/// Seconds each figure takes in the brief form, on two cores with little else to do; of a figure that is not
/// in the list, a minute.
pub(super) fn planned(id: &str) -> f64 {
    match id {
        "000-fig1" => 45.0,
        "000-fig12" | "000-fig14" => 110.0,
        "000-fig13" => 130.0,
        "000-fig15" => 240.0,
        "000-fig16" => 140.0,
        "002-fig3" | "002-fig11" | "003-table3" => 20.0,
        "projection" => 30.0,
        "001-fig3.1" | "001-fig3.5" | "001-fig3.7" | "001-fig3.8" | "001-figC.1" => 2.0,
        "001-fig2.4" | "001-fig3.10" | "001-fig3.12" | "001-fig3.17" => 10.0,
        "001-fig3.13" | "001-fig3.18" => 20.0,
        _ => 60.0,
    }
}

/// What is over, and what is to come.
#[derive(Debug)]
pub(super) struct Clock {
    /// Planned seconds of all figures.
    total: f64,
    /// Planned seconds of those that are over.
    over: f64,
    /// Seconds those took.
    took: f64,
}

impl Clock {
    pub(super) fn new(ids: impl Iterator<Item = &'static str>) -> Clock {
        Clock {
            total: ids.map(planned).sum(),
            over: 0.0,
            took: 0.0,
        }
    }

    /// The planned seconds of everything.
    pub(super) fn whole(&self) -> Duration {
        Duration::from_secs_f64(self.total)
    }

    /// A figure is over.
    pub(super) fn done(&mut self, id: &str, seconds: f64) {
        self.over += planned(id);
        self.took += seconds;
    }

    /// Planned seconds that count as over, this far into the figure that is being made.
    fn at(&self, id: &str, elapsed: f64) -> f64 {
        self.over + elapsed.min(planned(id))
    }

    /// Seconds left, this far into it: what was planned, times how much longer it has taken so far.
    pub(super) fn left(&self, id: &str, elapsed: f64) -> f64 {
        let pace = match self.over > 0.0 {
            true => self.took / self.over,
            false => 1.0,
        };
        let after = (self.total - self.over - planned(id)).max(0.0);
        (planned(id) * pace - elapsed).max(OVERDUE * pace.min(1.0)) + after * pace
    }

    /// Does this while the bar moves.
    pub(super) fn while_telling<R>(
        &self,
        id: &str,
        progress: &Progress,
        place: &str,
        what: impl FnOnce() -> R,
    ) -> R {
        let began = Instant::now();
        let tell = || {
            let elapsed = began.elapsed().as_secs_f64();
            progress.at(Duration::from_secs_f64(self.at(id, elapsed)));
            progress.now(&format!(
                "{place}  {id}  {} left",
                words(self.left(id, elapsed))
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

/// A time for people: `about 12 min`, `40 s`.
pub(super) fn words(seconds: f64) -> String {
    match seconds {
        long if long >= 90.0 => format!("about {:.0} min", long / 60.0),
        short => format!("{short:.0} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_shrinks_and_follows_the_pace_of_what_is_done() {
        let mut clock = Clock::new(["003-table4", "003-table5", "002-fig14"].into_iter());
        assert_eq!(clock.whole(), Duration::from_secs(180));
        assert_eq!(clock.left("003-table4", 0.0), 180.0);
        assert_eq!(clock.left("003-table4", 20.0), 160.0);
        // Over time, but not over.
        assert_eq!(clock.left("003-table4", 100.0), 125.0);
        clock.done("003-table4", 120.0);
        assert_eq!(
            clock.left("003-table5", 0.0),
            240.0,
            "everything takes twice as long"
        );
        assert_eq!(clock.at("003-table5", 90.0), 120.0);
        assert_eq!(
            (words(240.0), words(42.3)),
            ("about 4 min".to_owned(), "42 s".to_owned())
        );
    }
}
