//! How the processors spent a window, by part of the engine: the system's counts of idle time, of
//! the kernel and of other programs, and samples for the rest.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::{
    profile::{Part, Profile, Profiler},
    run::Run,
    usage::{Split, Usage},
};

/// The time of one run in which this process was sampled.
#[derive(Debug, Clone, Default)]
pub struct Times {
    /// Idle, kernel, program, others: shares of the time of all processors.
    pub split: Split,
    /// The samples.
    pub profile: Profile,
    /// Committed transactions per second of this run, to be compared with runs without sampling.
    pub tps: f64,
}

impl Times {
    /// The time of a run with these samples.
    pub fn of(run: &Run, profile: Profile, cores: usize) -> Times {
        let usage: Option<Usage> = run.usage;
        Times {
            split: usage.map_or(Split::default(), |usage| {
                Split::of(usage, run.window, cores)
            }),
            profile,
            tps: run.tps(),
        }
    }

    /// Time of this part in the program, as a share of all processors' time.
    pub fn program(&self, part: Part) -> f64 {
        self.split.user * self.profile.share(part)
    }

    /// Time of the kernel for this part. Without samples it belongs to no part.
    pub fn kernel(&self, part: Part) -> f64 {
        let nobody = Part::ALL
            .iter()
            .all(|&part| self.profile.share_of_kernel(part) == 0.0);
        let share = match (nobody, part) {
            (true, Part::Others) => 1.0,
            _ => self.profile.share_of_kernel(part),
        };
        self.split.kernel * share
    }

    /// The same for programs: shares of all processors' time, and their sources.
    pub fn to_json(&self, undisturbed: f64) -> Value {
        let parts = |of: &dyn Fn(Part) -> f64| -> Map<String, Value> {
            let parts = Part::ALL.into_iter();
            parts
                .map(|part| (part.to_string(), json!(rounded(of(part)))))
                .collect()
        };
        json!({
            "idle": rounded(self.split.idle),
            "others": rounded(self.split.others),
            "kernel": rounded(self.split.kernel),
            "program": parts(&|part| self.program(part)),
            "kernel_for": parts(&|part| self.kernel(part)),
            "samples": self.profile.samples(),
            "uncertainty": rounded(self.profile.uncertainty()),
            "tps_sampled": rounded(self.tps),
            "tps_sampled_ratio": (undisturbed > 0.0).then(|| rounded(self.tps / undisturbed)),
        })
    }
}

fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

/// Samples the window of a run, and nothing before or after it.
#[derive(Debug, Default)]
pub struct Watch {
    begun: Option<Result<Profiler, String>>,
    ended: Option<Result<Profile, String>>,
}

impl Watch {
    /// Called during the run with the time since its clients were started, and at the end. The
    /// window begins after `ramp`.
    pub fn at(&mut self, elapsed: Duration, ramp: Duration, window: Duration) {
        let over = elapsed >= ramp + window;
        if elapsed >= ramp && !over && self.begun.is_none() {
            let begun = Profiler::start().map_err(|error| error.to_string());
            self.begun = Some(begun);
        }
        if over && self.ended.is_none() {
            let begun = self.begun.take();
            let profile = begun.map(|begun| begun.map(Profiler::stop));
            self.ended = Some(profile.unwrap_or_else(|| Ok(Profile::default())));
        }
    }

    /// The samples.
    ///
    /// # Errors
    ///
    /// If nothing was sampled; the text says why.
    pub fn profile(self) -> Result<Profile, String> {
        self.ended.unwrap_or_else(|| Ok(Profile::default()))
    }
}
