//! Progress for a person: how much is done, and the time left.
//!
//! On a terminal: one bar with the remaining time. Anywhere else (a pipe, a log file, continuous
//! integration): one plain line when a phase begins, nothing more.

use std::{
    fmt,
    io::{IsTerminal, Write},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::report::number::rounded;

/// Writes a line to standard error. A failure is ignored, because there is no other place to report
/// it, and no reason to end a measurement.
pub fn note(line: fmt::Arguments<'_>) {
    // One write, so that lines of several threads do not mix.
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// Where progress is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audience {
    /// A bar on standard error.
    Terminal,
    /// A line on standard error for each phase.
    Log,
    /// No output.
    Nobody,
}

impl Audience {
    /// A terminal if standard error is one and this is not continuous integration, else a log.
    pub fn here() -> Audience {
        let automated = std::env::var_os("CI").is_some();
        match std::io::stderr().is_terminal() && !automated {
            true => Audience::Terminal,
            false => Audience::Log,
        }
    }

    /// Says one line beside the bars.
    pub fn say(self, line: &str) {
        if self != Audience::Nobody {
            note(format_args!("{line}"));
        }
    }

    /// Begins a phase of `total` steps, counted in `rows`.
    pub fn count(self, what: &str, total: u64, unit: &str) -> Progress {
        let template = format!("{{msg}}  {BAR}  {{human_pos}} of {{human_len}} {unit}, {LEFT}");
        self.begin(what, total, &template)
    }

    /// Begins a phase of an estimated number of steps, counted in `rows`.
    pub fn count_about(self, what: &str, estimate: u64, unit: &str) -> Progress {
        let template =
            format!("{{msg}}  {BAR}  {{human_pos}} of about {{human_len}} {unit}, {LEFT}");
        self.begin(what, rounded(estimate), &template)
    }

    /// Begins a phase over `total` bytes; 0 if unknown.
    pub fn bytes(self, what: &str, total: u64) -> Progress {
        let template = match total {
            0 => "{msg}  {bytes}, {bytes_per_sec}".to_owned(),
            _ => format!("{{msg}}  {BAR}  {{bytes}} of {{total_bytes}}, {LEFT}"),
        };
        self.begin(what, total, &template)
    }

    /// Begins a phase planned to take `total`.
    pub fn clock(self, what: &str, total: Duration) -> Progress {
        let template = format!("{{msg}}  {BAR}  {{percent}} %, {LEFT}");
        self.begin(what, total.as_millis() as u64, &template)
    }

    /// Begins a phase with an estimated time of `total`; the caller reports how much is done.
    pub fn share(self, what: &str, total: Duration) -> Progress {
        let template = format!("{{msg}}  {BAR}  {{percent}} %");
        self.begin(what, total.as_millis() as u64, &template)
    }

    fn begin(self, what: &str, total: u64, template: &str) -> Progress {
        if self == Audience::Log {
            note(format_args!("{what}"));
        }
        let target = match self {
            Audience::Terminal => ProgressDrawTarget::stderr_with_hz(5),
            _ => ProgressDrawTarget::hidden(),
        };
        let style = ProgressStyle::with_template(template).expect("the templates are constants");
        let bar = ProgressBar::with_draw_target(Some(total), target);
        bar.set_style(style.progress_chars("━╸─"));
        bar.set_message(what.to_owned());
        Progress(bar)
    }
}

const BAR: &str = "{bar:28.cyan/dim}";
const LEFT: &str = "{eta} left";

/// One phase of work; it is cleared from the screen when dropped.
#[derive(Debug)]
pub struct Progress(ProgressBar);

impl Progress {
    /// Reports `steps` further steps. Cheap enough for every few hundred rows; threads may share
    /// it.
    pub fn advance(&self, steps: u64) {
        self.0.inc(steps);
    }

    /// Reports that this many steps are done in all.
    pub fn reach(&self, steps: u64) {
        self.0.set_position(steps);
    }

    /// How many steps are done.
    pub fn steps(&self) -> u64 {
        self.0.position()
    }

    /// Reports this much of the planned time as passed.
    pub fn at(&self, elapsed: Duration) {
        self.0.set_position(elapsed.as_millis() as u64);
    }

    /// Says one line, above the bar if there is one.
    pub fn say(&self, line: &str) {
        self.0.suspend(|| note(format_args!("{line}")));
    }

    /// Shows the current work.
    pub fn now(&self, what: &str) {
        self.0.set_message(what.to_owned());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
